"""OpenFOAM cases, read by VTK: a folder per time, whose fields lie in the cells; several cases are trajectories."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hero.data.files.recording import Recording
from hero.data.formats.arrays import FileArray
from hero.data.formats.claims import BOMB
from hero.data.formats.names import NameRule, Place, natural
from hero.data.formats.snapshots import read_snapshots
from hero.data.formats.tables import arrays_of, gridded, needs
from hero.errors import HeroError

TIME = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")
CLAIM = re.compile(rb"(?:List<\w+>\s*|^)(\d+)\s*\(?\s*$", re.MULTILINE)
"""The number of entries before a list."""


def cases_of(folder: Path) -> list[Path]:
    """The folder where it is a case, else the cases in it; not such as are cut into parts of processors."""
    found = [case for case in (folder, *folder.iterdir()) if (case / "system" / "controlDict").is_file()]
    found = [case for case in found if (case / "constant" / "polyMesh").is_dir()]
    return [folder] if folder in found else sorted(found, key=lambda case: natural(case.name))


def read_openfoam(path: Path, folder: Path, layout: str) -> Recording:
    """A trajectory per case, on a grid where the centres of its cells fill one."""
    needs(path, "vtkmodules", "vtk")
    places: dict[str, Place] = {}
    for case in cases_of(folder):
        times = [item for item in case.iterdir() if item.is_dir() and TIME.fullmatch(item.name)]
        for time in sorted(times, key=lambda item: float(item.name)):
            places[time.relative_to(folder).as_posix()] = Place(case.name, "", float(time.name))
    if not places:
        raise HeroError(f"{folder} is an OpenFOAM case without folders of times; run it, or reconstruct it.")
    recording = read_snapshots(folder, NameRule("{b}/{t}", places, dated=False, counted=False), layout, open_time)
    files = tuple(file for name in places for file in sorted((folder / name).iterdir()) if file.is_file())
    return replace(recording, format="openfoam", files=files)


def open_time(path: Path) -> dict[str, FileArray]:
    """The fields of one time of a case."""
    return arrays_of(_read_time, path)


def _read_time(path: Path) -> dict[str, np.ndarray]:
    from vtkmodules.util.numpy_support import vtk_to_numpy
    from vtkmodules.vtkFiltersCore import vtkCellCenters

    for file in (*path.iterdir(), *(path.parent / "constant" / "polyMesh").iterdir()):
        if file.is_file():
            _check(file)
    reader = _reader(path.parent)
    reader.UpdateTimeStep(float(path.name))
    mesh = reader.GetOutput().GetBlock(0)
    if mesh is None or not mesh.GetNumberOfCells():
        raise HeroError(f"{path.parent} has no cells, or its mesh is damaged; check the case with checkMesh.")
    centres, data = vtkCellCenters(), mesh.GetCellData()
    centres.SetInputData(mesh)
    centres.Update()
    points = vtk_to_numpy(centres.GetOutput().GetPoints().GetData()).T
    fields = {data.GetArrayName(i): vtk_to_numpy(data.GetArray(i)) for i in range(data.GetNumberOfArrays())}
    return gridded({**dict(zip("xyz", points, strict=True)), **{n: v.copy() for n, v in fields.items()}})


@functools.lru_cache(maxsize=2)
def _reader(case: Path) -> Any:
    """The reader of a case, which keeps its mesh."""
    from vtkmodules.vtkCommonCore import vtkObject
    from vtkmodules.vtkIOGeometry import vtkOpenFOAMReader

    vtkObject.GlobalWarningDisplayOff()
    reader = vtkOpenFOAMReader()
    reader.SetFileName(str(case / "system" / "controlDict"))
    reader.SkipZeroTimeOff()
    reader.CreateCellToPointOff()
    reader.UpdateInformation()
    return reader


def _check(file: Path) -> None:
    """Refuse a file that reads others, or announces more than it can hold."""
    with file.open("rb") as stream:
        head = stream.read(1 << 14)
    size = file.stat().st_size
    if b"#include" in head or any(int(n) > BOMB * size for n in CLAIM.findall(head)):
        raise HeroError(f"{file} includes other files or claims more than its {size:,} bytes hold; write it again.")
