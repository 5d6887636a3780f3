"""The training loop, read top to bottom. Same config, same bits on the CPU, also after a kill and a resume."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from hero.console import progress_bar, say
from hero.data.windows import Trajectories
from hero.errors import HeroError
from hero.files import write_atomic
from hero.method import metrics
from hero.parallel import Agreement, first_process_first, from_first, joined, sharing
from hero.ranks import RANKS
from hero.runs.config import RunConfig
from hero.runs.folder import Run, choose_device, load_data, write_statistics
from hero.runs.start import open_start, start_notes
from hero.runs.structure import structure_notes, with_structure
from hero.training.checkpoints import Checkpoints
from hero.training.compile import find_compiler
from hero.training.divergence import DivergedError, NormCheck
from hero.training.journal import Callback, Journal
from hero.training.loggers import chosen_loggers, open_loggers
from hero.training.parallel import check_same_start, check_shares, lock_of
from hero.training.schedule import augment
from hero.training.update import Trainee, update


def train(
    config: RunConfig,
    runs_dir: Path,
    data_dir: Path,
    log: Sequence[str] | None = None,
    callbacks: Sequence[Callback] = (),
) -> Path:
    """Train the run of `config` in `runs_dir/<id>`, from its last checkpoint if there is one; returns the folder.

    `log` names further loggers, such as "tensorboard"; the loggers of $HERO_LOG unless given. `callbacks` are told of
    every record and validation; one that returns False stops the run after a validation.

    Started by torchrun, the processes share every batch; the first one alone writes.
    """
    run = runs_dir / config.run_id()
    device = choose_device(config.train.device)
    loggers = chosen_loggers(log)
    with joined(device), no_folder_unless_started(run), lock_of(run):
        _train(decided(config, run, data_dir, device), run, data_dir, device, loggers, callbacks)
    return run


@contextmanager
def no_folder_unless_started(run: Path) -> Iterator[None]:
    """Remove a new folder if an error comes before the first update."""
    is_new = RANKS.is_first and not run.exists()
    try:
        yield
    except Exception:
        log = run / "log.jsonl"
        if is_new and not (log.is_file() and log.stat().st_size):
            shutil.rmtree(run, ignore_errors=True)
        raise


def resume(run: Path, data_dir: Path, log: Sequence[str] | None = None) -> Path:
    """Continue the run in the folder `run`, whatever the folder is called now; returns the folder."""
    config = Run(run).config
    loggers = chosen_loggers(log)
    device = choose_device(config.train.device)
    with joined(device), lock_of(run):
        _train(decided(config, run, data_dir, device), run, data_dir, device, loggers)
    return run


def decided(config: RunConfig, run: Path, data_dir: Path, device: torch.device) -> RunConfig:
    """The configuration with what the training data decide, as it is stored in the folder of the run."""
    if not config.backbone.is_found:
        with first_process_first():  # which solves what is not there
            config = with_structure(config, load_data(config, "train", data_dir, device))
    text, path = config.to_toml().encode(), run / "config.toml"
    if RANKS.is_first and not (path.is_file() and path.read_bytes() == text):
        write_atomic(path, text)  # an equal id: only settings that change no number can differ
    return config


def _train(
    config: RunConfig,
    run: Path,
    data_dir: Path,
    device: torch.device,
    log: Sequence[str],
    callbacks: Sequence[Callback] = (),
) -> None:
    """Train from the last state; after a divergence again, where the settings say so."""
    while True:
        checkpoints = Checkpoints(run, config.train, config.scoring)
        try:
            return _train_from_last(config, run, checkpoints, data_dir, device, log, callbacks)
        except DivergedError as error:
            if config.train.on_divergence == "stop":
                raise
            if not from_first(partial(checkpoints.back_off, error.step)):
                raise HeroError(
                    f"training diverged again with {checkpoints.lr_factor:g} of train.lr; lower train.lr."
                ) from None


def _train_from_last(
    config: RunConfig,
    run: Path,
    checkpoints: Checkpoints,
    data_dir: Path,
    device: torch.device,
    log: Sequence[str],
    callbacks: Sequence[Callback],
) -> None:
    settings = config.train
    model = config.build_operator().to(device)
    journal = Journal(run, config, device, callbacks)
    with first_process_first():
        state = checkpoints.load(device)
    first = state["step"] if state else 0
    check_same_start(run, first)
    if state and (first >= settings.steps or state.get("stopped")):
        checkpoints.restore(state, Trainee.of(config, model))  # refuses a damaged state; writes missing weights
        return

    with first_process_first():  # which solves what is not there
        data = load_data(config, "train", data_dir, device).to(device)
        val = load_data(config, "val", data_dir, device)
    start = open_start(model, settings, config.backbone.name) if settings.init_hash and not state else None
    windows = config.windows(data)
    check_shares(model, min(settings.batch, windows.count))
    compiler = find_compiler(config, model, windows(0))
    journal.compiled = compiler is not None
    trainee = Trainee.of(config, model, compiler)
    trainee.strategy.begin(model, data)
    if RANKS.is_first:
        write_statistics(run, trainee.strategy.norm)
    if start:
        start.put()  # again: statistics that came with the weights replace ours
    say(*start_notes(model, settings, start), *(structure_notes(config, data) if not state else ()))
    if settings.batch > windows.count:
        say(f"train.batch={settings.batch} is above the {windows.count} windows of the data: a batch is all of them")
    seconds = 0.0
    if state:
        seconds = checkpoints.restore(state, trainee)
        say(f"resuming {run.name} after update {first} of {settings.steps}")
    trainee.lr_factor = checkpoints.lr_factor
    journal.begin(first, seconds, checkpoints.back_offs)
    norms = NormCheck(device, journal.log_every)

    with (
        open_loggers(log if RANKS.is_first else (), run, config) as journal.loggers,
        watched(journal, first) as interrupted,
        windows.ahead(range(first, settings.steps)) as batches,
    ):
        for batch in batches:
            with sharing(batch.share):
                statistics = update(trainee, augment(batch, settings, config.seed, trainee.strategy.norm))
            journal.count(statistics)

            done = batch.step + 1
            last, stop = done == settings.steps, interrupted()
            finite = norms.are_finite(done, statistics["grad_norm"])
            if done % journal.log_every == 0 or last:
                finite &= journal.log(done, trainee.optimizer.param_groups[0]["lr"])
            validate = done % settings.validate_every == 0 or last or journal.is_stop_wanted
            keep = settings.keep_every > 0 and done % settings.keep_every == 0
            save = done % settings.checkpoint_every == 0 or last or stop
            if not finite or ((validate or keep or save) and not has_finite_weights(model)):
                raise DivergedError(done, kept=checkpoints.state_path.is_file())
            stopped_early = False
            if validate:
                with trainee.average.applied(model):
                    errors = from_first(lambda: validation_errors(trainee, val, config.scoring, device))
                    score = journal.log_validation(done, errors)
                    checkpoints.note_validation(done, model, score)
                journal.show_validation(done, checkpoints.best.score, checkpoints.best.step)
                journal.log_spectra(done, trainee.strategy.spectra())
                stopped_early = (checkpoints.out_of_patience(done) or journal.is_stop_wanted) and not last
            if keep:
                checkpoints.keep(done, trainee)
            if save or stopped_early:
                checkpoints.save(done, trainee, journal.seconds(), stopped_early)
            if stopped_early:
                journal.log_stop(done)
                break
            if stop and not last:
                raise KeyboardInterrupt


def has_finite_weights(model: nn.Module) -> bool:
    """Whether the weights may be kept: the checkpoint before non-finite ones is worth more."""
    return all(bool(p.isfinite().all()) for p in model.parameters())


def validation_errors(trainee: Trainee, val: Trajectories, scoring: metrics.Scoring, device: torch.device) -> Tensor:
    """The measure of the score, per trajectory over the steps that it reads."""
    trainee.model.eval()
    strategy, measure = trainee.strategy, metrics.MEASURES[scoring.measure]
    step, history = strategy.stepper(trainee.model), trainee.settings.history
    errors = metrics.rollout_errors(step, val, scoring.steps, device, history, norm=strategy.norm, measures=[measure])
    trainee.model.train()
    return errors[measure.name]


@contextmanager
def watched(journal: Journal, first: int) -> Iterator[Callable[[], bool]]:
    """Show a progress bar; Ctrl-C and SIGTERM are noted, so that the loop can save before it stops."""
    caught: list[int] = []
    agreed = Agreement()
    signals = (signal.SIGINT, signal.SIGTERM)
    try:
        previous = {s: signal.signal(s, lambda number, _: caught.append(number)) for s in signals}
    except ValueError:  # not in the main thread, where signals do not arrive
        previous = {}
    try:
        with progress_bar(journal.run.name, journal.updates) as journal.advance:
            journal.advance(first)
            yield lambda: agreed(bool(caught))
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
