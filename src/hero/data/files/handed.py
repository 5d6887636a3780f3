"""Data of a Python session as a file: stored once, named by its content, so that resuming finds it.

Arrays, lists, torch Datasets and DataLoaders become arrays. What names its axes (xarray, pandas) becomes a NetCDF file,
which is read as any other, so that names, units and coordinates stay.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from hero.data.formats.named import FORCING
from hero.data.formats.xarray import NAMES
from hero.data.windows import Windows
from hero.errors import HeroError, install_hint, reason_of
from hero.files import replacing, write_atomic

GIVEN = re.compile(r"given-([0-9a-f]{12})\.(?:np[yz]|nc)")
STATES = ("train", "val", "test", "u")
LARGEST = 2**31 - 2**20  # bytes that a classic NetCDF file can hold in one variable
TABLE_AXES = {*(f"{NAMES['time']} {NAMES['row']} {NAMES['horizontal']} x y z lev level".split())}
"""Columns of a table that are axes; height and depth may as well be quantities."""
ITEMS = (
    "an item must be one trajectory (time, channel, *space): a tensor, a tuple of that tensor alone, or a dictionary "
    "with `u` and, for conditioning, `mu`"
)


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
    return {"data.path": str(path), "data.layout": "btcp" if "coords" in arrays else "btcxyz"[: states[0].ndim]}


def is_as_given(path: Path) -> bool:
    """Whether a file still holds what its name is a hash of; True for files that hero did not name."""
    name = GIVEN.fullmatch(path.name)
    if name is None:
        return True
    found = path.stat()
    return name[1] == _stored_digest(path, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=64)
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


def has_named_axes(data: Any) -> bool:
    """Whether `data` is an xarray Dataset or DataArray, or a pandas DataFrame."""
    owners = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(data).__mro__}
    return bool(owners & {("xarray", "Dataset"), ("xarray", "DataArray"), ("pandas", "DataFrame")})


def unpacked(data: Any) -> Any:
    """Lists, torch Datasets and DataLoaders, also as splits by name, as arrays by name; all else as it is."""
    if isinstance(data, Mapping) and any(
        isinstance(part, list | tuple | Dataset | DataLoader) for part in data.values()
    ):
        arrays: dict[str, Any] = {}
        for split, part in data.items():
            found = unpacked(part)
            several = found if isinstance(found, Mapping) else {"u": found}
            arrays |= {split if name == "u" else f"{name}_{split}": array for name, array in several.items()}
        return arrays
    if isinstance(data, Windows):
        raise HeroError("`data` are windows that overlap, which would be in several splits; give their trajectories.")
    if isinstance(data, DataLoader) and isinstance(data.dataset, IterableDataset):
        return unpacked(data.dataset)
    if isinstance(data, DataLoader):
        # What it samples, in the order of the dataset: a loader that shuffles must give the same data in every session.
        chosen = data.sampler if data.batch_sampler is None else chain.from_iterable(data.batch_sampler)
        return _stacked([_of_item(data.dataset[i]) for i in sorted(chosen)])
    if isinstance(data, Dataset):
        items: Any = data if not hasattr(data, "__len__") else (data[i] for i in range(len(data)))
        return _stacked([_of_item(item) for item in items])
    if isinstance(data, list | tuple) and data and all(isinstance(part, np.ndarray | Tensor) for part in data):
        return _stacked([{"u": as_array(part)} for part in data])
    return data


def with_forcing(data: Any, forcing: Any) -> tuple[Any, list[str]]:
    """Arrays with their forcing beside them, and its name; of files and Datasets, the names of its variables."""
    if isinstance(forcing, str) or (isinstance(forcing, list | tuple) and all(isinstance(n, str) for n in forcing)):
        return data, [forcing] if isinstance(forcing, str) else list(forcing)
    if not is_array(data) or not is_array(forcing):
        raise HeroError("`forcing` as an array belongs to states as arrays; of a file or Dataset, name its variables.")
    states = dict(data) if isinstance(data, Mapping) else {"u": data}
    known = forcing if isinstance(forcing, Mapping) else {next(name for name in STATES if name in states): forcing}
    for name, part in known.items():
        if name not in states or part.ndim < 3 or part.shape[:2] != states[name].shape[:2]:
            of = f"states of {tuple(states[name].shape)}" if name in states else f"{name!r}, which has no states"
            raise HeroError(
                f"`forcing` of shape {tuple(part.shape)} does not fit {of}; give (trajectory, time, number), or with "
                "*space, at the times of the states."
            )
    return {**states, **{f"{FORCING}_{name}".removesuffix("_u"): part for name, part in known.items()}}, [FORCING]


def _of_item(item: Any) -> dict[str, np.ndarray]:
    """A trajectory, and its μ if there is one."""
    if isinstance(item, list | tuple) and len(item) == 1:
        item = item[0]
    named = item if isinstance(item, Mapping) else {"u": item}
    if not {"u"} <= set(named) <= {"u", "mu"} or not is_array(named):
        found = f"{type(item).__name__}, as pairs of input and target are"
        raise HeroError(f"`data` gives a {found}, and {ITEMS}.")
    return {name: as_array(part) for name, part in named.items()}


def _stacked(rows: Sequence[Mapping[str, np.ndarray]]) -> Any:
    """Trajectories as one array; of different lengths, padded with NaN, and `frames` counts their states."""
    if not rows:
        raise HeroError(f"`data` are empty; {ITEMS}.")
    shapes = [row["u"].shape for row in rows]
    kinds = {(row["u"].shape[1:], *row) for row in rows}
    if len(kinds) > 1 or not 3 <= len(shapes[0]) <= 5:
        known = ", ".join(map(str, sorted(set(shapes))[:4]))
        raise HeroError(f"`data` have trajectories of the shapes {known}; give (time, channel, *space) on one grid.")
    frames = [shape[0] for shape in shapes]
    states = np.full((len(rows), max(frames), *shapes[0][1:]), np.nan, np.float32)
    for i, row in enumerate(rows):
        states[i, : frames[i]] = row["u"]
    more = {"mu": np.stack([row["mu"].ravel() for row in rows])} if "mu" in rows[0] else {}
    more |= {"frames": np.array(frames)} if len(set(frames)) > 1 else {}
    return {"u": states, **more} if more else states


def store_dataset(data: Any, folder: Path) -> Path:
    """A NetCDF file in `folder`, named by its content, of what has names for its axes."""
    dataset = _of_table(data) if type(data).__name__ == "DataFrame" else data
    dataset = dataset.to_dataset(name=dataset.name or "u") if hasattr(dataset, "to_dataset") else dataset
    dataset = dataset.drop_encoding()
    complex_ones = [str(name) for name, part in dataset.data_vars.items() if part.dtype.kind == "c"]
    if complex_ones:
        raise HeroError(f"{', '.join(complex_ones)} is complex; give its real and its imaginary part as two variables.")
    dataset = dataset[[name for name, part in dataset.data_vars.items() if part.dtype.kind in "fiu"]]
    if sum(4 * part.size for part in dataset.data_vars.values()) > LARGEST:
        raise HeroError(f"`data` of {dataset.nbytes / 1e9:.1f} GB are too large; use `.to_zarr` and give the path.")
    dataset = dataset.assign({name: part.astype(np.float32) for name, part in dataset.data_vars.items()})
    for part in (dataset, *dataset.variables.values()):
        part.attrs = {
            name: value for name, value in part.attrs.items() if isinstance(value, str | int | float | np.number)
        }
    try:
        content = bytes(dataset.to_netcdf(format="NETCDF3_64BIT", engine="scipy"))
    except (ValueError, TypeError, NotImplementedError) as error:
        raise HeroError(f"`data` cannot be stored ({reason_of(error)}); save it and give the path.") from error
    path = folder / f"given-{hashlib.sha256(content).hexdigest()[:12]}.nc"
    if not (path.is_file() and path.read_bytes() == content):
        write_atomic(path, content)
    return path


def _of_table(table: Any) -> Any:
    """The Dataset of a long table: a row for each point and time, axes in columns with their names, or in the index."""
    table = table.reset_index() if any(name is not None for name in table.index.names) else table
    axes = [name for name in table.columns if str(name).lower() in TABLE_AXES]
    rows = [name for name in axes if str(name).lower() in NAMES["row"].split()]
    times = [name for name in axes if str(name).lower() in NAMES["time"].split()]
    space = [name for name in axes if name not in (*rows, *times)]
    values = [name for name in table.columns if name not in axes and table[name].dtype.kind in "fiu"]
    if len(times) != 1 or not space or not values:
        raise HeroError(
            f"the table has the columns {', '.join(map(str, table.columns))}; it must be long, with one row per point "
            "and time: time, x (y, z), trajectory where there are several, and a column for each quantity."
        )
    if table.duplicated(axes).any():
        raise HeroError(f"the table has several rows of the same {', '.join(map(str, axes))}; keep one of each.")
    try:
        dataset = table.set_index([*rows, *times, *space])[values].to_xarray()
    except ImportError as error:
        raise HeroError(f"a table needs xarray; {install_hint('xarray')}.") from error
    for name in values if rows else ():  # a number of each trajectory, such as a viscosity
        first = dataset[name].isel(dict.fromkeys((*times, *space), 0), drop=True)
        if len(values) > 1 and bool((dataset[name] == first).all()):
            dataset[name] = first
    return dataset
