"""Formats of people's files, one per layout: recognised by the contents of a file, never by its name.

    recording = open_recording(Path("1D_Advection_Sols_beta0.1.hdf5"))

A format is an entry of `FORMATS`; to add one is one line, also from outside:

    FORMATS["lab"] = Format("our lab", "hdf5", lambda file: "shot" in file, read_lab)
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import h5py

from hero.config.registry import Registry
from hero.data.files.handles import check_claim, check_hdf5, damage_reported, members, opened_hdf5
from hero.data.files.recording import SPELLINGS, Recording
from hero.data.formats import folders, matlab, meshes, plain, xarray
from hero.data.formats.arrays import LISTED, FileArray, describe, loaded
from hero.data.formats.hdf5 import groups, layouts
from hero.data.formats.hdf5.table import LAYOUTS, is_particles
from hero.data.formats.named import read_named
from hero.data.formats.names import NameRule, find_rule, follow, natural, split_pattern
from hero.errors import HeroError


@dataclass(frozen=True)
class Format:
    """An entry of the registry."""

    title: str
    container: str  # kind of file: a key of `OPEN`
    recognises: Callable[[Any], object]  # true, or not empty, if the opened file has this layout
    read: Callable[[Path, Any, str], Recording] | str  # of (path, opened file, layout word); or why it is refused


OPEN: dict[str, Callable[[Path], Any]] = {
    "xdmf": Path,  # which says what the HDF5 files beside it hold
    "hdf5": opened_hdf5,
    "folder": Path,
    "zarr": xarray.open_zarr,
    "npy": plain.open_npy,
    "npz": plain.open_npz,
    "torch": plain.open_torch,  # the older ones begin as a pickle does
    "mat": partial(loaded, matlab.read_mat),
    "netcdf": xarray.open_dataset,
    "parquet": partial(loaded, plain.read_parquet),
    "vtk": partial(loaded, meshes.read_vtk),
    "csv": partial(loaded, plain.read_csv),
    "image": partial(loaded, plain.read_image),
    "zip": Path,
    "pickle": Path,
}
"""What opens each kind of file, the most telling first: one kind of a folder's files is read. Only HDF5 is closed."""
MAGIC = {
    "npy": (b"\x93NUMPY",),
    "torch": (plain.LEGACY,),
    "mat": (b"MATLAB 5.0",),
    "netcdf": xarray.CLASSIC,
    "parquet": (b"PAR1",),
    "vtk": (b"# vtk DataFile", b"<VTKFile"),
    "image": plain.IMAGES,
    "pickle": (b"\x80",),
}
"""First bytes."""
ALONE = ("folder", "zarr", "zip", "pickle")  # kinds that a folder does not hold many of
BARE = ("npy", "csv", "parquet", "vtk", "image")  # kinds of files that do not say which axis is time
LOOKED_INTO = 64  # files of a folder that are all opened to know their kind; of more, the first of each ending


@contextlib.contextmanager
def _opened(kind: str, path: Path) -> Iterator[Any]:
    """The contents of a file of a kind, for `Format.recognises`."""
    with damage_reported(path, (Exception,)):  # a library raises what its parser meets
        content = OPEN[kind](path)
    with content if kind == "hdf5" else contextlib.nullcontext(content) as found:
        yield found


def _kinds_of(path: Path) -> list[str]:
    """The kinds of file that this may be, in the order in which they are asked; at least one."""
    if path.is_dir():
        if not any(path.iterdir()):
            raise HeroError(f"{path} is an empty folder; put files of one layout into it, or name another.")
        return ["zarr" if xarray.is_zarr(path) else "folder"]
    if not path.exists():
        raise HeroError(f"there is no file or folder {path}; check the path.")
    head = _first_bytes(path)
    if not head:
        raise HeroError(f"{path} is empty (0 bytes); copy or download it again.")
    if kinds := _kinds_of_file(path, head):
        return kinds
    raise HeroError(
        f"{path} begins with {head[:8]!r}, which is none of HDF5, NetCDF, Zarr, MATLAB, NumPy, PyTorch, VTK, XDMF, "
        "CSV, Parquet and images; save the array with numpy.save and name its axes with `--set data.layout=btcxy`."
    )


def _kinds_of_file(path: Path, head: bytes) -> list[str]:
    if head.startswith(b"PK"):
        names = {info.filename.rpartition("/")[2] for info in members(path)}
        if names & {"zarr.json", ".zgroup", ".zarray"}:
            return ["zarr"]
        return ["torch"] if "data.pkl" in names else ["npz" if any(n.endswith(".npy") for n in names) else "zip"]
    if h5py.is_hdf5(path):  # and NetCDF if its library wrote it or it has scales; damage is told when it is opened
        with contextlib.suppress(OSError, RuntimeError, KeyError), h5py.File(path, "r") as file:
            check_hdf5(path, file)
            if file.attrs.get("source") == xarray.PREDICTED:  # whatever layout the names of its variables suggest
                return ["netcdf"]
            return ["hdf5", "netcdf"] if xarray.has_dimensions(file) else ["hdf5"]
        return ["hdf5"]
    if head.startswith((b"<?xml", b"<Xdmf")):
        return ["vtk"] * (b"<VTKFile" in head) or ["xdmf"] * (b"<Xdmf" in head)
    known = [name for name, magic in MAGIC.items() if head.startswith(magic)]
    return known[:1] or ["csv"] * plain.is_csv(head)


def _files_of(folder: Path) -> list[Path]:
    """The HDF5 files in a folder, data_2 before data_10, or in the folders below it; else its other files of arrays."""
    below = [path for path in folder.rglob("*") if not path.name.startswith(".") and path.is_file()]
    direct = [path for path in below if path.parent == folder]
    kinds: dict[Path, str] = {}
    for paths in (direct, below):
        for path in paths if len(paths) <= LOOKED_INTO else {path.suffix: path for path in paths}.values():
            known = ["hdf5"] if h5py.is_hdf5(path) else _kinds_of_file(path, _first_bytes(path))
            kinds[path] = known[0] if known else ""
    for wanted in (kind for kind in OPEN if kind not in ALONE):
        for paths in (direct, below):
            endings = {path.suffix for path in paths if kinds.get(path) == wanted} - {""}
            # A file that cannot be read is not left out of files with its ending: its reader says what is wrong.
            found = [path for path in paths if (kinds.get(path) or wanted * (path.suffix in endings)) == wanted]
            if found:
                return sorted(found, key=lambda path: natural(str(path)))
    return []


def _first_bytes(path: Path) -> bytes:
    with damage_reported(path), path.open("rb") as file:
        return file.read(512)


def _states_of(kind: str, path: Path) -> dict[str, FileArray]:
    """The arrays of a file by name, whatever its axes are: one state of a folder of many."""
    with _opened(kind, path) as content:
        if kind == "hdf5":
            return layouts.arrays_in(path, content)
        return dict(xarray.variables_of(path, content) if kind == "netcdf" else content)


def _read_folder(path: Path, folder: Path, layout: str) -> Recording:
    """The files of a folder as one recording, by the rule that their names follow or that the layout says.

    A folder train, valid or test below it names a split, for trajectories whose file does not say.
    """
    files = _files_of(folder)
    if not files:
        found = ", ".join(sorted(item.name for item in folder.iterdir())[:LISTED])
        raise HeroError(f"{folder} has no file of a kind that hero reads ({found}); save states with numpy.save.")
    pattern, axes = split_pattern(layout)
    named_files = [file.relative_to(folder).as_posix() for file in files]
    rule = follow(pattern, named_files) if pattern else find_rule(named_files)
    if rule is not None and _are_states(folder / next(iter(rule.places)), rule, pattern, axes):
        kind = _kinds_of(folder / next(iter(rule.places)))[-1]
        return folders.read_snapshots(folder, rule, axes, partial(_states_of, kind))
    if rule is not None and "{c}" in rule.pattern and "{t}" not in rule.pattern:
        return folders.read_channels(folder, rule, lambda file: _recognised(file, axes))
    chosen = files if rule is None else [folder / name for name in rule.places]
    recordings = []
    for file in chosen:
        one, folders_above = _recognised(file, axes), file.relative_to(folder).parts[:-1]
        split = next((SPELLINGS[name] for name in folders_above if name in SPELLINGS), "")
        recordings.append(replace(one, trajectories=[replace(t, split=t.split or split) for t in one.trajectories]))
    named_times = rule is not None and "{t}" in rule.pattern and (pattern or rule.dated)
    if named_times and all(not one.times and len(one.trajectories) == 1 for one in recordings):
        return folders.in_series(recordings)
    return folders.all_of(recordings) if "{b}" in pattern else folders.join(recordings)


def _are_states(first: Path, rule: NameRule, pattern: str, axes: str) -> bool:
    """Whether files with a time in their names hold one state each: the user says so, or the first one does."""
    if "{t}" not in rule.pattern or "t" in axes:
        return False
    kind = _kinds_of(first)[-1]
    if pattern or axes or (rule.sure and kind in BARE):
        return True
    try:
        found = _recognised(first, "")
    except HeroError:
        return True
    return (kind != "hdf5" or found.format == "array") and max(one.frames for one in found.trajectories) < 2


def _always(content: Any) -> bool:
    return True


PARTICLES = "holds particles (LagrangeBench), which move; hero reads states on a grid or on fixed points."
FRAME = (
    "is one frame of a PhiFlow scene, too short; stack the frames, save (time, channel, *space) with numpy.save and "
    "add `--set data.layout=tcxy`."
)
PHIFLOW = {"data", "dim_names", "dim_types", "field_type"}  # arrays of a frame; `extrapolation`, a pickle, stays closed
STATE = "is one state, too short; name the folder with one such file for each time."
PICKLE = "is a Python pickle, which can run code when it is opened; save the array with numpy.save."
ZIP = "is a zip file without arrays; unpack it and name the file or folder inside."

FORMATS: Registry[Format] = Registry(
    "format",
    {
        "cfdbench": Format("CFDBench", "folder", folders.case_folders, folders.read_cfdbench),
        "openfoam": Format("OpenFOAM", "folder", meshes.cases_of, meshes.read_openfoam),
        "splits": Format("NumPy array per split", "folder", folders.split_files, folders.read_split_files),
        "well": Format("The Well", "hdf5", groups.is_well, groups.read_well),
        "dedalus": Format("Dedalus", "hdf5", groups.is_dedalus, groups.read_dedalus),
        "pbdl": Format("PBDL", "hdf5", groups.is_pbdl, groups.read_pbdl),
        "matlab73": Format("MATLAB 7.3", "hdf5", matlab.is_matlab73, matlab.read_matlab73),
        "lagrangebench": Format("LagrangeBench", "hdf5", is_particles, PARTICLES),
        **{
            n: Format(row.title, "hdf5", row.recognises, partial(layouts.read_layout, n, row))
            for n, row in LAYOUTS.items()
        },
        "array": Format("HDF5 with arrays by name", "hdf5", layouts.is_fields, layouts.read_fields),
        "folder": Format("folder of files", "folder", _always, _read_folder),
        "npy": Format("NumPy array", "npy", _always, partial(read_named, form="npy")),
        "phiflow": Format("PhiFlow scene", "npz", lambda arrays: set(arrays) >= PHIFLOW, FRAME),
        "npz": Format("NumPy arrays by name", "npz", _always, read_named),
        "neuralop": Format("neuralop", "torch", plain.is_neuralop, plain.read_neuralop),
        "torch": Format("PyTorch tensors", "torch", _always, partial(read_named, form="torch")),
        "matlab": Format("MATLAB", "mat", _always, matlab.read_matlab),
        "netcdf": Format("NetCDF", "netcdf", _always, xarray.read_xarray),
        "zarr": Format("Zarr", "zarr", _always, xarray.read_zarr),
        "csv": Format("CSV table", "csv", _always, partial(read_named, form="csv")),
        "parquet": Format("Parquet table", "parquet", _always, partial(read_named, form="parquet")),
        "vtk": Format("VTK", "vtk", _always, STATE),
        "xdmf": Format("XDMF", "xdmf", _always, meshes.read_xdmf),
        "image": Format("image", "image", _always, STATE),
        "pickle": Format("Python pickle", "pickle", _always, PICKLE),
        "zip": Format("zip file", "zip", _always, ZIP),
    },
)
"""In the order in which they are asked, after those of users; the first that recognises a file reads it."""
OURS = frozenset(FORMATS)
_kept = lru_cache(maxsize=2)(lambda path, layout, versions: _recognised(path, layout))


def open_recording(path: Path, layout: str = "") -> Recording:
    """The trajectories of a file or folder; `layout` names the axes of a bare array, as in "btcxy".

    The recording is the same object as before as long as no file has changed: a command asks for its file many times.
    """
    inside = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    found = [os.stat(place) for place in sorted(inside) or [str(path)] if os.path.isfile(place)]
    return _kept(path, layout, tuple((state.st_ino, state.st_size, state.st_mtime_ns) for state in found))


def _recognised(path: Path, layout: str) -> Recording:
    """The recording that the first format makes of a file that recognises it."""
    contents = "no arrays"
    for kind in _kinds_of(path):
        with _opened(kind, path) as content:
            for form in (FORMATS[name] for name in sorted(FORMATS, key=OURS.__contains__)):
                if form.container != kind or not form.recognises(content):
                    continue
                if isinstance(form.read, str):
                    raise HeroError(f"{path} {form.read}")
                with damage_reported(path, (Exception,)):
                    return check_claim(form.read(path, content, layout))
            if kind == "hdf5":
                contents = describe(layouts.datasets_in(content, LISTED + 1)) or "no datasets"
    raise HeroError(
        f"{path} has a layout that is not known ({contents}); save its states as one array, with numpy.save or as the "
        "only dataset, and name the axes with `--set data.layout=btcxy`."
    )
