"""Arrays of a Python session as a file: stored once, named by their content, so that resuming finds them."""

from __future__ import annotations

import functools
import hashlib
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from hero.errors import HeroError
from hero.files import replacing

LAYOUT = "btcxyz"
GIVEN = re.compile(r"given-([0-9a-f]{12})\.(?:np[yz]|nc)")
STATES = ("train", "val", "test", "u")


def is_array(data: object) -> bool:
    """Whether `data` is an array, a tensor, or several by name."""
    return isinstance(data, np.ndarray | Tensor) or (
        isinstance(data, Mapping) and all(isinstance(part, np.ndarray | Tensor) for part in data.values())
    )


def as_array(data: np.ndarray | Tensor) -> np.ndarray:
    """A C-ordered array; floating-point numbers in float32, as training reads them."""
    if isinstance(data, Tensor):
        if data.is_meta or data.is_sparse:
            kind = "on the device meta" if data.is_meta else "of a sparse tensor"
            raise HeroError(f"`data` {kind} cannot be read; give a dense tensor on the CPU or a GPU.")
        data = (data.float() if data.is_floating_point() else data).detach().cpu().numpy()
    array = data
    if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
        raise HeroError(f"`data` of type {array.dtype} are not real numbers; give an array of floats.")
    return np.ascontiguousarray(array, dtype=np.float32)


def store_arrays(data: Any, folder: Path) -> dict[str, Any]:
    """The settings of data handed over as (trajectory, time, channel, *space), which are stored in `folder`.

    A dictionary has the splits train, val and test, or `u` with `mu`, `x`, `t` and so on as in an .npz file.
    """
    several = isinstance(data, Mapping)
    arrays = {name: as_array(part) for name, part in (data.items() if several else [("u", data)])}
    states = [part for name, part in arrays.items() if name in STATES]
    if not states:
        raise HeroError(f"`data` has the arrays {', '.join(arrays)}; name them train, val and test, or u.")
    for part in states:
        if not 4 <= part.ndim <= 6 or 0 in part.shape:
            raise HeroError(
                f"`data` of shape {part.shape} are not (trajectory, time, channel, *space) with one to three axes of "
                "space; reshape them."
            )
    path = folder / f"given-{digest_of(arrays)}.{'npz' if several else 'npy'}"
    if not (path.is_file() and is_as_given(path)):
        with replacing(path) as temporary, temporary.open("wb") as file:
            if several:
                np.savez(file, allow_pickle=False, **arrays)
            else:
                np.save(file, arrays["u"], allow_pickle=False)
    return {"data.path": str(path), "data.layout": "btcp" if "coords" in arrays else LAYOUT[: states[0].ndim]}


def is_as_given(path: Path) -> bool:
    """Whether a file still holds what its name is a hash of; True for files that hero did not name."""
    name = GIVEN.fullmatch(path.name)
    if name is None:
        return True
    found = path.stat()
    return name[1] == _stored_digest(path, found.st_size, found.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _stored_digest(path: Path, size: int, modified: int) -> str:
    """The hash of the arrays in a file, empty if it is damaged; read again only if the size or time has changed."""
    try:
        if path.suffix == ".nc":
            return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        stored = np.load(path, mmap_mode="r" if path.suffix == ".npy" else None, allow_pickle=False)
        return digest_of({"u": stored} if isinstance(stored, np.ndarray) else dict(stored))
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return ""


def digest_of(arrays: Mapping[str, np.ndarray]) -> str:
    """A hash of names, shapes and numbers."""
    digest = hashlib.sha256()
    for name, part in sorted(arrays.items()):
        digest.update(f"{name}{part.shape}".encode())
        digest.update(part.data)
    return digest.hexdigest()[:12]
