"""MATLAB 7.3: HDF5 with the axes in reverse, shown as MATLAB shows them and read by the reader of older files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hero.data.handles import opened_hdf5
from hero.data.recording import Recording


@dataclass(frozen=True)
class Reversed:
    """A dataset with its axes in reverse, which stays in its file until it is sliced."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __getitem__(self, index: Any) -> np.ndarray:
        parts = index if isinstance(index, tuple) else (index,)
        if Ellipsis in parts:
            here = parts.index(Ellipsis)
            parts = parts[:here] + (slice(None),) * (len(self.shape) - len(parts) + 1) + parts[here + 1 :]
        parts += (slice(None),) * (len(self.shape) - len(parts))
        with opened_hdf5(self.path) as file:
            values = np.asarray(file[self.name][parts[::-1]]).T
        # MATLAB writes complex numbers as pairs.
        return values["real"] + 1j * values["imag"] if values.dtype.names == ("real", "imag") else values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[...], dtype=dtype)


def is_matlab73(file: h5py.File) -> bool:
    """Every variable has its class as an attribute."""
    named = [item for name, item in file.items() if not str(name).startswith("#")]
    return bool(named) and all(item is not None and "MATLAB_class" in item.attrs for item in named)


def read_matlab73(path: Path, file: h5py.File, layout: str) -> Recording:
    """The numeric variables; structs, cells and texts are left out."""
    from hero.data.formats.matlab import read_matlab

    variables = {}
    for name, item in file.items():
        complex_pair = isinstance(item, h5py.Dataset) and item.dtype.names == ("real", "imag")
        numeric = isinstance(item, h5py.Dataset) and (item.dtype.kind in "fiu" or complex_pair)
        if numeric and item.attrs["MATLAB_class"] != b"char" and "MATLAB_empty" not in item.attrs:
            dtype = np.dtype(complex) if complex_pair else item.dtype
            variables[name] = Reversed(path, name, item.shape[::-1], dtype)
    return read_matlab(path, variables, layout)
