"""Tables of points, one row each: CSV and Parquet. Rows that fill a grid become one, others a cloud.

Columns x, y and z are places, t is time; every other column of numbers is a field. A CSV file without a header is an
array.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from hero.data.formats.arrays import FileArray, loaded
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


def open_csv(path: Path) -> dict[str, FileArray]:
    """The fields of a CSV file by the names in its first line."""
    return loaded(_read_csv, path)


def open_parquet(path: Path) -> dict[str, FileArray]:
    """The fields of a Parquet file."""
    needs(path, "pyarrow", "parquet")
    return loaded(_read_parquet, path)


def needs(path: Path, module: str, extra: str) -> None:
    """Refuse a file that a missing library reads."""
    if find_spec(module) is None:
        raise HeroError(f"{path} needs {module} to be read; {install_hint(extra)}.")


def _read_csv(path: Path) -> dict[str, np.ndarray]:
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


def _read_parquet(path: Path) -> dict[str, np.ndarray]:
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
    lines = {letter: _line(values) for letter, values in known.items()}
    lines = {letter: line for letter, line in lines.items() if len(line) > 1 or letter == "t"}
    if not lines:
        return dict(fields)
    places_of = [np.searchsorted(line, known[n] - SAME * np.ptp(line)) for n, line in lines.items()]
    shape = tuple(len(line) for line in lines.values())
    if np.prod(shape) == len(places_of[0]):
        flat = np.ravel_multi_index([np.minimum(p, n - 1) for p, n in zip(places_of, shape, strict=True)], shape)
        if len(np.unique(flat)) == len(flat):
            order = np.argsort(flat)
            grid = {n: values[order].reshape(*shape, *values.shape[1:]) for n, values in fields.items()}
            return {**dict(lines), **grid}
    return _cloud(known, fields)


def _cloud(known: Mapping[str, np.ndarray], fields: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Scattered points, the same at all times where the table has several."""
    points = np.stack([values for letter, values in known.items() if letter != "t"], axis=1)
    points = points[:, np.ptp(points, axis=0) > 0]
    if "t" not in known:
        return {"coords": points, **fields}
    times, counts = np.unique(known["t"], return_counts=True)
    order = np.lexsort([*points.T, known["t"]])
    shape = len(times), counts[0]
    sorted_points = points[order].reshape(*shape, -1) if len(set(counts.tolist())) == 1 else np.empty((0, 0, 0))
    if not sorted_points.size or not np.allclose(sorted_points, sorted_points[:1]):
        raise HeroError(
            "the points of a table differ from time to time, and hero reads fixed points; interpolate them."
        )
    grid = {n: values[order].reshape(*shape, *values.shape[1:]) for n, values in fields.items()}
    return {"t": times, "coords": sorted_points[0], **grid}


def _line(values: np.ndarray) -> np.ndarray:
    """Sorted coordinates, each once."""
    found = np.unique(values)
    return found[np.concatenate([[True], np.diff(found) > SAME * np.ptp(found)])]
