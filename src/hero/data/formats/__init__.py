"""Readers of people's files, one per layout: recognised by the contents of a file, never by its name.

    recording = open_recording(Path("1D_Advection_Sols_beta0.1.hdf5"))

A reader is an entry of `READERS`; to add one is one line, also from outside:

    READERS["lab"] = Reader("our lab", "hdf5", lambda file: "shot" in file, read_lab)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hero.config import Registry
from hero.data.formats.apebench import is_apebench, read_apebench, read_split_files, split_files
from hero.data.formats.containers import Reader, array_files, containers_of
from hero.data.formats.cfdbench import case_folders, read_cfdbench
from hero.data.formats.hdf5 import HDF5_READERS
from hero.data.formats.join import check_formats, hdf5_files, join, split_of, with_split
from hero.data.formats.matlab import read_matlab
from hero.data.formats.named import read_named
from hero.data.formats.npy import is_phiflow, read_npy, read_phiflow
from hero.data.formats.torch import is_neuralop, read_neuralop, read_torch
from hero.data.formats.xarray import read_xarray
from hero.data.formats.zarr import read_zarr
from hero.data.formats.claims import check_claim
from hero.data.recording import Recording
from hero.errors import HeroError

__all__ = ["READERS", "Reader", "open_recording"]


def _read_folder(folder: Path, content: Path, layout: str) -> Recording:
    """The HDF5 or array files of a folder as one recording; a folder train, valid or test below it names a split."""
    paths = hdf5_files(folder) or array_files(folder)
    recordings = [with_split(open_recording(path, layout), split_of(path, folder)) for path in paths]
    check_formats(recordings)
    reader = READERS.get(recordings[0].format)
    return (reader.join if reader and reader.join else join)(recordings)


def _has_files(folder: Path) -> bool:
    return bool(hdf5_files(folder) or array_files(folder))


READERS: Registry[Reader] = Registry(
    "format",
    {
        "cfdbench": Reader("CFDBench", "folder", lambda folder: bool(case_folders(folder)), read_cfdbench),
        "apebench": Reader("APEBench", "name", is_apebench, read_apebench),
        "splits": Reader("NumPy array per split", "folder", lambda folder: bool(split_files(folder)), read_split_files),
        **HDF5_READERS,
        "folder": Reader("folder of files", "folder", _has_files, _read_folder),
        "npy": Reader("NumPy array", "npy", lambda array: True, read_npy),
        "phiflow": Reader("PhiFlow scene", "npz", is_phiflow, read_phiflow),
        "npz": Reader("NumPy arrays by name", "npz", lambda arrays: True, read_named),
        "neuralop": Reader("neuralop", "torch", is_neuralop, read_neuralop),
        "torch": Reader("PyTorch tensors", "torch", lambda tensors: True, read_torch),
        "matlab": Reader("MATLAB", "mat", lambda variables: True, read_matlab),
        "netcdf": Reader("NetCDF", "netcdf", lambda dataset: True, read_xarray),
        "zarr": Reader("Zarr", "zarr", lambda store: True, read_zarr),
    },
)
"""In the order in which they are asked; the first that recognises a file reads it."""


def checked(reader: Reader, path: Path, content: Any, layout: str) -> Recording:
    """The recording of a file; HeroError where it describes more than the file or the memory can hold."""
    try:
        return check_claim(reader.read(path, content, layout))
    except MemoryError:
        raise HeroError(f"{path} describes more than the memory can hold; save a part of it.") from None


def open_recording(path: Path, layout: str = "") -> Recording:
    """The trajectories of a file or folder; `layout` names the axes of a bare array, as in "btcxy"."""
    path = Path(path)
    contents = ""
    for container in containers_of(path):
        with container.opened(path) as content:
            for reader in READERS.values():
                if reader.container == container.kind and reader.recognises(content):
                    return checked(reader, path, content, layout)
            contents = contents or container.describe(content)
    raise HeroError(
        f"{path} has a layout that no reader knows ({contents or 'see `hero doctor`'}); "
        "save its states as one array, with numpy.save or as the only dataset, and name the axes with "
        "`--set data.layout=btcxy`."
    )
