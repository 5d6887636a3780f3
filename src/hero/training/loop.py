"""The training loop, read top to bottom. Same config, same bits on the CPU, also after a kill and a resume."""

from __future__ import annotations

import math
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from hero.console import on_signals, progress_bar, say
from hero.data.windows import Batches, Trajectories
from hero.errors import HeroError
from hero.files import run_lock, write_atomic
from hero.method.measures import MEASURES
from hero.method.metrics import Scoring
from hero.method.rollout_errors import rollout_errors
from hero.parallel import Agreement, first_process_first, from_first, joined, sharing
from hero.ranks import RANKS
from hero.runs.config import RunConfig
from hero.runs.folder import Run, choose_device, load_data
from hero.runs.records import write_arrays
from hero.runs.start import open_start, start_notes
from hero.runs.stored import StoredRun
from hero.runs.structure import with_structure
from hero.strategies import TrainSettings
from hero.training.compile import find_compiler
from hero.training.journal import Callback, Checkpoints, Journal, check_same_start
from hero.training.loggers import chosen_loggers
from hero.training.memory import keep_freed_memory, unroll_memory
from hero.training.schedule import augment
from hero.training.update import Trainee, check_shares, update

CHECK_EVERY = 50  # most updates between two looks at the norms of gradients where a look waits for the device


def train(
    config: RunConfig,
    runs_dir: Path,
    data_dir: Path,
    log: Sequence[str] | None = None,
    callbacks: Sequence[Callback] = (),
    run: Path | None = None,
) -> Path:
    """Train the run of `config` in `runs_dir/<id>`, from its last checkpoint if there is one; returns the folder.

    `log` names further loggers, such as "tensorboard"; the loggers of $HERO_LOG unless given. `callbacks` are told of
    every record and validation; one that returns False stops the run after a validation. `run` is the folder where it
    has another name.

    Started by torchrun, the processes share every batch; the first one alone writes.
    """
    run = run or runs_dir / config.run_id()
    with no_folder_unless_started(StoredRun(run)):
        device, loggers = choose_device(config.train.device), chosen_loggers(log)
        with joined(device), run_lock(run) if RANKS.is_first else nullcontext():
            config, data = decided(config, run, data_dir, device)
            session = prepare(config, run, data_dir, data, device, callbacks)
            if session is not None:
                with closing(session.journal.loggers) as opened:
                    for name in loggers if RANKS.is_first else ():
                        opened.add(name, run, config)
                    run_updates(session)
    return run


def resume(run: Path, data_dir: Path, log: Sequence[str] | None = None) -> Path:
    """Continue the run in the folder `run`, whatever the folder is called now; returns the folder."""
    return train(Run(run).config, run.parent, data_dir, log, run=run)


@dataclass
class Session:
    """Everything that the loop needs, set up."""

    config: RunConfig
    device: torch.device
    trainee: Trainee
    windows: Batches
    val: Trajectories
    journal: Journal
    checkpoints: Checkpoints
    first: int  # updates that were made before

    def diverged(self, done: int) -> HeroError:
        """The error for loss, gradients or weights that are not finite, noticed after update `done`."""
        kept = "; the last checkpoint is kept" if self.checkpoints.run.state_file.is_file() else ""
        return HeroError(
            f"training became non-finite before update {done}; lower train.lr, or clip with train.clip=1 or less{kept}."
        )


def prepare(
    config: RunConfig,
    run: Path,
    data_dir: Path,
    data: Trajectories | None,  # of training, where they were read before
    device: torch.device,
    callbacks: Sequence[Callback],
) -> Session | None:
    """Data, operator, optimizer, strategy and the state of the last checkpoint; None where nothing is left to do."""
    settings, checkpoints = config.train, Checkpoints(run, config.train, config.scoring)
    model = config.build_operator().to(device)
    journal = Journal(run, config, device, callbacks)
    with first_process_first():
        state = checkpoints.load(device, journal)
    first = state["step"] if state else 0
    check_same_start(run, first)
    if state and (first >= settings.steps or state.get("stopped")):
        checkpoints.restore(state, Trainee.of(config, model))  # refuses a damaged state; writes missing weights
        return None
    with first_process_first():  # which solves what is not there
        data = (data or load_data(config, "train", data_dir, device)).to(device)
        val = load_data(config, "val", data_dir, device)
    start = open_start(model, settings, config.backbone.name) if settings.init_hash and not state else None
    windows = config.windows(data)
    check_shares(model, min(settings.batch, windows.count), settings.accumulate)
    compiler = find_compiler(config, model, windows(0))
    journal.compiled = compiler is not None
    trainee = Trainee.of(config, model, compiler)
    trainee.strategy.begin(model, data)
    if RANKS.is_first:
        write_arrays(journal.run.statistics_file, trainee.strategy.norm.arrays())
    if start:
        start.put()  # again: statistics that came with the weights replace ours
    say(*start_notes(model, settings, start))
    memory = unroll_memory(config, model, windows(first))
    say(*memory.note(settings.recompute))
    if memory.is_small:
        keep_freed_memory()
    if settings.batch > windows.count:
        say(f"train.batch={settings.batch} is above the {windows.count} windows of the data: a batch is all of them")
    if state:
        say(f"resuming {run.name} after update {first} of {settings.steps}")
    journal.begin(first, checkpoints.restore(state, trainee) if state else 0.0)
    return Session(config, device, trainee, windows, val, journal, checkpoints, first)


def run_updates(session: Session) -> None:
    """Update, log, validate and save until the last update, a callback, a lack of patience, or Ctrl-C."""
    config, trainee, journal, checkpoints = session.config, session.trainee, session.journal, session.checkpoints
    settings, norms = config.train, list[Tensor | float]()
    with (
        watched(journal, session.first) as interrupted,
        session.windows.ahead(range(session.first, settings.steps)) as batches,
    ):
        for batch in batches:
            with sharing(batch.share):
                statistics = update(trainee, augment(batch, settings, config.seed, trainee.strategy.norm))
            journal.count(statistics)
            norms.append(statistics["grad_norm"])

            done, stop = batch.step + 1, interrupted()
            due = Due.after(done, settings, journal, session.device, stop)
            if due.look:
                if not math.isfinite(float(sum(norms))):
                    raise session.diverged(done)
                norms.clear()
            if due.log and not journal.log(done, trainee.optimizer.param_groups[0]["lr"]):
                raise session.diverged(done)
            is_measured = due.validate or journal.is_stop_wanted
            is_kept = is_measured or due.keep or due.save
            if is_kept and not all(p.isfinite().all() for p in trainee.model.parameters()):
                raise session.diverged(done)  # the checkpoint before is worth more
            ends = is_measured and validate(session, done) and not due.last
            if due.keep:
                checkpoints.keep(done, trainee)
            if ends:
                journal.log_stop(done)
            if due.save or ends:
                checkpoints.save(done, trainee, journal.seconds(), ends)
            if ends:
                break
            if stop and not due.last:
                raise KeyboardInterrupt


@dataclass(frozen=True)
class Due:
    """What is to be done after an update."""

    last: bool
    look: bool  # at the norms of the gradients
    log: bool
    validate: bool
    keep: bool
    save: bool

    @classmethod
    def after(cls, done: int, settings: TrainSettings, journal: Journal, device: torch.device, stop: bool) -> Due:
        """After update `done`; `stop` says that somebody interrupts the run."""
        last = done == settings.steps
        every = 1 if device.type == "cpu" else min(journal.log_every, CHECK_EVERY)
        return cls(
            last,
            done % every == 0,
            done % journal.log_every == 0 or last,
            done % settings.validate_every == 0 or last,
            settings.keep_every > 0 and done % settings.keep_every == 0,
            done % settings.checkpoint_every == 0 or last or stop,
        )


def validate(session: Session, done: int) -> bool:
    """Measure, log and keep the best weights; returns whether training may end here."""
    trainee, journal, checkpoints = session.trainee, session.journal, session.checkpoints
    with trainee.average.applied(trainee.model):
        errors = from_first(lambda: validation_errors(trainee, session.val, session.config.scoring, session.device))
        score = journal.log_validation(done, errors)
        is_over = checkpoints.note_validation(done, trainee.model, score)
    journal.show_validation(done, checkpoints.best.score, checkpoints.best.step)
    return is_over or journal.is_stop_wanted


def validation_errors(trainee: Trainee, val: Trajectories, scoring: Scoring, device: torch.device) -> Tensor:
    """The measure of the score, per trajectory over the steps that it reads."""
    trainee.model.eval()
    strategy, measure = trainee.strategy, MEASURES[scoring.measure]
    step, history = strategy.stepper(trainee.model), trainee.settings.history
    errors = rollout_errors(step, val, scoring.steps, device, history, norm=strategy.norm, measures=[measure])
    trainee.model.train()
    return errors[measure.name]


def decided(
    config: RunConfig, run: Path, data_dir: Path, device: torch.device
) -> tuple[RunConfig, Trajectories | None]:
    """The configuration with what the training data decide, as its folder has it; and these data, if it read them."""
    data = None
    if not config.backbone.is_found:
        with first_process_first():  # which solves what is not there
            data = load_data(config, "train", data_dir, device)
        config = with_structure(config, data)
    text, path = config.to_toml().encode(), StoredRun(run).config_file
    if RANKS.is_first and not (path.is_file() and path.read_bytes() == text):
        write_atomic(path, text)  # an equal id: only settings that change no number can differ
    return config, data


@contextmanager
def no_folder_unless_started(run: StoredRun) -> Iterator[None]:
    """Remove a new folder if an error comes before the first update."""
    is_new = RANKS.is_first and not run.path.exists()
    try:
        yield
    except Exception:
        is_logged = run.log_file.is_file() and run.log_file.stat().st_size
        if is_new and not is_logged and not run.state_file.parent.is_dir():
            shutil.rmtree(run.path, ignore_errors=True)
        raise


@contextmanager
def watched(journal: Journal, first: int) -> Iterator[Callable[[], bool]]:
    """Show a progress bar; Ctrl-C and SIGTERM are noted, so that the loop can save before it stops."""
    caught, agreed = list[int](), Agreement()
    with (
        on_signals(lambda number, _: caught.append(number), signal.SIGINT, signal.SIGTERM),
        progress_bar(journal.run.name, journal.updates) as journal.advance,
    ):
        journal.advance(first)
        yield lambda: agreed(bool(caught))
