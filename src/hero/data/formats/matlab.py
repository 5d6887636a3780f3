"""MATLAB files: the Navier-Stokes data of FNO, and the single solutions of papers on PINNs and SINDy.

Files of version 7.3 are HDF5 with the axes in reverse; both kinds are shown as MATLAB shows them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import h5py
import numpy as np
from scipy.io import loadmat, whosmat

from hero.data.files.handles import read_hdf5
from hero.data.files.recording import Recording
from hero.data.formats.arrays import FileArray, describe, layout_of, of_whole, recording_of
from hero.data.formats.claims import check_unpacked
from hero.data.formats.named import coordinates_of
from hero.errors import HeroError

TYPES = {f"{sign}int{8 * size}": f"{sign or 'i'}{size}" for sign in ("", "u") for size in (1, 2, 4, 8)}
TYPES |= {"double": "f8", "single": "f4"}
STATES = ("usol", "uu", "u", "U", "sol", "data")


def open_mat(path: Path) -> dict[str, FileArray]:
    """The arrays of numbers of a file of MATLAB 5 to 7.2 by name; none is read."""
    listed = [(name, tuple(shape), np.dtype(TYPES[kind])) for name, shape, kind in whosmat(path) if kind in TYPES]
    for name, shape, dtype in listed:
        check_unpacked(path, name, math.prod(shape) * dtype.itemsize)
    return {name: FileArray(partial(of_whole, _variable), path, name, shape, dtype) for name, shape, dtype in listed}


def _variable(path: Path, name: str) -> np.ndarray:
    return loadmat(path, variable_names=[name])[name]


def is_matlab73(file: h5py.File) -> bool:
    """Every variable has its class as an attribute."""
    named = [item for name, item in file.items() if not str(name).startswith("#")]
    return bool(named) and all(item is not None and "MATLAB_class" in item.attrs for item in named)


def _reversed(path: Path, name: str, index: tuple[int | slice, ...]) -> np.ndarray:
    """A part of a dataset with its axes in reverse; MATLAB writes complex numbers as pairs."""
    values = read_hdf5(path, name, index[::-1]).T
    return values["real"] + 1j * values["imag"] if values.dtype.names == ("real", "imag") else values


def read_matlab73(path: Path, file: h5py.File, layout: str) -> Recording:
    """The numeric variables; structs, cells and texts are left out."""
    variables: dict[str, FileArray] = {}
    for name, item in file.items():
        if not isinstance(item, h5py.Dataset) or item.attrs["MATLAB_class"] == b"char" or "MATLAB_empty" in item.attrs:
            continue
        pairs = item.dtype.names == ("real", "imag")
        if pairs or item.dtype.kind in "fiu":
            dtype = np.dtype(complex) if pairs else item.dtype
            variables[name] = FileArray(_reversed, path, name, item.shape[::-1], dtype)
    return read_matlab(path, variables, layout)


def read_matlab(path: Path, variables: Mapping[str, FileArray], layout: str) -> Recording:
    """The trajectories among variables of a MATLAB workspace, whose axes stand in MATLAB's order."""
    name = _states(path, variables)
    array = variables[name]
    coordinates = coordinates_of(variables, skip={name})
    lengths = {letter: len(points) for letter, points in coordinates.items()}
    if not layout and _is_fno(variables, array.shape, lengths):
        layout = "bxyt"
    layout = layout_of(layout, array.shape, lengths, name=name, path=path)
    notes = [f"The axes of {name} {array.shape} are read as {layout}."]
    first = array[tuple(slice(0, 1) for _ in layout)]  # the listing of a file does not say which numbers are complex
    if np.iscomplexobj(first):
        notes.append(f"{name} is complex with an imaginary part that is rounding; its real part is taken.")
    if layout == "bxyt" and "a" in variables:
        notes.append("a, the states before the first ones of u, is left out, because their time is not in the file.")
    recording = recording_of("matlab", (path,), {"": array}, layout, coordinates=coordinates, notes=tuple(notes))
    if np.iscomplexobj(first):
        recording.trajectories[0].read(slice(None), [0])  # refuses an imaginary part that matters
    return recording


def _states(path: Path, variables: Mapping[str, FileArray]) -> str:
    arrays = {name: array for name, array in variables.items() if sum(n > 1 for n in array.shape) > 1}
    found = [name for name in STATES if name in arrays] or (list(arrays) if len(arrays) == 1 else [])
    if not found:
        raise HeroError(
            f"{path} is a MATLAB workspace with {describe(variables) or 'no array of numbers'}, and none of them is "
            "known as the states; save the states as usol, with x and t."
        )
    return found[0]


def _is_fno(variables: Mapping[str, FileArray], shape: tuple[int, ...], lengths: Mapping[str, int]) -> bool:
    """u (N, H, W, T), known by its initial states a (N, H, W), its times, or a square grid in the middle."""
    if len(shape) != 4:
        return False
    starts = "a" in variables and tuple(variables["a"].shape) == tuple(shape[:3])
    return starts or lengths.get("t") == shape[3] or (not lengths and shape[1] == shape[2] != shape[3])
