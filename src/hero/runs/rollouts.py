"""The test rollouts that are drawn, as files of a run folder, which pictures, page and animation read.

`rollout.npz` is the typical one of the run. `rollout_first.npz` is of the first test trajectory, the same for all runs
on the same data, so that they can be seen side by side.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import Tensor

from hero.errors import HeroError
from hero.method.domain.transform import shell_power
from hero.runs.records import read_arrays, write_arrays

FILE, FIRST_FILE = "rollout.npz", "rollout_first.npz"


class Rollout(NamedTuple):
    """One test trajectory and its prediction from rollout step 1 on, float32; space is 2D for a 3D task.

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
    run: Path, initial: Tensor, truth: Tensor, prediction: Tensor, trajectory: int, file: str = FILE
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


def read_rollout(run: Path, file: str = FILE) -> Rollout | None:
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
    space = tuple(range(1, trajectory.ndim - 1))
    found = []
    for state in trajectory.astype(np.float64):
        mean = np.where(valid, state, 0).sum(axis=space, keepdims=True) / valid.sum(axis=space, keepdims=True)
        lost = ~np.isfinite(mean)
        power, count = shell_power(np.where(valid, np.where(lost, 0, state), mean), (True,) * len(space))
        found.append(np.where(lost.reshape(-1, 1), np.inf, power / np.maximum(count, 1))[:, 1:])
    return np.stack(found)
