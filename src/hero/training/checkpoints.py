"""The checkpoints of a run while it trains: the last state, the best weights, and weights kept for analysis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from hero.console import say
from hero.errors import HeroError
from hero.files import sync
from hero.method.metrics import Scoring
from hero.models.lora import merged
from hero.parallel import from_first
from hero.ranks import RANKS, first_only
from hero.runs.checkpoint import LAGGED, last_state, read_weights, save_state, save_weights, weights_of
from hero.runs.log import score_name
from hero.runs.stored import StoredRun
from hero.strategies import TrainSettings
from hero.training.journal import Journal
from hero.training.update import Trainee


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
        every = self.settings.keep_every
        if every and not all(self.run.kept_file(k).is_file() for k in range(every, state["step"] + 1, every)):
            return None
        if journal.ends_before(state["step"]):
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
        finished = state["step"] >= self.settings.steps or state.get("stopped")
        if not (finished and self._has_best_file()):
            self.save_best()  # the file may hold the weights of a later update, which is repeated
        return seconds

    def _has_best_file(self) -> bool:
        try:
            read_weights(self.run.weights_file)
        except HeroError:
            return False
        return True

    @first_only
    def save(self, done: int, trainee: Trainee, seconds: float, stopped: bool) -> None:
        """The state after `done` updates, and on the disk before it the log up to there."""
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

    @first_only
    def keep(self, done: int, trainee: Trainee) -> None:
        """A checkpoint for later analysis: the weights, and the lagged operator's if the strategy has one."""
        lagged = trainee.strategy.state_dict().get("lagged", {})
        weights = {**weights_of(trainee.model), **{f"{LAGGED}{name}": tensor for name, tensor in lagged.items()}}
        save_weights(self.run.kept_file(done), weights, {"step": done})

    def note_validation(self, done: int, model: nn.Module, score: float) -> None:
        """Keep the weights if they are the best so far, or if no score was finite."""
        if score < self.best.score or self.best.weights is None or self.best.score == math.inf:
            weights = {name: tensor.detach().clone() for name, tensor in merged(model, weights_of(model)).items()}
            self.best = Best(score, done, weights)
            self.save_best()

    def out_of_patience(self, done: int) -> bool:
        """Whether `train.patience` validations have passed since the best one."""
        patience = self.settings.patience
        return patience > 0 and done - self.best.step >= patience * self.settings.validate_every

    @first_only
    def save_best(self) -> None:
        """`model.safetensors`, the weights that are evaluated and deployed."""
        if self.best.weights is not None:
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
