"""Files that say nothing of their axes: arrays of NumPy and PyTorch, images, and tables with a row for each point.

An array in a .npy file, uncompressed in a .npz file or in a file of torch.save is mapped into memory; pickles stay
closed. In tables (CSV, Parquet) columns x, y and z are places, t is time; every other column of numbers is a field.
Rows that fill a grid become one, others a cloud. A CSV file without a header is an array.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.lib import format as npy_format
from PIL import Image

from hero.data.files.handles import check_stored, check_unpacked, damage_reported, members
from hero.data.files.recording import Recording
from hero.data.formats.arrays import FileArray, kept
from hero.data.formats.named import COORDINATES, read_named
from hero.data.formats.slabs import Slab, in_turn
from hero.errors import HeroError, install_hint, optional

LEGACY = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."  # first bytes of torch.save before version 1.6
IMAGES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\0", b"MM\0*", b"BM")  # first bytes of PNG, JPEG, TIFF and BMP
GREY = ("1", "L", "I;16", "I", "F")  # modes of images with one channel
SAME = 1e-6  # distance of two coordinates, in lengths of the axis, that is rounding
DELIMITERS = re.compile(rb"[,;\t]")


def open_npy(path: Path) -> dict[str, FileArray]:
    """The array of a .npy file, which has no name."""
    with damage_reported(path), path.open("rb") as file:
        array = _array_at(file, 0, path, "", path.stat().st_size)
    if array.dtype.hasobject:
        raise HeroError(f"{path} holds Python objects, a pickle that could run code; save numbers with numpy.save.")
    if array.dtype.kind not in "fiubc":
        raise HeroError(f"{path} holds {array.dtype}, not numbers; save an array of floats.")
    return {"": array}


def open_npz(path: Path) -> dict[str, FileArray]:
    """The arrays of a .npz file by name; none is read, and np.load reads no pickled ones."""

    def unpacked(name: str, index: tuple[slice, ...]) -> np.ndarray:
        return np.array(kept(_member, path, name)[index])

    arrays = {}
    infos = [info for info in members(path) if info.filename.endswith(".npy")]
    with zipfile.ZipFile(path) as file, path.open("rb") as raw:
        for info in infos:
            name = info.filename.removesuffix(".npy")
            # The bytes of a member begin after its local header, whose names may be longer than in the directory.
            raw.seek(info.header_offset + 26)
            lengths = np.frombuffer(raw.read(4), "<u2").tolist()
            with file.open(info) as stream:
                array = _array_at(stream, info.header_offset + 30 + sum(lengths), path, name, info.file_size)
            in_one_piece = info.compress_type == zipfile.ZIP_STORED and not array.dtype.hasobject
            arrays[name] = array if in_one_piece else replace(array, read=partial(unpacked, name))
    return arrays


def _member(path: Path, name: str) -> np.ndarray:
    with np.load(path, allow_pickle=False) as arrays:
        return arrays[name]


def _array_at(stream: IO[bytes], start: int, path: Path, name: str, size: int) -> FileArray:
    """The array whose header and numbers are the `size` bytes of `stream`, which begins at `start` of the file."""
    try:
        version = npy_format.read_magic(stream)
        read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        shape, fortran, dtype = read(stream)
    except (ValueError, EOFError, SyntaxError, MemoryError) as error:
        raise HeroError(f"{path}: the header of {name or 'the array'} is damaged ({error}); save it again.") from error
    left, wanted = size - stream.tell(), math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or (left < wanted and not dtype.hasobject):
        raise HeroError(f"{path}: {name} {shape} needs {wanted:,} bytes and has {left:,}, cut off; copy it again.")
    offset, order = start + stream.tell(), "F" if fortran else "C"

    def part(index: tuple[slice, ...]) -> np.ndarray:
        if 0 in shape:
            return np.zeros(shape, dtype)[index]
        return np.array(np.memmap(path, dtype, "r", offset, shape, order)[index])  # type: ignore[call-overload]

    return FileArray(part, path, name, shape, dtype)


def read_image(path: Path) -> dict[str, np.ndarray]:
    """An image as one state, (row, column) in grey or (row, column, colour)."""
    with Image.open(path) as image:
        check_unpacked(path, "the image", math.prod(image.size))
        return {"": np.asarray(image if image.mode in GREY else image.convert("RGB"))}


def open_torch(path: Path) -> dict[str, FileArray]:
    """The tensors by name, "u" where the file is the tensor; left in the file."""
    content = kept(_content, path)
    if not isinstance(content, Mapping):
        raise HeroError(f"{path} holds a {type(content).__name__}; save a tensor or a dict of tensors.")
    tensors = {
        name: _tensor(path, name, tensor)
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
    """The object in a file, a bare tensor as {"u": tensor}; `weights_only`, so that a pickle inside cannot run code."""
    check_stored(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # torch raises many kinds for a pickle that it refuses or cannot read
        raise HeroError(
            f"{path} holds more than tensors, or is damaged, and is not opened because a pickle can run code; "
            "save a tensor or a dict of tensors with torch.save."
        ) from error
    return {"u": content} if isinstance(content, torch.Tensor) else content


def _tensor(path: Path, name: str, like: torch.Tensor) -> FileArray:
    def array(tensor: torch.Tensor) -> np.ndarray:
        tensor = tensor.detach()
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).resolve_conj().resolve_neg().numpy()

    def part(index: tuple[slice, ...]) -> np.ndarray:
        return np.array(array(kept(_content, path)[name][index]))

    return FileArray(part, path, name, tuple(like.shape), array(like.new_empty(0)).dtype)


def is_neuralop(tensors: Mapping[str, FileArray]) -> bool:
    """Whether there are inputs x (N, *space) and solutions y."""
    return {"x", "y"} <= set(tensors) and len(tensors["x"].shape) > 1 and len(tensors["y"].shape) > 1


def read_neuralop(path: Path, tensors: Mapping[str, FileArray], layout: str) -> Recording:
    """x (N, *space) are initial states, y (N, T, *space) the solutions, `visc` one number or one per trajectory."""
    x, y = tensors["x"], tensors["y"]
    dims = len(x.shape) - 1
    if len(y.shape) != dims + 2 or y.shape[0] != x.shape[0] or y.shape[2:] != x.shape[1:] or dims > 3:
        raise HeroError(f"{path}: y {y.shape} is not (N, time, *space) on the grid of x {x.shape}, (N, *space).")
    others = {name: tensor for name, tensor in tensors.items() if name not in ("x", "y")}
    recording = read_named(path, {"u": y, **others}, "bt" + "xyz"[:dims], form="neuralop")
    runs, note = list(recording.trajectories), "The first frame of y equals x, so y alone is read."
    first = Slab(x, "b" + "xyz"[:dims], dict(zip("xyz", recording.space, strict=False)))
    starts = [partial(first.read, row) for row in range(len(runs))]
    both = [(start(slice(1), [0]), one.read(slice(1), [0])) for start, one in zip(starts[:4], runs, strict=False)]
    if not all(np.array_equal(*pair) for pair in both):
        note = "x differs from the first frame of y and is put before it, as the state one dt earlier."
        reads = [in_turn((start, one.read), (1, one.frames), (0, 0)) for start, one in zip(starts, runs, strict=True)]
        runs = [replace(one, frames=one.frames + 1, read=read) for one, read in zip(runs, reads, strict=True)]
    return replace(recording, trajectories=runs, notes=(*recording.notes, note))


def is_csv(head: bytes) -> bool:
    """Whether a file begins with lines of numbers or of a header, with signs between them."""
    lines = head.splitlines()
    if not head.isascii() or b"\0" in head or not lines or head[:1] in b"<#":
        return False
    numbers = sum(_is_number(word) for line in lines[:2] for word in re.split(rb"[,;\s]+", line) if word)
    return numbers > 0 and all(DELIMITERS.search(line) or _is_number(line) for line in lines[:2] if line.strip())


def _is_number(word: bytes) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def needs(path: Path, module: str, extra: str) -> Any:
    """The library that reads a file."""
    return optional(module, f"{path} needs {module} to be read; {install_hint(extra)}.")


def read_csv(path: Path) -> dict[str, np.ndarray]:
    """The fields of a CSV file by the names in its first line."""
    check_unpacked(path, "its table", path.stat().st_size)
    with path.open("rb") as file:
        first = file.readline(1 << 16)
    sign = DELIMITERS.search(first)
    between = sign[0].decode() if sign else None
    words = [word.strip().strip('"') for word in first.decode("utf-8-sig", "replace").split(between)]
    has_names = not all(_is_number(word.encode()) for word in words if word)
    values = np.loadtxt(path, delimiter=between, skiprows=int(has_names), ndmin=2, encoding="utf-8-sig")
    if not has_names:
        return {"": values}
    if len(words) != values.shape[1]:
        raise HeroError(f"{path} names {len(words)} columns and has {values.shape[1]}; correct its first line.")
    return gridded(dict(zip(words, values.T, strict=True)))


def read_parquet(path: Path) -> dict[str, np.ndarray]:
    needs(path, "pyarrow", "parquet")
    import pyarrow.parquet

    file = pyarrow.parquet.ParquetFile(path)
    rows, columns = file.metadata.num_rows, file.metadata.num_columns
    check_unpacked(path, "its table", 8 * rows * columns)
    table = file.read()
    found = {n: table[n].to_numpy() for n in table.column_names}
    return gridded({n: values for n, values in found.items() if values.dtype.kind in "fiub"})


def gridded(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Columns of points: on a grid where their places fill one, with its coordinates, else as a cloud."""
    places = {letter: next((n for n in names if n in columns), None) for letter, names in COORDINATES.items()}
    known = {letter: np.asarray(columns[n], np.float64) for letter, n in places.items() if n}
    fields = {n: values for n, values in columns.items() if n not in places.values()}
    if "t" in known and (known["t"] == known["t"][0]).all() and len(known) > 1:
        del known["t"]  # the time of one state
    lines = {letter: np.unique(values) for letter, values in known.items()}
    lines = {n: line[np.diff(line, prepend=-np.inf) > SAME * np.ptp(line)] for n, line in lines.items()}
    lines = {letter: line for letter, line in lines.items() if len(line) > 1 or letter == "t"}
    if not lines:
        return dict(fields)
    shape = tuple(map(len, lines.values()))
    at = [np.searchsorted(line, known[letter] - SAME * np.ptp(line)) for letter, line in lines.items()]
    flat = np.ravel_multi_index(at, shape, mode="clip")
    if math.prod(shape) == len(flat) == len(np.unique(flat)):
        order = np.argsort(flat)
        return {**lines, **{n: values[order].reshape(*shape, *values.shape[1:]) for n, values in fields.items()}}
    if "t" in known:
        raise HeroError("a table of several times whose points fill no grid is not read; save a file for each time.")
    points = np.stack(list(known.values()), axis=1)
    return {"coords": points[:, np.ptp(points, axis=0) > 0], **fields}
