"""Formats of people's files, one per layout: recognised by the contents of a file, never by its name.

    recording = open_recording(Path("1D_Advection_Sols_beta0.1.hdf5"))

A format is an entry of `FORMATS`; to add one is one line, also from outside:

    FORMATS["lab"] = Format("our lab", "hdf5", lambda file: "shot" in file, read_lab)
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from hero.config import Registry
from hero.data.formats.arrays import LISTED, describe
from hero.data.formats.claims import check_claim
from hero.data.formats.containers import Format, files_of, kinds_of, opened, refused
from hero.data.formats.folders import (
    case_folders,
    read_apebench,
    read_cfdbench,
    read_split_files,
    split_files,
    with_split,
)
from hero.data.formats.hdf5.datasets import datasets_in
from hero.data.formats.hdf5.dedalus import is_dedalus, join_dedalus, read_dedalus
from hero.data.formats.hdf5.layouts import read_layout
from hero.data.formats.hdf5.pbdl import is_pbdl, read_pbdl
from hero.data.formats.hdf5.table import LAYOUTS, is_particles
from hero.data.formats.hdf5.well import is_well, join_well, read_well
from hero.data.formats.join import join
from hero.data.formats.matlab import is_matlab73, read_matlab, read_matlab73
from hero.data.formats.named import read_named
from hero.data.formats.npy import is_phiflow, read_npy
from hero.data.formats.torch import is_neuralop, read_neuralop
from hero.data.formats.xarray import read_xarray, read_zarr
from hero.data.recording import Recording
from hero.errors import HeroError

__all__ = ["FORMATS", "READERS", "Format", "open_recording"]


def _read_folder(path: Path, folder: Path, layout: str) -> Recording:
    """The HDF5 or array files of a folder as one recording; a folder train, valid or test below it names a split."""
    recordings = [with_split(open_recording(file, layout), file, folder) for file in files_of(folder)]
    form = FORMATS.get(recordings[0].format)
    return (form.join if form else join)(recordings)


def _always(content: Any) -> bool:
    return True


REFUSED = {
    "lagrangebench": "holds particles (LagrangeBench), which move; hero reads states on a grid or on fixed points.",
    "phiflow": "is one frame of a PhiFlow scene, too short for a trajectory; stack the `data` of all frames, save "
    "(time, channel, *space) with numpy.save and add `--set data.layout=tcxy`.",
    "pickle": "is a Python pickle, which can run code when it is opened; save the array with numpy.save.",
    "zip": "is a zip file without arrays; unpack it and name the file or folder inside.",
}
"""Files that are known and not read, and why."""


FORMATS: Registry[Format] = Registry(
    "format",
    {
        "cfdbench": Format("CFDBench", "folder", lambda folder: bool(case_folders(folder)), read_cfdbench),
        "apebench": Format("APEBench", "name", lambda name: name.startswith("apebench:"), read_apebench),
        "splits": Format("NumPy array per split", "folder", lambda folder: bool(split_files(folder)), read_split_files),
        "well": Format("The Well", "hdf5", is_well, read_well, join_well),
        "dedalus": Format("Dedalus", "hdf5", is_dedalus, read_dedalus, join_dedalus),
        "pbdl": Format("PBDL", "hdf5", is_pbdl, read_pbdl),
        "matlab73": Format("MATLAB 7.3", "hdf5", is_matlab73, read_matlab73),
        "lagrangebench": Format("LagrangeBench", "hdf5", is_particles, refused(REFUSED["lagrangebench"])),
        **{n: Format(row.title, "hdf5", row.recognises, partial(read_layout, n, row)) for n, row in LAYOUTS.items()},
        "folder": Format("folder of files", "folder", lambda folder: bool(files_of(folder)), _read_folder),
        "npy": Format("NumPy array", "npy", _always, read_npy),
        "phiflow": Format("PhiFlow scene", "npz", is_phiflow, refused(REFUSED["phiflow"])),
        "npz": Format("NumPy arrays by name", "npz", _always, read_named),
        "neuralop": Format("neuralop", "torch", is_neuralop, read_neuralop),
        "torch": Format("PyTorch tensors", "torch", _always, partial(read_named, form="torch")),
        "matlab": Format("MATLAB", "mat", _always, read_matlab),
        "netcdf": Format("NetCDF", "netcdf", _always, read_xarray),
        "zarr": Format("Zarr", "zarr", _always, read_zarr),
        "pickle": Format("Python pickle", "pickle", _always, refused(REFUSED["pickle"])),
        "zip": Format("zip file", "zip", _always, refused(REFUSED["zip"])),
    },
)
"""In the order in which they are asked; the first that recognises a file reads it."""
READERS = FORMATS
"""The name of `FORMATS` in version 0.2 and before."""


def open_recording(path: Path, layout: str = "") -> Recording:
    """The trajectories of a file or folder; `layout` names the axes of a bare array, as in "btcxy"."""
    path, contents = Path(path), "see `hero doctor`"
    for kind in kinds_of(path):
        with opened(kind, path) as content:
            for form in FORMATS.values():
                if form.container == kind and form.recognises(content):
                    return _checked(form, path, content, layout)
            if kind == "hdf5":
                contents = describe(datasets_in(content, LISTED + 1)) or "no datasets"
    raise HeroError(
        f"{path} has a layout that is not known ({contents}); save its states as one array, with numpy.save or as the "
        "only dataset, and name the axes with `--set data.layout=btcxy`."
    )


def _checked(form: Format, path: Path, content: Any, layout: str) -> Recording:
    """The recording of a file; HeroError where it describes more than the file or the memory can hold."""
    try:
        return check_claim(form.read(path, content, layout))
    except MemoryError:
        raise HeroError(f"{path} describes more than the memory can hold; save a part of it.") from None
