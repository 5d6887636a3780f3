"""What a run writes while it trains: the log (log.jsonl, loggers, the line below the progress bar) and checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hero.console import console, say
from hero.errors import HeroError
from hero.files import append, crash_point, json_line, sync, write_atomic
from hero.method import measures
from hero.method.metrics import Scoring
from hero.models.lora import merged
from hero.parallel import from_first
from hero.ranks import RANKS
from hero.runs.checkpoint import LAGGED, last_state, read_weights, save_state, save_weights, weights_of
from hero.runs.config import RunConfig
from hero.runs.log import read_lines, score_name
from hero.runs.stored import StoredRun
from hero.strategies import TrainSettings
from hero.training.loggers import Loggers
from hero.training.update import Trainee


@dataclass(frozen=True)
class Progress:
    """The news for a callback: after `step` updates the mean loss since the last record, and a score if validated."""

    step: int
    loss: float | None
    """None before the first record."""
    score: float | None
    """The validation GM; None where nothing was validated."""


Callback = Callable[[Progress], object]  # returns False to stop training


class Journal:
    """Records the statistics of updates and validations."""

    def __init__(self, run: Path, config: RunConfig, device: torch.device, callbacks: Sequence[Callback] = ()) -> None:
        self.run, self.updates, self.device = StoredRun(run), config.train.steps, device
        self.scoring = config.scoring
        self.log_every = max(1, self.updates // 200)
        self.compiled = False
        self.loggers = Loggers()
        self.advance: Callable[..., None] = lambda n=1, note=None: None
        self.callbacks, self.is_stop_wanted = callbacks, False
        self.loss: float | None = None
        self.score: float | None = None
        self._counted: dict[str, list[Tensor | float]] = {}
        self._earlier = 0.0
        self._clock = time.perf_counter()
        self._last_logged = (0, 0.0)

    def begin(self, done: int, seconds: float) -> None:
        """Continue after `done` updates and `seconds`: later records are dropped, since those updates are repeated."""
        records = [record for record in read_lines(self.run.log_file) if record["step"] <= done]
        if RANKS.is_first:
            write_atomic(self.run.log_file, "".join(map(json_line, records)).encode())
        self._earlier, self._last_logged = seconds, (done, seconds)
        self._clock = time.perf_counter()

    def seconds(self) -> float:
        """Training time, over all sessions of this run."""
        return self._earlier + time.perf_counter() - self._clock

    def count(self, statistics: dict[str, Tensor | float]) -> None:
        """Add the statistics of one update; tensors stay on the device until they are logged."""
        for name, value in statistics.items():
            self._counted.setdefault(name, []).append(value)
        self.advance(1)

    def log(self, done: int, lr: float) -> bool:
        """Write the means since the last record; returns whether training may continue with this loss.

        It is the one place where the host waits for the device.
        """
        means = {name: float(sum(values) / len(values)) for name, values in self._counted.items()}
        self._counted = {}
        seconds = self.seconds()
        before, since = self._last_logged
        self._last_logged = (done, seconds)
        speed = (done - before) / max(seconds - since, 1e-9)  # a clock may stand still
        record = {"step": done, **means, "lr": lr, "steps_per_second": speed, "seconds": seconds}
        self._append({**record, "compiled": self.compiled, "device": str(self.device)})
        shown = {"loss": means["loss"]} | ({} if self.score is None else {"val": self.score})
        shown |= {name: value for name, value in means.items() if name not in ("loss", "grad_norm") and "." not in name}
        note = "  ".join(f"{name} {value:.3g}" for name, value in shown.items())
        self.advance(0, note=f"{note}  {speed:.0f} updates/s")
        self.loss = means["loss"]
        self._tell(Progress(done, self.loss, None))
        return self.loss < float("inf")

    def log_validation(self, done: int, errors: Tensor) -> float:
        """Write the validation score, such as GM100, and return it."""
        self.score = float(measures.gm(errors, self.scoring.steps).mean())
        crash_point("before-validation-record")
        self._append({"step": done, score_name(self.scoring): self.score, "val_diverged": measures.diverged(errors)})
        crash_point("after-validation-record")
        self._tell(Progress(done, self.loss, self.score))
        return self.score

    def log_stop(self, done: int) -> None:
        """Write that training ended early."""
        self._append({"step": done, "stopped_early": True})
        reason = "a callback returned False" if self.is_stop_wanted else f"{self.scoring.gm_title} no longer improves"
        console.print(f"stopped early after update {done} of {self.updates}: {reason}", style="dim")

    def show_validation(self, done: int, best: float, best_step: int) -> None:
        """A line per validation where there is no terminal for the progress bar."""
        if not console.is_terminal:
            score = f"validation {self.scoring.gm_title} {self.score:.4g}"
            say(f"step {done}/{self.updates}  {score}  best {best:.4g} at {best_step}  {self.seconds():.0f} s")

    def _tell(self, progress: Progress) -> None:
        answers = [callback(progress) for callback in self.callbacks]
        self.is_stop_wanted |= any(answer is False for answer in answers)

    def _append(self, record: dict[str, Any]) -> None:
        if RANKS.is_first:
            append(self.run.log_file, json_line(record))
            self.loggers.record(record)


@dataclass(frozen=True)
class Best:
    """The weights with the best validation score so far; none before the first validation."""

    score: float = float("inf")
    step: int = 0
    weights: dict[str, Tensor] | None = None


class Checkpoints:
    """Writes and restores the state of one run."""

    def __init__(self, run: Path, settings: TrainSettings, scoring: Scoring) -> None:
        self.run, self.settings, self.score_name = StoredRun(run), settings, score_name(scoring)
        self.best = Best()

    def load(self, device: Any, journal: Journal) -> dict[str, Any] | None:
        """The last state; None if there is none, or if the log or a checkpoint that is to be kept is missing before it.

        Checkpoints kept for analysis change no number, so asking for them later repeats the run in the same folder.
        """
        state, notice = last_state(self.run.state_file, device)
        say(*filter(None, [notice]), style="yellow")
        if state is None:
            return None
        every, step = self.settings.keep_every, state["step"]
        if every and not all(self.run.kept_file(k).is_file() for k in range(every, step + 1, every)):
            return None
        logged = max((record["step"] for record in read_lines(self.run.log_file)), default=0)
        if logged < step - step % journal.log_every:
            say(f"{self.run.log_file} ends before the checkpoint: its updates are repeated", style="yellow")
            return None
        return state

    def restore(self, state: dict[str, Any], trainee: Trainee) -> float:
        """Put a state into the model, optimizer, strategy and averaged weights; returns the seconds trained so far."""
        try:
            trainee.model.load_state_dict(state["model"])
            trainee.optimizer.load_state_dict(state["optimiser"])
            trainee.strategy.load_state_dict(state["strategy"], trainee.model)
            trainee.average.load_state_dict(state["average"])
            best, seconds = state["best"], float(state["seconds"])
            self.best = Best(float(best[self.score_name]), int(best["step"]), best["weights"])
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError):
            raise HeroError(
                f"the checkpoint {self.run.state_file} belongs to another model; "
                f"delete the folder {self.run.path} to start again."
            ) from None
        if state["step"] >= self.settings.steps or state.get("stopped"):
            with suppress(HeroError):
                read_weights(self.run.weights_file)
                return seconds
        self.save_best()  # the file is damaged, or may hold the weights of a later update, which is repeated
        return seconds

    def save(self, done: int, trainee: Trainee, seconds: float, stopped: bool) -> None:
        """The state after `done` updates, and on the disk before it the log up to there."""
        if not RANKS.is_first:
            return
        sync(self.run.log_file)
        state = {
            "step": done,
            "model": weights_of(trainee.model),
            "optimiser": trainee.optimizer.state_dict(),
            "strategy": trainee.strategy.state_dict(),
            "average": trainee.average.state_dict(),
            "best": {self.score_name: self.best.score, "step": self.best.step, "weights": self.best.weights},
            "seconds": seconds,
            "stopped": stopped,
        }
        save_state(self.run.state_file, state)

    def keep(self, done: int, trainee: Trainee) -> None:
        """A checkpoint for later analysis: the weights, and the lagged operator's if the strategy has one."""
        if not RANKS.is_first:
            return
        lagged = trainee.strategy.state_dict().get("lagged", {})
        weights = {**weights_of(trainee.model), **{f"{LAGGED}{name}": tensor for name, tensor in lagged.items()}}
        save_weights(self.run.kept_file(done), weights, {"step": done})

    def note_validation(self, done: int, model: nn.Module, score: float) -> bool:
        """Keep the best weights so far, the last if no score was finite; returns whether `train.patience` is over."""
        if score < self.best.score or self.best.weights is None or self.best.score == math.inf:
            weights = {name: tensor.detach().clone() for name, tensor in merged(model, weights_of(model)).items()}
            self.best = Best(score, done, weights)
            self.save_best()
        patience = self.settings.patience
        return patience > 0 and done - self.best.step >= patience * self.settings.validate_every

    def save_best(self) -> None:
        """`model.safetensors`, the weights that are evaluated and deployed."""
        if self.best.weights is not None and RANKS.is_first:
            about = {"step": self.best.step, self.score_name: str(self.best.score)}
            save_weights(self.run.weights_file, self.best.weights, about)


def check_same_start(run: Path, step: int) -> None:
    """Refuse processes that found another checkpoint than the first one, as without a shared folder."""
    expected = from_first(lambda: step)
    if step != expected:
        raise HeroError(
            f"process {RANKS.rank} finds {run} at update {step}, the first process at {expected}; put the "
            "folder of the runs where all machines see it."
        )
