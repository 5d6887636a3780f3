"""The training loop, read top to bottom. Same config, same bits on the CPU, also after a kill and a resume."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hero.console import console, progress_bar
from hero.data.windows import Batch
from hero.errors import HeroError
from hero.evaluation.evaluate import load_data
from hero.files import append, json_line, owned, write_atomic
from hero.method import metrics
from hero.method.lagged import weights_of
from hero.method.metrics import rollout_errors
from hero.method.rollout import compiled
from hero.runs.checkpoint import LAGGED, kept_path, load_run, load_state, save_state, save_weights
from hero.runs.config import RunConfig
from hero.runs.folder import choose_device, read_log
from hero.strategies import Strategy
from hero.training.ema import AveragedWeights
from hero.training.loggers import Loggers, chosen_loggers, open_loggers
from hero.training.memory import KeptForBackward
from hero.training.schedule import augment, learning_rate

COMPILE_SECONDS = 50
"""About what compiling takes, for each block of the backbone."""
COMPILED_SAVES = 0.5
"""At least this share of the time of an uncompiled FNO."""


def train(config: RunConfig, runs_dir: Path, data_dir: Path, log: Sequence[str] | None = None) -> Path:
    """Train the run of `config` in `runs_dir/<id>`, from its last checkpoint if there is one; returns the folder.

    `log` names loggers beside log.jsonl, such as "tensorboard"; those of $HERO_LOG unless given.
    """
    run = runs_dir / config.run_id()
    device = choose_device(config.train.device)
    loggers = chosen_loggers(log)
    with owned(run):
        if not (run / "config.toml").is_file():
            write_atomic(run / "config.toml", config.to_toml().encode())
        _train(config, run, data_dir, device, loggers)
    return run


def resume(run: Path, data_dir: Path, log: Sequence[str] | None = None) -> Path:
    """Go on with the run in the folder `run`, whatever the folder is called now; returns the folder."""
    config = load_run(run)
    loggers = chosen_loggers(log)
    with owned(run):
        _train(config, run, data_dir, choose_device(config.train.device), loggers)
    return run


def _train(config: RunConfig, run: Path, data_dir: Path, device: torch.device, log: Sequence[str]) -> None:
    settings = config.train
    model = config.build_operator().to(device)
    optimiser = make_optimiser(model, config)
    strategy = config.make_strategy()
    average = AveragedWeights(model, settings.ema or 0)
    progress = Progress(run, config, device)
    first = progress.resume(model, optimiser, strategy, average, device)
    if first >= settings.steps:
        return

    data = load_data(config, "train", data_dir, device).to(device)
    val = load_data(config, "val", data_dir, device)
    windows = config.windows(data)
    strategy.begin(model, data)
    progress.compiled = compile_unroll(strategy, model, config, windows(0))

    with open_loggers(log, run, config) as progress.loggers, progress.shown(first) as interrupted:
        for step in range(first, settings.steps):
            batch = augment(windows(step), config.train, config.seed)
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(step, settings.lr, settings.warmup or 0, settings.steps)
            loss = strategy.loss(model, batch)
            optimiser.zero_grad(set_to_none=True)
            loss.value.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), settings.clip or float("inf"))
            optimiser.step()
            average.update(model)

            done = step + 1
            last, stop = done == settings.steps, interrupted()
            progress.count({"loss": loss.value.detach(), "grad_norm": norm, **loss.statistics})
            if done % progress.log_every == 0 or last:
                progress.log(done, lr=optimiser.param_groups[0]["lr"])
            if done % (settings.validate_every or 1) == 0 or last:
                check_weights(model, done)
                with average.applied(model):
                    progress.validated(done, model, validation_errors(strategy, model, val, device))
            if settings.keep_every and done % settings.keep_every == 0:
                check_weights(model, done)
                progress.keep(done, model, strategy)
            if done % (settings.checkpoint_every or 1) == 0 or last or stop:
                check_weights(model, done)
                progress.save(done, model, optimiser, strategy, average)
            if stop and not last:
                raise KeyboardInterrupt


def make_optimiser(model: nn.Module, config: RunConfig) -> torch.optim.Optimizer:
    """AdamW, in one kernel where torch has one: not for complex weights such as neuralop's."""
    fused = all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in model.parameters())
    return torch.optim.AdamW(
        model.parameters(), lr=config.train.lr, weight_decay=config.train.weight_decay, fused=fused
    )


def check_weights(model: nn.Module, done: int) -> None:
    """Refuse to keep weights that are not finite: the checkpoint before them is worth more."""
    if not all(bool(p.isfinite().all()) for p in model.parameters()):
        raise not_finite(done)


def not_finite(done: int) -> HeroError:
    """Training has left the finite range."""
    return HeroError(
        f"training became non-finite before step {done}; lower train.lr, or clip with train.clip=1 or less; "
        "the last checkpoint is kept."
    )


def validation_errors(strategy: Strategy, model: nn.Module, val: Tensor, device: torch.device) -> Tensor:
    """nRMSE per trajectory over the 100 steps that GM100 reads."""
    model.eval()
    history = strategy.config.train.history
    errors = rollout_errors(strategy.stepper(model), val, 100, device, history)["nrmse"]
    model.train()
    return errors


def compile_unroll(strategy: Strategy, model: nn.Module, config: RunConfig, batch: Batch) -> bool:
    """Compile the unroll of `strategy` where that pays or is asked for, and the machine can; says what it does."""
    choice = config.train.compile
    if choice == "false" or (choice == "auto" and not compiling_pays(strategy, model, config, batch)):
        return False
    if not batch.truth.is_cuda and not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))):
        console.print("no C++ compiler found; training goes on without it, two to three times slower", style="yellow")
        return False
    # A throw-away strategy makes the last update, so that all is compiled now and nothing in the middle of training.
    torch.compiler.reset()  # what earlier runs of this process compiled counts towards a limit
    trial = type(strategy)(config)
    trial.unroll = compiled(strategy.unroll, batch.truth.device)
    note = "compiling for speed, once: about a minute, several for a deep backbone"
    if not console.is_terminal:
        console.print(note, style="dim")
    try:
        with console.status(note):
            with torch.no_grad(), torch.random.fork_rng(devices=[]):  # a refiner draws
                model(batch.context.inputs())  # fills the caches of the model outside of the compiled code
            trial.loss(model, replace(batch, step=config.train.steps - 1)).value.backward()
    except Exception as error:  # whatever a compiler may raise, training can go on without it
        console.print(f"compiling failed ({type(error).__name__}); training goes on without it", style="yellow")
        return False
    finally:
        model.zero_grad(set_to_none=True)
    strategy.unroll = trial.unroll
    return True


def compiling_pays(strategy: Strategy, model: nn.Module, config: RunConfig, batch: Batch) -> bool:
    """Whether a run is long enough to earn back the time that compiling takes.

    Decided by counting, not by the clock, so that equal configurations take equal paths: measured on two cores, an
    uncompiled update takes about 10 ms and 5 ns for each number that it keeps for its backward pass.
    """
    if strategy.varies:
        return False
    if batch.truth.is_cuda:
        return config.train.steps >= 2000
    trial = type(strategy)(config)
    kept = KeptForBackward(model)
    with kept.hooks():
        trial.loss(model, replace(batch, step=0))
    expected = config.train.steps * (10e-3 + 5e-9 * kept.nbytes() / 4)
    return COMPILED_SAVES * expected > COMPILE_SECONDS * (config.backbone.depth or 1)


class Progress:
    """What a run has done so far: its log, its best weights, its checkpoint, and what the screen shows of them."""

    def __init__(self, run: Path, config: RunConfig, device: torch.device) -> None:
        self.run, self.config, self.device = run, config, device
        self.log_every = max(1, config.train.steps // 200)
        self.compiled = False
        self.loggers = Loggers()
        self.best: dict[str, Any] = {"val_gm100": float("inf"), "step": 0, "weights": None}
        self.val_gm100: float | None = None
        self._counted: dict[str, list[Tensor | float]] = {}
        self._advance: Callable[..., None] = lambda n, note=None: None
        self._seconds = 0.0
        self._clock = time.perf_counter()
        self._last_logged = (0, 0.0)

    @property
    def state_path(self) -> Path:
        return self.run / "last" / "state.pt"

    def seconds(self) -> float:
        """Training time, over all sessions of this run."""
        return self._seconds + time.perf_counter() - self._clock

    def save(
        self,
        done: int,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        strategy: Strategy,
        average: AveragedWeights,
    ) -> None:
        """The checkpoint after `done` updates."""
        state = {
            "step": done,
            "model": weights_of(model),
            "optimiser": optimiser.state_dict(),
            "strategy": strategy.state_dict(),
            "average": average.state_dict(),
            "best": self.best,
            "seconds": self.seconds(),
        }
        save_state(self.state_path, state)

    def keep(self, done: int, model: nn.Module, strategy: Strategy) -> None:
        """A checkpoint for later analysis: the weights, and those of the lagged operator if the strategy has one."""
        lagged = strategy.state_dict().get("lagged", {})
        weights = {**weights_of(model), **{f"{LAGGED}{name}": tensor for name, tensor in lagged.items()}}
        save_weights(kept_path(self.run, done), weights, {"step": done})

    def resume(
        self,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        strategy: Strategy,
        average: AveragedWeights,
        device: torch.device,
    ) -> int:
        """Load the last checkpoint if there is one; returns the number of updates done."""
        if not self.state_path.is_file():
            self._keep_log(0)
            return 0
        state = load_state(self.state_path, device)
        try:
            model.load_state_dict(state["model"])
            optimiser.load_state_dict(state["optimiser"])
            strategy.load_state_dict(state["strategy"], model)
            average.load_state_dict(state["average"])
            done: int = state["step"]
            self.best, self._seconds = state["best"], state["seconds"]
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError):
            raise HeroError(
                f"the checkpoint {self.state_path} belongs to another model; "
                f"delete the folder {self.run} to start again."
            ) from None
        self._last_logged = (done, self._seconds)
        if done < self.config.train.steps:
            self._keep_log(done)
            console.print(f"resuming {self.run.name} after step {done} of {self.config.train.steps}", highlight=False)
        if self.best["weights"] is not None and (
            done < self.config.train.steps or not (self.run / "model.safetensors").is_file()
        ):
            self._save_best()  # what is there may be of a later step, which is done again
        return done

    def _keep_log(self, done: int) -> None:
        """Drop what was logged after the checkpoint: those steps are done again."""
        records = [record for record in read_log(self.run) if record["step"] <= done]
        write_atomic(self.run / "log.jsonl", "".join(map(json_line, records)).encode())

    def count(self, statistics: dict[str, Tensor | float]) -> None:
        """Add the statistics of one update; tensors stay on the device until they are logged."""
        for name, value in statistics.items():
            self._counted.setdefault(name, []).append(value)
        self._advance(1)

    def log(self, done: int, lr: float) -> None:
        """Write the means since the last record: the one place where the host waits for the device."""
        means = {name: float(sum(values) / len(values)) for name, values in self._counted.items()}
        self._counted = {}
        seconds = self.seconds()
        before, since = self._last_logged
        self._last_logged = (done, seconds)
        record = {
            "step": done,
            **means,
            "lr": lr,
            "steps_per_second": (done - before) / (seconds - since),
            "seconds": seconds,
            "compiled": self.compiled,
            "device": str(self.device),
        }
        self._append(record)
        self._advance(0, note=self._note(record))
        if not means["loss"] < float("inf"):
            raise not_finite(done)

    def validated(self, done: int, model: nn.Module, errors: Tensor) -> None:
        """Log a validation; keep the weights if they are the best so far."""
        self.val_gm100 = float(metrics.gm(errors).mean())
        diverged = metrics.diverged(errors)
        self._append({"step": done, "val_gm100": self.val_gm100, "val_diverged": diverged})
        if self.val_gm100 < self.best["val_gm100"] or self.best["weights"] is None:
            weights = {name: tensor.detach().clone() for name, tensor in weights_of(model).items()}
            self.best = {"val_gm100": self.val_gm100, "step": done, "weights": weights}
            self._save_best()
        if not console.is_terminal:
            console.print(
                f"step {done}/{self.config.train.steps}  validation GM100 {self.val_gm100:.4g}"
                f"  best {self.best['val_gm100']:.4g} at {self.best['step']}"
                f"  diverged {diverged}  {self.seconds():.0f} s",
                highlight=False,
                soft_wrap=True,
            )

    def _save_best(self) -> None:
        about = {"step": self.best["step"], "val_gm100": str(self.best["val_gm100"])}
        save_weights(self.run / "model.safetensors", self.best["weights"], about)

    def _append(self, record: dict[str, Any]) -> None:
        append(self.run / "log.jsonl", json_line(record))
        self.loggers.record(record)

    def _note(self, record: dict[str, Any]) -> str:
        note = f"loss {record['loss']:.3g}"
        if self.val_gm100 is not None:
            note += f"  val {self.val_gm100:.3g}"
        if "lambda" in record:
            note += f"  λ {record['lambda']:.3f}"
        if "alpha" in record:
            note += f"  α {record['alpha']:.2f}"
        # A candidate has statistics CANDIDATE.DIAGNOSTIC, and under its name the share of samples that chose it.
        shares = {name: record[name] for key in record if (name := key.partition(".")[0]) != key and name in record}
        if shares:
            note += f"  {'/'.join(shares)} {'/'.join(f'{100 * share:.0f}' for share in shares.values())}%"
        return note + f"  {record['steps_per_second']:.0f} steps/s"

    @contextmanager
    def shown(self, first: int) -> Iterator[Any]:
        """Show progress; Ctrl-C and SIGTERM are noted, so that the loop can save before it stops."""
        caught: list[int] = []
        signals = (signal.SIGINT, signal.SIGTERM)
        try:
            previous = {s: signal.signal(s, lambda number, _: caught.append(number)) for s in signals}
        except ValueError:  # not in the main thread, where signals do not arrive
            previous = {}
        self._clock = time.perf_counter()
        try:
            with progress_bar(self.run.name, self.config.train.steps) as self._advance:
                self._advance(first)
                yield lambda: bool(caught)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
