"""MATLAB files: the Navier-Stokes data of FNO, and the single solutions of papers on PINNs and SINDy."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import loadmat, whosmat

from hero.data.formats.arrays import axes_of, channels_of, describe, layout_of, length, slabs, time_step
from hero.data.formats.named import coordinates_of
from hero.data.formats.claims import check_unpacked
from hero.data.recording import Recording
from hero.errors import HeroError

TYPES = {
    "double": "f8",
    "single": "f4",
    **{f"int{bits}": f"i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits // 8}" for bits in (8, 16, 32, 64)},
}
STATES = ("usol", "uu", "u", "U", "sol", "data")


@dataclass(frozen=True)
class MatArray:
    """A variable of a file of MATLAB 5 to 7.2, which scipy reads whole."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __getitem__(self, index: Any) -> np.ndarray:
        return np.array(_loaded(self.path, self.name, self.path.stat().st_mtime_ns)[index])


@functools.lru_cache(maxsize=2)
def _loaded(path: Path, name: str, changed: int) -> np.ndarray:
    return loadmat(path, variable_names=[name])[name]


@contextlib.contextmanager
def opened_mat(path: Path) -> Iterator[dict[str, MatArray]]:
    """The arrays of numbers by name; none is read."""
    try:
        listed = whosmat(path)
    except Exception as error:  # scipy raises what its parser meets in a damaged file
        raise HeroError(f"{path} is a damaged MATLAB file ({error}); save it again.") from error
    size = path.stat().st_size
    arrays = {}
    for name, shape, kind in listed:
        if kind in TYPES:
            check_unpacked(path, name, math.prod(shape) * np.dtype(TYPES[kind]).itemsize, size)
            arrays[name] = MatArray(path, name, tuple(shape), np.dtype(TYPES[kind]))
    yield arrays


def read_matlab(path: Path, variables: Mapping[str, Any], layout: str) -> Recording:
    """The trajectories among variables of a MATLAB workspace, whose axes stand in MATLAB's order.

    Each variable has `shape`, `dtype` and slices, which are still read after this call returns.
    """
    name = _states(path, variables)
    array = variables[name]
    coordinates = coordinates_of(variables, skip={name})
    lengths = {letter: len(points) for letter, points in coordinates.items()}
    if not layout and _is_fno(variables, array.shape, lengths):
        layout = "bxyt"
    layout = layout_of(layout, array.shape, lengths, name=name, path=path)
    dt, notes = time_step(coordinates.get("t"))
    trajectories = slabs(array, layout)
    sample = np.asarray(array[tuple(slice(0, 1) if letter == "b" else slice(None) for letter in layout)])
    if np.iscomplexobj(sample):
        trajectories[0].read(slice(None), [0])  # refuses an imaginary part that matters
        notes = (*notes, f"{name} is complex with an imaginary part that is rounding; its real part is taken.")
    if layout == "bxyt" and "a" in variables:
        notes = (
            *notes,
            "a, the states before the first ones of u, is left out, because their time is not in the file.",
        )
    return Recording(
        format="matlab",
        files=(path,),
        channels=channels_of("u", length(array, layout, "c")),
        axes=axes_of(array, layout, coordinates),
        dt=dt,
        trajectories=trajectories,
        notes=(f"The axes of {name} {tuple(array.shape)} are read as {layout}.", *notes),
    )


def _states(path: Path, variables: Mapping[str, Any]) -> str:
    arrays = {name: array for name, array in variables.items() if sum(n > 1 for n in array.shape) > 1}
    found = [name for name in STATES if name in arrays] or (list(arrays) if len(arrays) == 1 else [])
    if not found:
        raise HeroError(
            f"{path} is a MATLAB workspace with {describe(variables) or 'no array of numbers'}, and none of them is "
            "known as the states; save the states as usol, with x and t."
        )
    return found[0]


def _is_fno(variables: Mapping[str, Any], shape: tuple[int, ...], lengths: Mapping[str, int]) -> bool:
    """u (N, H, W, T), known by its initial states a (N, H, W), its times, or a square grid in the middle."""
    if len(shape) != 4:
        return False
    starts = "a" in variables and tuple(variables["a"].shape) == tuple(shape[:3])
    return starts or lengths.get("t") == shape[3] or (not lengths and shape[1] == shape[2] != shape[3])
