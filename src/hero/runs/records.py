"""Results in a run folder as typed records: metrics.json, before.json and errors.npz."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field

from hero.errors import HeroError, NoPermissionError
from hero.files import is_bomb, is_whole, sealed_archive, write_atomic
from hero.method.measures import channel_vrmse
from hero.method.metrics import Scoring, by_channel, scoring_of, summarise
from hero.records import Record

BASELINES = ("persistence", "mean")
"""Predictions that need no operator: the first state, and the mean state of the training data."""


class TrainingCost(Record):
    """How a run was trained and how long it took."""

    steps: int
    seconds: float
    steps_per_second: float
    compiled: bool
    device: str
    threads: int
    stopped_early: bool = False


class RunIdentity(Record):
    """The run that a result belongs to."""

    run: str
    task: str
    backbone: str
    strategy: str
    seed: int


class Baseline(Record):
    """The errors of a prediction that needs no operator."""

    test: dict[str, float]
    channels: dict[str, dict[str, float]] = Field(default_factory=dict)


class Shortfall(NamedTuple):
    """A baseline that a run does not beat."""

    baseline: str
    step: int
    channel: str
    """Empty where channels are measured together."""
    error: float
    baseline_error: float


class Metrics(RunIdentity):
    """metrics.json: the evaluation of the best weights of a run."""

    remedy: ClassVar[str] = "`hero evaluate {folder}` writes it again."

    training: TrainingCost
    versions: dict[str, str]
    parameters: int
    best_step: int
    weights: str | None = None
    """SHA-256 of the model.safetensors that was measured."""
    trajectories: int
    val: dict[str, float]
    test: dict[str, float]

    channels: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Errors of each channel on the test set, where channels are measured one by one."""
    left_out: tuple[str, ...] = ()
    """Channels of weight 0, which no score and no warning counts."""
    baselines: dict[str, Baseline] = Field(default_factory=dict)
    """The errors of doing nothing on the test set: `persistence` and `mean`; empty in version 0.2."""

    @property
    def scoring(self) -> Scoring:
        return scoring_of(self.val)

    def over(self, scoring: Scoring, errors: Errors | None) -> Metrics:
        """The same in another scoring, from `errors`; without numbers where they are not there or measure otherwise."""
        if scoring == self.scoring:
            return self
        if errors is None or errors.measure != scoring.measure:
            return self.model_copy(update={"val": {}, "test": {}, "channels": {}, "baselines": {}})
        names, single = list(self.channels), errors.channel_baselines
        baselines = {
            name: Baseline(
                test=summarise({errors.measure: values}, scoring),
                channels=by_channel({channel_vrmse.name: single[name]} if name in single else {}, names, scoring),
            )
            for name, values in errors.baselines.items()
        }
        val = summarise({errors.measure: errors.val}, scoring)
        test, channels = summarise(errors.test, scoring), by_channel(errors.test, names, scoring)
        return self.model_copy(update={"val": val, "test": test, "channels": channels, "baselines": baselines})

    @property
    def shortfalls(self) -> list[Shortfall]:
        """Where doing nothing is as good: persistence at step 1, the mean state at the last; per channel if known."""
        found, scoring = [], self.scoring
        for name, baseline in self.baselines.items():
            step = 1 if name == "persistence" else scoring.steps
            key = scoring.at(step)
            own = self.channels or {"": self.test}
            base = baseline.channels or {"": baseline.test}
            found += [
                Shortfall(name, step, channel, own[channel][key], base[channel][key])
                for channel in own
                if channel not in self.left_out and key in own[channel] and channel in base
                if own[channel][key] >= base[channel][key]
            ]
        return found


class Before(Record):
    """before.json: the checkpoint that a run is fine-tuned from, measured on the run's data."""

    remedy: ClassVar[str] = "delete it and repeat `hero finetune`."

    checkpoint: str
    init_hash: str
    val: dict[str, float]
    test: dict[str, float]


@dataclass(frozen=True)
class Errors:
    """errors.npz: measures of the test rollouts, each (trajectory, step), and scores of validation and baselines.

    The score is the measure that rollouts are judged by, nrmse or vrmse. A measure of single channels has a third axis.
    """

    test: Mapping[str, np.ndarray]
    val: np.ndarray
    """The score of the validation rollouts."""
    baselines: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The score of doing nothing on the test set, by name."""
    measure: Literal["nrmse", "vrmse"] = "nrmse"
    channel_baselines: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Errors of single channels, (trajectory, step, channel), where channels are measured one by one."""

    @property
    def score(self) -> np.ndarray:
        return self.test[self.measure]

    @property
    def has_channels(self) -> bool:
        return channel_vrmse.name in self.test

    def of_channel(self, channel: int) -> np.ndarray:
        """The score of one channel where channels are measured one by one, else of all together."""
        return self.test[channel_vrmse.name][..., channel] if self.has_channels else self.score

    @property
    def correlation(self) -> np.ndarray:
        return self.test["correlation" if self.measure == "nrmse" else "anomaly_correlation"]

    @classmethod
    def read(cls, path: Path, remedy: str = "") -> Self:
        """The arrays of `path`; HeroError if it is missing or damaged."""
        try:
            arrays = {name: np.asarray(values, dtype=np.float64) for name, values in read_arrays(path).items()}
            measure: Literal["nrmse", "vrmse"] = "vrmse" if "val_vrmse" in arrays else "nrmse"
            val = arrays.pop(f"val_{measure}")
            baselines = {name: arrays.pop(key) for name in BASELINES if (key := f"{name}_{measure}") in arrays}
            single = {name: arrays.pop(key) for name in BASELINES if (key := _of_channels(name)) in arrays}
        except (ValueError, KeyError):
            remedy = remedy or f"`hero evaluate {path.parent.name}` writes it again."
            raise HeroError(f"{path} is missing or damaged; {remedy}") from None
        return cls(arrays, val, baselines, measure, single)

    def write(self, path: Path) -> Path:
        baselines = {f"{name}_{self.measure}": values for name, values in self.baselines.items()}
        baselines |= {_of_channels(name): values for name, values in self.channel_baselines.items()}
        return write_arrays(path, {f"val_{self.measure}": self.val, **baselines, **self.test})


def _of_channels(baseline: str) -> str:
    return f"{baseline}_{channel_vrmse.name}"


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    """A compressed .npz file with a checksum, written atomically."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return write_atomic(path, sealed_archive(buffer))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a .npz file; ValueError if it is missing or damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(info.file_size for info in archive.infolist())
        if not is_whole(path) or is_bomb(unpacked, path.stat().st_size):
            raise ValueError(f"{path} is not as it was written")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: np.asarray(values) for name, values in arrays.items()}
    except PermissionError:
        raise NoPermissionError(path) from None
    except Exception as error:  # what a file that misleads zipfile and numpy may raise
        raise ValueError(f"{path} is missing or damaged") from error
