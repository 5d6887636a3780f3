"""PyTorch files with tensors: neuralop's dict of x, y and visc, a dict of arrays by name, or one tensor.

They are read with `weights_only=True`, so that a pickle inside cannot run code.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from hero.data.formats.arrays import axes_of, slabs, with_scalars
from hero.data.formats.named import read_named, with_first_frames
from hero.data.formats.claims import members
from hero.data.recording import Channel, Recording
from hero.errors import HeroError

LEGACY = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""First bytes of torch.save before version 1.6."""


@dataclass(frozen=True)
class TensorArray:
    """A tensor of a file, "" where the file is the tensor."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __getitem__(self, index: Any) -> np.ndarray:
        content = _loaded(self.path, self.path.stat().st_mtime_ns)
        part = (content[self.name] if self.name else content)[index].detach()
        return (part.float() if part.dtype == torch.bfloat16 else part).resolve_conj().resolve_neg().numpy().copy()


@contextlib.contextmanager
def opened_torch(path: Path) -> Iterator[dict[str, TensorArray]]:
    """The tensors by name, left in the file."""
    content = _loaded(path, path.stat().st_mtime_ns)
    named = {"": content} if isinstance(content, torch.Tensor) else content
    if not isinstance(named, Mapping):
        raise HeroError(f"{path} holds a {type(content).__name__}; save a tensor or a dict of tensors.")
    tensors = {
        name: TensorArray(path, name, tuple(tensor.shape), _numpy_dtype(tensor))
        for name, tensor in named.items()
        if isinstance(name, str)
        and isinstance(tensor, torch.Tensor)
        and tensor.layout == torch.strided
        and not tensor.is_quantized
    }
    if not tensors:
        raise HeroError(
            f"{path} holds {', '.join(map(str, named)) or 'nothing'}, and no tensor; save a dict of tensors."
        )
    yield tensors


@functools.lru_cache(maxsize=2)
def _loaded(path: Path, changed: int) -> Any:
    with path.open("rb") as file:
        packed = file.read(2) == b"PK"
    if packed:
        members(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=packed)
    except Exception as error:  # torch raises many kinds for a pickle that it refuses or cannot read
        raise HeroError(
            f"{path} holds more than tensors, or is damaged, and is not opened because a pickle can run code; "
            "save a tensor or a dict of tensors with torch.save."
        ) from error


def refused_pickle(path: Path) -> NoReturn:
    """Refuse a bare pickle."""
    raise HeroError(f"{path} is a Python pickle, which can run code when it is opened; save the array with numpy.save.")


def _numpy_dtype(tensor: torch.Tensor) -> np.dtype[Any]:
    kind = torch.float32 if tensor.dtype == torch.bfloat16 else tensor.dtype
    return torch.empty(0, dtype=kind).numpy().dtype


def is_neuralop(tensors: Mapping[str, TensorArray]) -> bool:
    """Whether there are inputs x (N, *space) and solutions y."""
    return {"x", "y"} <= set(tensors) and len(tensors["x"].shape) > 1 and len(tensors["y"].shape) > 1


def read_neuralop(path: Path, tensors: Mapping[str, TensorArray], layout: str) -> Recording:
    """x (N, *space) are initial states, y (N, T, *space) the solutions, `visc` one number or one per trajectory."""
    x, y = tensors["x"], tensors["y"]
    dims = len(x.shape) - 1
    if len(y.shape) != dims + 2 or y.shape[0] != x.shape[0] or y.shape[2:] != x.shape[1:] or dims > 3:
        raise HeroError(
            f"{path} holds pairs x {x.shape} and y {y.shape}, not trajectories: y must be (N, time, *space) on the "
            "grid of x (N, *space)."
        )
    layout = "bt" + "xyz"[:dims]
    trajectories = slabs(y, layout)
    if np.array_equal(x[:4], y[:4, 0]):
        note = "The first frame of y equals x, so y alone is read."
    else:
        trajectories = with_first_frames(trajectories, x)
        note = "x differs from the first frame of y and is put before it, as the state one dt earlier."
    for name, tensor in tensors.items():
        if name not in ("x", "y") and tensor.dtype.kind in "fiu" and _one_row_each(tensor.shape, len(trajectories)):
            trajectories = with_scalars(trajectories, name, tensor[...], path)
    return Recording(
        format="neuralop",
        files=(path,),
        channels=(Channel("u"),),
        axes=axes_of(y, layout, {}),
        dt=1.0,
        trajectories=trajectories,
        notes=(note,),
    )


def _one_row_each(shape: tuple[int, ...], trajectories: int) -> bool:
    return int(np.prod(shape)) == 1 or (shape[0] == trajectories and int(np.prod(shape[1:])) <= 16)


def read_torch(path: Path, tensors: Mapping[str, TensorArray], layout: str) -> Recording:
    """A tensor, or tensors by name, as in .npz files."""
    named = {name or "u": tensor for name, tensor in tensors.items()}
    return read_named(path, named, layout, form="torch")
