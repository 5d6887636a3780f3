"""Results in a run folder: metrics.json, before.json, errors.npz, and the test rollouts that pictures show."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field

from hero.errors import HeroError, NoPermissionError
from hero.files import is_bomb, is_whole, sealed_archive, write_atomic
from hero.method.measures import channel_vrmse
from hero.method.metrics import Scoring, by_channel, scoring_of, summarise
from hero.records import Record

if TYPE_CHECKING:
    from torch import Tensor

ROLLOUT_FILE, FIRST_ROLLOUT_FILE = "rollout.npz", "rollout_first.npz"
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
    channel: str  # empty where channels are measured together
    error: float
    baseline_error: float


class Metrics(RunIdentity):
    """metrics.json: the evaluation of the best weights of a run."""

    remedy: ClassVar[str] = "`hero evaluate {folder}` writes it again."

    training: TrainingCost
    versions: dict[str, str]
    parameters: int
    best_step: int
    weights: str | None = None  # SHA-256 of the model.safetensors that was measured
    trajectories: int
    val: dict[str, float]
    test: dict[str, float]

    channels: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Errors of each channel on the test set, where channels are measured one by one."""
    left_out: tuple[str, ...] = ()  # channels of weight 0, which no score and no warning counts
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
    val: np.ndarray  # the score of the validation rollouts
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


class Rollout(NamedTuple):
    """One test trajectory and its prediction from rollout step 1 on, float32; space is 2D for a 3D task.

    `rollout.npz` is the typical one of a run, `rollout_first.npz` of the first test trajectory, for views of several
    runs side by side.

    Of a 3D field the slice `slice` along the last axis is kept. The spectra belong to the whole field; they are
    infinite where the prediction has left the finite range. Masked points are NaN, and count as the mean of the others
    in a spectrum.
    """

    initial: np.ndarray  # (channel, *space)
    truth: np.ndarray  # (time, channel, *space)
    prediction: np.ndarray  # (time, channel, *space)
    trajectory: int
    slice: int | None
    truth_spectrum: np.ndarray  # (time, channel, wavenumber from 1)
    prediction_spectrum: np.ndarray  # (time, channel, wavenumber from 1)

    @property
    def valid(self) -> np.ndarray:
        """True where there is a value, (channel, *space)."""
        return np.isfinite(self.truth).all(axis=0)


def write_rollout(
    run: Path, initial: Tensor, truth: Tensor, prediction: Tensor, trajectory: int, file: str = ROLLOUT_FILE
) -> Path:
    """Store the whole fields `initial` (channel, *space) and `truth`, `prediction` (time, channel, *space)."""
    arrays = {
        name: x.detach().cpu().float().numpy()
        for name, x in (("initial", initial), ("truth", truth), ("prediction", prediction))
    }
    valid = np.isfinite(arrays["truth"]).all(axis=0)
    spectra = {f"{name}_spectrum": radial_spectra(arrays[name], valid) for name in ("truth", "prediction")}
    numbers = {"trajectory": trajectory}
    if initial.ndim == 4:  # a whole 3D rollout would take tens of megabytes
        numbers["slice"] = initial.shape[-1] // 2
        arrays = {name: field[..., numbers["slice"]] for name, field in arrays.items()}
    return write_arrays(run / file, arrays | spectra | {name: np.array(value) for name, value in numbers.items()})


def read_rollout(run: Path, file: str = ROLLOUT_FILE) -> Rollout | None:
    """A drawn rollout of a run, or None if the run was not evaluated."""
    path = run / file
    if not path.is_file():
        return None
    try:
        stored = read_arrays(path)
        spectra = [stored[f"{name}_spectrum"] for name in ("truth", "prediction")]
        return Rollout(
            stored["initial"],
            stored["truth"],
            stored["prediction"],
            int(stored["trajectory"]),
            int(stored["slice"]) if "slice" in stored else None,
            *(x[:, None] if x.ndim == 2 else x for x in spectra),  # version 0.2 kept the first channel alone
        )
    except (ValueError, KeyError, TypeError):
        raise HeroError(f"{path} is damaged; `hero evaluate {run.name}` writes it again.") from None


def radial_spectra(trajectory: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """P(k) = mean of |û_κ|² over the modes with k − ½ ≤ |κ| < k + ½, k = 1 .. N/2, of (time, channel, *space).

    û is divided by the grid size.
    """
    from hero.method.domain.transform import shell_power  # which loads torch

    space = tuple(range(1, trajectory.ndim - 1))
    found = []
    for state in trajectory.astype(np.float64):
        mean = np.where(valid, state, 0).sum(axis=space, keepdims=True) / valid.sum(axis=space, keepdims=True)
        lost = ~np.isfinite(mean)
        power, count = shell_power(np.where(valid, np.where(lost, 0, state), mean), (True,) * len(space))
        found.append(np.where(lost.reshape(-1, 1), np.inf, power / np.maximum(count, 1))[:, 1:])
    return np.stack(found)
