"""How a reader is declared, and how a file is opened by its first bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hero.data.recording import Recording


@dataclass(frozen=True)
class Reader:
    """An entry of the registry."""

    title: str
    """Display name."""
    container: str
    """Kind of file: hdf5, mat, npy, npz, torch, netcdf, zarr, folder or name."""
    recognises: Callable[[Any], bool]
    """Whether the opened file has this layout."""
    read: Callable[[Path, Any, str], Recording]
    """(path, opened file, layout word) -> the recording, which opens the file again when it reads."""


@contextlib.contextmanager
def opened_container(path: Path) -> Iterator[tuple[str, Any]]:
    """The kind of a file, from its first bytes, and the file opened: an h5py.File, a mapping of arrays, a folder."""
    raise NotImplementedError
