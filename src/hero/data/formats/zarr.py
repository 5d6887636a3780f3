"""Zarr stores, as folders or zip files: through xarray where dimensions have names, else as arrays by name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hero.data.formats.arrays import describe
from hero.data.formats.named import read_named
from hero.data.formats.xarray import describe_dataset, kept_dataset, read_xarray, store_of
from hero.data.recording import Recording
from hero.errors import HeroError


def is_zarr(path: Path) -> bool:
    """Whether a folder is a Zarr store."""
    return any((path / name).is_file() for name in ("zarr.json", ".zgroup", ".zarray"))


@dataclass(frozen=True)
class ZarrArray:
    """An array of a store, "" where the store is the array; opened when it is read."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __getitem__(self, index: Any) -> np.ndarray:
        with _damage_reported(self.path):
            opened = _opened(self.path)
            return np.asarray((opened[self.name] if self.name else opened)[index])


@contextlib.contextmanager
def _damage_reported(path: Path) -> Iterator[None]:
    try:
        yield
    except HeroError:
        raise
    except Exception as error:  # zarr raises what its parser meets
        raise HeroError(f"{path} is a Zarr store that cannot be read ({error}); write it again.") from error


def _opened(path: Path) -> Any:
    store = store_of(path)
    import zarr

    return zarr.open(store, mode="r")


@contextlib.contextmanager
def opened_zarr(path: Path) -> Iterator[Any]:
    """An xarray.Dataset, or a mapping of arrays where dimensions have no names."""
    with _damage_reported(path):
        opened = _opened(path)
        arrays = {"": opened} if hasattr(opened, "shape") else dict(opened.arrays())
        named = "" not in arrays and all(_has_names(array) for array in arrays.values())
        shapes = {name: ZarrArray(path, name, array.shape, np.dtype(array.dtype)) for name, array in arrays.items()}
    yield kept_dataset(path) if named and arrays else shapes


def _has_names(array: Any) -> bool:
    return "_ARRAY_DIMENSIONS" in array.attrs or getattr(array.metadata, "dimension_names", None) is not None


def describe_zarr(content: Any) -> str:
    """The variables or arrays of a store."""
    return describe(content) if isinstance(content, dict) else describe_dataset(content)


def read_zarr(path: Path, content: Any, layout: str) -> Recording:
    """The trajectories of a store."""
    if not isinstance(content, dict):  # a dataset is a mapping too
        return read_xarray(path, content, layout)
    return read_named(path, {name or "u": array for name, array in content.items()}, layout, form="zarr")
