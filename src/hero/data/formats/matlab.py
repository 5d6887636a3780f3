"""MATLAB files: the Navier-Stokes data of FNO, and the single solutions of papers on PINNs and SINDy.

Files of version 7.3 are HDF5 with the axes in reverse; both kinds are shown as MATLAB shows them.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np

from hero.data.files.handles import check_unpacked, read_hdf5
from hero.data.files.recording import Channel, Recording
from hero.data.formats.arrays import FileArray
from hero.data.formats.hdf5.layouts import datasets_in, shortest_names
from hero.data.formats.named import STATES, coordinates_of, read_named

COMPRESSED = 15  # type of an element of a file that is packed
READ = 1 << 20  # bytes of a packed element that are looked at together


def read_mat(path: Path) -> dict[str, np.ndarray]:
    """The arrays of numbers of a file of MATLAB 5 to 7.2 by name, also those in structs."""
    from scipy.io import loadmat, whosmat  # half a second, which only these files need

    listed = whosmat(path)
    check_unpacked(path, "its arrays", 8 * sum(math.prod(shape) for _, shape, _ in listed))
    if any(kind == "struct" for *_, kind in listed):
        _check_packed(path)
    arrays: dict[str, np.ndarray] = {}
    names = [name for name, _, kind in listed if kind != "logical"]
    for name, value in loadmat(path, variable_names=names).items():
        for full, values in _numbers(name, value):
            last = full.rpartition(".")[2]
            arrays[full if last in arrays else last] = values
    return arrays


def _numbers(name: str, value: Any) -> Iterator[tuple[str, np.ndarray]]:
    """An array of numbers, or those in a struct, as run.velocity."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiuc":
        yield name, value
    elif isinstance(value, np.ndarray) and value.size == 1:
        for field in value.dtype.names or ():
            yield from _numbers(f"{name}.{field}", value[field].item())


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


def read_matlab73(path: Path, file: h5py.File, layout: str) -> Recording:
    """The numeric variables with their axes in reverse, also those in structs; complex numbers are stored as pairs."""

    def read(name: str, index: tuple[slice, ...]) -> np.ndarray:
        values = read_hdf5(path, name, index[::-1]).T
        return values["real"] + 1j * values["imag"] if values.dtype.names else values

    variables: dict[str, FileArray] = {}
    for name, item in datasets_in(file).items():
        other = name.startswith("#") or item.attrs.get("MATLAB_class") == b"char" or "MATLAB_empty" in item.attrs
        dtype = np.dtype(complex) if item.dtype.names == ("real", "imag") else item.dtype
        if not other and dtype.kind in "fiuc":
            variables[name] = FileArray(partial(read, name), path, name, item.shape[::-1], dtype)
    return read_matlab(path, shortest_names(variables), layout)


def read_matlab(path: Path, variables: Mapping[str, FileArray], layout: str) -> Recording:
    """The trajectories among variables of a MATLAB workspace, whose axes stand in MATLAB's order."""
    is_fno = not layout and _is_fno(variables)
    kept = {name: variable for name, variable in variables.items() if not (is_fno and name == "a")}
    recording = read_named(path, kept, "bxyt" if is_fno else layout, form="matlab")
    note = "a, the states before the first ones of u, is left out, because their time is not in the file."
    return replace(
        recording,
        channels=(Channel("u"),) if len(recording.channels) == 1 else recording.channels,
        notes=(*recording.notes, note) if len(kept) < len(variables) else recording.notes,
    )


def _is_fno(variables: Mapping[str, FileArray]) -> bool:
    """u (N, H, W, T), known by its initial states a (N, H, W), its times, or a square grid in the middle."""
    states = [variables[name] for name in STATES if name in variables and len(variables[name].shape) == 4]
    if not states:
        return False
    shape, lengths = states[0].shape, {letter: len(points) for letter, points in coordinates_of(variables).items()}
    starts = "a" in variables and variables["a"].shape == shape[:3]
    return starts or lengths.get("t") == shape[3] or (not lengths and shape[1] == shape[2] != shape[3])
