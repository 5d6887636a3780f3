"""PyTorch files with tensors: neuralop's dict of x, y and visc, a dict of arrays by name, or one tensor.

They are read with `weights_only=True`, so that a pickle inside cannot run code.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hero.data.files.recording import Recording
from hero.data.formats.arrays import FileArray, Sequel, Slab, States, columns_of, kept, whole
from hero.data.formats.claims import check_stored
from hero.data.formats.named import read_named
from hero.errors import HeroError

LEGACY = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""First bytes of torch.save before version 1.6."""


def open_torch(path: Path) -> dict[str, FileArray]:
    """The tensors by name, "u" where the file is the tensor; left in the file."""
    content = kept(_content, path)
    if not isinstance(content, Mapping):
        raise HeroError(f"{path} holds a {type(content).__name__}; save a tensor or a dict of tensors.")
    tensors = {
        name: FileArray(_read, path, name, tuple(tensor.shape), _array(tensor.new_empty(0)).dtype)
        for name, tensor in content.items()
        if isinstance(name, str)
        and isinstance(tensor, torch.Tensor)
        and tensor.layout == torch.strided
        and not tensor.is_quantized
    }
    if not tensors:
        raise HeroError(f"{path} holds no tensor but {', '.join(map(str, content)) or 'nothing'}; save tensors.")
    return tensors


def _content(path: Path) -> Any:
    """The object in a file, a bare tensor as {"u": tensor}; tensors of a zip file are mapped into memory."""
    check_stored(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # torch raises many kinds for a pickle that it refuses or cannot read
        raise HeroError(
            f"{path} holds more than tensors, or is damaged, and is not opened because a pickle can run code; "
            "save a tensor or a dict of tensors with torch.save."
        ) from error
    return {"u": content} if isinstance(content, torch.Tensor) else content


def _read(path: Path, name: str, index: Any) -> np.ndarray:
    return np.array(_array(kept(_content, path)[name][index]))


def _array(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).resolve_conj().resolve_neg().numpy()


def is_neuralop(tensors: Mapping[str, FileArray]) -> bool:
    """Whether there are inputs x (N, *space) and solutions y."""
    return {"x", "y"} <= set(tensors) and len(tensors["x"].shape) > 1 and len(tensors["y"].shape) > 1


def read_neuralop(path: Path, tensors: Mapping[str, FileArray], layout: str) -> Recording:
    """x (N, *space) are initial states, y (N, T, *space) the solutions, `visc` one number or one per trajectory."""
    x, y = tensors["x"], tensors["y"]
    dims = len(x.shape) - 1
    if len(y.shape) != dims + 2 or y.shape[0] != x.shape[0] or y.shape[2:] != x.shape[1:] or dims > 3:
        raise HeroError(
            f"{path} holds pairs x {x.shape} and y {y.shape}, not trajectories: y must be (N, time, *space) on the "
            "grid of x (N, *space)."
        )
    recording = read_named(path, {"u": y}, "bt" + "xyz"[:dims], form="neuralop")
    runs, note = list(recording.trajectories), "The first frame of y equals x, so y alone is read."
    if not np.array_equal(x[:4], y[:4, 0]):
        note = "x differs from the first frame of y and is put before it, as the state one dt earlier."
        first = Slab(x, "b" + "xyz"[:dims], dict(zip("xyz", recording.space, strict=False)))
        reads = [Sequel((States([first], row), one.read), (1, one.frames)) for row, one in enumerate(runs)]
        runs = [replace(one, frames=one.frames + 1, read=read) for one, read in zip(runs, reads, strict=True)]
    table: dict[str, list[float]] = {}
    for name, tensor in tensors.items():
        shape = tensor.shape
        one_row_each = math.prod(shape) == 1 or (shape[0] == len(runs) and math.prod(shape[1:]) <= 16)
        if name not in ("x", "y") and tensor.dtype.kind in "fiu" and one_row_each:
            table |= columns_of(name, whole(tensor), len(runs), path)
    runs = [replace(one, scalars={n: values[row] for n, values in table.items()}) for row, one in enumerate(runs)]
    return replace(recording, trajectories=runs, notes=(note,))
