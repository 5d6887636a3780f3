"""Tables of points, one row each: CSV and Parquet. Rows that fill a grid become one, others a cloud.

Columns x, y and z are places, t is time; every other column of numbers is a field. A CSV file without a header is an
array.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from hero.data.formats.claims import check_unpacked
from hero.data.formats.named import COORDINATES
from hero.errors import HeroError, install_hint

SAME = 1e-6
"""Distance of two coordinates, in lengths of the axis, that is rounding."""
DELIMITERS = re.compile(rb"[,;\t]")


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


def needs(path: Path, module: str, extra: str) -> None:
    """Refuse a file that a missing library reads."""
    if find_spec(module) is None:
        raise HeroError(f"{path} needs {module} to be read; {install_hint(extra)}.")


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
    """The fields of a Parquet file."""
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
