"""Formats of people's files, one per layout: recognised by the contents of a file, never by its name.

    recording = open_recording(Path("1D_Advection_Sols_beta0.1.hdf5"))

A format is an entry of `FORMATS`; to add one is one line, also from outside:

    FORMATS["lab"] = Format("our lab", "hdf5", lambda file: "shot" in file, read_lab)
"""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from hero.config.registry import Registry
from hero.data.files.recording import Recording
from hero.data.formats import folders, matlab, meshes, plain, xarray
from hero.data.formats.arrays import LISTED, describe
from hero.data.formats.claims import check_claim
from hero.data.formats.containers import Format, files_of, kinds_of, opened, states_of
from hero.data.formats.hdf5 import fields, groups
from hero.data.formats.hdf5.datasets import datasets_in
from hero.data.formats.hdf5.layouts import read_layout
from hero.data.formats.hdf5.table import LAYOUTS, is_particles
from hero.data.formats.named import read_named
from hero.data.formats.names import NameRule, find_rule, follow, split_pattern
from hero.data.formats.snapshots import read_channels, read_snapshots
from hero.errors import HeroError

__all__ = ["FORMATS", "Format", "open_recording"]


def _read_folder(path: Path, folder: Path, layout: str) -> Recording:
    """The files of a folder as one recording, by the rule that their names follow or that the layout says.

    A folder train, valid or test below it names a split.
    """
    files = files_of(folder)
    if not files:
        found = ", ".join(sorted(item.name for item in folder.iterdir())[:LISTED])
        raise HeroError(
            f"{folder} has no file of a kind that hero reads ({found}); save states with numpy.save, one array or one "
            "file for each time."
        )
    pattern, axes = split_pattern(layout)
    named_files = [file.relative_to(folder).as_posix() for file in files]
    rule = follow(pattern, named_files) if pattern else find_rule(named_files)
    if rule is not None and _are_states(folder / next(iter(rule.places)), rule, pattern, axes):
        kind = kinds_of(folder / next(iter(rule.places)))[-1]
        return read_snapshots(folder, rule, axes, partial(states_of, kind))
    if rule is not None and "{c}" in rule.pattern and "{t}" not in rule.pattern:
        return read_channels(folder, rule, lambda file: _recognised(file, axes))
    chosen = files if rule is None else [folder / name for name in rule.places]
    recordings = [folders.with_split(_recognised(file, axes), file, folder) for file in chosen]
    named_times = rule is not None and "{t}" in rule.pattern and (pattern or rule.dated)
    if named_times and all(not one.times and len(one.trajectories) == 1 for one in recordings):
        return folders.in_series(recordings)
    return folders.all_of(recordings) if "{b}" in pattern else folders.join(recordings)


def _are_states(first: Path, rule: NameRule, pattern: str, axes: str) -> bool:
    """Whether files with a time in their names hold one state each: the user says so, or the first one does."""
    if "{t}" not in rule.pattern or "t" in axes:
        return False
    kind = kinds_of(first)[-1]
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
PHIFLOW = {"data", "dim_names", "dim_types", "field_type"}
"""Arrays of a frame; another, `extrapolation`, is a pickle and stays closed."""
STATE = "is one state, too short; name the folder with one such file for each time."
BARE = ("npy", "csv", "parquet", "vtk", "image")
"""Kinds of files that do not say which axis is time."""
PICKLE = "is a Python pickle, which can run code when it is opened; save the array with numpy.save."
ZIP = "is a zip file without arrays; unpack it and name the file or folder inside."

FORMATS: Registry[Format] = Registry(
    "format",
    {
        "cfdbench": Format("CFDBench", "folder", folders.case_folders, folders.read_cfdbench),
        "openfoam": Format("OpenFOAM", "folder", meshes.cases_of, meshes.read_openfoam),
        "apebench": Format("APEBench", "name", lambda name: name.startswith("apebench:"), folders.read_apebench),
        "splits": Format("NumPy array per split", "folder", folders.split_files, folders.read_split_files),
        "well": Format("The Well", "hdf5", groups.is_well, groups.read_well),
        "dedalus": Format("Dedalus", "hdf5", groups.is_dedalus, groups.read_dedalus),
        "pbdl": Format("PBDL", "hdf5", groups.is_pbdl, groups.read_pbdl),
        "matlab73": Format("MATLAB 7.3", "hdf5", matlab.is_matlab73, matlab.read_matlab73),
        "lagrangebench": Format("LagrangeBench", "hdf5", is_particles, PARTICLES),
        **{n: Format(row.title, "hdf5", row.recognises, partial(read_layout, n, row)) for n, row in LAYOUTS.items()},
        "array": Format("HDF5 with arrays by name", "hdf5", fields.is_fields, fields.read_fields),
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


def open_recording(path: Path, layout: str = "") -> Recording:
    """The trajectories of a file or folder; `layout` names the axes of a bare array, as in "btcxy".

    The recording is the same object as before as long as no file has changed: a command asks for its file many times.
    """
    places = sorted(path.rglob("*")) if path.is_dir() else [path]
    found = [place.stat() for place in places if place.is_file()]
    return _kept(path, layout, tuple((state.st_ino, state.st_size, state.st_mtime_ns) for state in found))


@lru_cache(maxsize=2)
def _kept(path: Path, layout: str, versions: tuple[tuple[int, ...], ...]) -> Recording:
    return _recognised(path, layout)


def _recognised(path: Path, layout: str) -> Recording:
    """The recording that the first format makes of a file that recognises it.

    HeroError where it is refused, or claims more than the file or the memory can hold.
    """
    contents = "no arrays"
    for kind in kinds_of(path):
        with opened(kind, path) as content:
            for form in (FORMATS[name] for name in sorted(FORMATS, key=OURS.__contains__)):
                if form.container != kind or not form.recognises(content):
                    continue
                if isinstance(form.read, str):
                    raise HeroError(f"{path} {form.read}")
                try:
                    return check_claim(form.read(path, content, layout))
                except MemoryError:
                    raise HeroError(f"{path} describes more than the memory can hold; save a part of it.") from None
            if kind == "hdf5":
                contents = describe(datasets_in(content, LISTED + 1)) or "no datasets"
    raise HeroError(
        f"{path} has a layout that is not known ({contents}); save its states as one array, with numpy.save or as the "
        "only dataset, and name the axes with `--set data.layout=btcxy`."
    )
