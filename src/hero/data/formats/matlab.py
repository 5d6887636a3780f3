"""MATLAB files: the Navier-Stokes data of FNO, and the single solutions of papers on PINNs and SINDy.

Files of version 7.3 are HDF5 with the axes in reverse; both kinds are shown as MATLAB shows them.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import h5py
import numpy as np
from scipy.io import loadmat, whosmat

from hero.data.files.handles import read_hdf5
from hero.data.files.recording import Channel, Recording
from hero.data.formats.arrays import FileArray, of_whole
from hero.data.formats.claims import check_unpacked
from hero.data.formats.hdf5.datasets import datasets_in
from hero.data.formats.named import STATES, coordinates_of, read_named

TYPES = {f"{sign}int{8 * size}": f"{sign or 'i'}{size}" for sign in ("", "u") for size in (1, 2, 4, 8)}
TYPES |= {"double": "f8", "single": "f4"}
COMPRESSED = 15
"""Type of an element of a file that is packed."""
READ = 1 << 20
"""Bytes of a packed element that are looked at together."""


def open_mat(path: Path) -> dict[str, FileArray]:
    """The arrays of numbers of a file of MATLAB 5 to 7.2 by name, also those in structs; none of the others is read."""
    listed = whosmat(path)
    arrays: dict[str, FileArray] = {}
    for name, shape, kind in listed:
        if kind in TYPES:
            dtype = np.dtype(TYPES[kind])
            check_unpacked(path, name, math.prod(shape) * dtype.itemsize)
            arrays[name] = FileArray(partial(of_whole, _variable), path, name, tuple(shape), dtype)
    structs = [name for name, shape, kind in listed if kind == "struct" and math.prod(shape) == 1]
    if structs:
        _check_packed(path)
    for name, values in [item for struct in structs for item in _fields(struct, _variable(path, struct)).items()]:
        last = name.rpartition(".")[2]
        shown = name if last in arrays else last
        arrays[shown] = FileArray(partial(of_whole, _variable), path, name, values.shape, values.dtype)
    return arrays


def _variable(path: Path, name: str) -> np.ndarray:
    """A variable, or a field of a struct as in run.velocity."""
    name, *fields = name.split(".")
    values = loadmat(path, variable_names=[name])[name]
    for field in fields:
        values = values[field].item()
    return values


def _fields(name: str, values: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays of numbers in a struct and in structs below it."""
    found: dict[str, np.ndarray] = {}
    for field in values.dtype.names or ():
        value = values[field].item() if values.size == 1 else None
        if isinstance(value, np.ndarray) and value.dtype.names:
            found |= _fields(f"{name}.{field}", value)
        elif isinstance(value, np.ndarray) and value.dtype.kind in "fiuc":
            found[f"{name}.{field}"] = value
    return found


def _check_packed(path: Path) -> None:
    """Refuse a file whose packed variables hold more than the memory: the list of a file has no sizes of structs."""
    with path.open("rb") as file:
        order: Literal["little", "big"] = "little" if file.read(128)[126:] == b"IM" else "big"
        while len(tag := file.read(8)) == 8:
            kind, size = (int.from_bytes(tag[i : i + 4], order) for i in (0, 4))
            after, unpacked, stream = file.tell() + size, 0, zlib.decompressobj()
            while kind == COMPRESSED and file.tell() < after and (part := file.read(min(READ, after - file.tell()))):
                while part:
                    unpacked += len(stream.decompress(part, READ))
                    part = stream.unconsumed_tail
                check_unpacked(path, "a struct", unpacked)
            file.seek(after)


def is_matlab73(file: h5py.File) -> bool:
    """Every variable has its class as an attribute."""
    named = [item for name, item in file.items() if not str(name).startswith("#")]
    return bool(named) and all(item is not None and "MATLAB_class" in item.attrs for item in named)


def _reversed(path: Path, name: str, index: tuple[int | slice, ...]) -> np.ndarray:
    """A part of a dataset with its axes in reverse; MATLAB writes complex numbers as pairs."""
    values = read_hdf5(path, name, index[::-1]).T
    return values["real"] + 1j * values["imag"] if values.dtype.names == ("real", "imag") else values


def read_matlab73(path: Path, file: h5py.File, layout: str) -> Recording:
    """The numeric variables, also those in structs; cells and texts are left out."""
    found = {name: item for name, item in datasets_in(file).items() if not name.startswith("#")}
    last = [name.rpartition("/")[2] for name in found]
    variables: dict[str, FileArray] = {}
    for (name, item), base in zip(found.items(), last, strict=True):
        if item.attrs.get("MATLAB_class") == b"char" or "MATLAB_empty" in item.attrs:
            continue
        pairs = item.dtype.names == ("real", "imag")
        if pairs or item.dtype.kind in "fiu":
            dtype = np.dtype(complex) if pairs else item.dtype
            shown = base if last.count(base) == 1 else name
            variables[shown] = FileArray(_reversed, path, name, item.shape[::-1], dtype)
    return read_matlab(path, variables, layout)


def read_matlab(path: Path, variables: Mapping[str, FileArray], layout: str) -> Recording:
    """The trajectories among variables of a MATLAB workspace, whose axes stand in MATLAB's order."""
    is_fno = not layout and _is_fno(variables)
    kept = {n: _with_true_type(variable) for n, variable in variables.items() if not (is_fno and n == "a")}
    recording = read_named(path, kept, "bxyt" if is_fno else layout, form="matlab")
    note = "a, the states before the first ones of u, is left out, because their time is not in the file."
    return replace(
        recording,
        channels=(Channel("u"),) if len(recording.channels) == 1 else recording.channels,
        notes=(*recording.notes, note) if len(kept) < len(variables) else recording.notes,
    )


def _with_true_type(variable: FileArray) -> FileArray:
    """The variable; the list of a file does not say which numbers are complex."""
    if sum(n > 1 for n in variable.shape) < 2 or variable.dtype.kind != "f":
        return variable
    return replace(variable, dtype=variable[(slice(0, 1),) * len(variable.shape)].dtype)


def _is_fno(variables: Mapping[str, FileArray]) -> bool:
    """u (N, H, W, T), known by its initial states a (N, H, W), its times, or a square grid in the middle."""
    states = [variables[name] for name in STATES if name in variables and len(variables[name].shape) == 4]
    if not states:
        return False
    shape, lengths = states[0].shape, {letter: len(points) for letter, points in coordinates_of(variables).items()}
    starts = "a" in variables and tuple(variables["a"].shape) == tuple(shape[:3])
    return starts or lengths.get("t") == shape[3] or (not lengths and shape[1] == shape[2] != shape[3])
