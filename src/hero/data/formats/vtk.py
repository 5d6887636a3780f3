"""What VTK reads: its meshes, and OpenFOAM cases, a folder per time with fields in the cells.

Points, or the centres of cells, that fill a grid become one, others a cloud; several cases are trajectories.
"""

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
VTK_TYPES = {"ImageData", "RectilinearGrid", "StructuredGrid", "UnstructuredGrid", "PolyData"}
CLAIMS = re.compile(
    rb"(?:NumberOfPoints|NumberOfCells|WholeExtent)=\"([-\d ]+)\"|^(?:DIMENSIONS|POINTS|CELLS|POINT_DATA)((?: +\d+)+)",
    re.MULTILINE,
)
"""Sizes that a VTK file announces, in XML and in the older format."""
CLAIM = re.compile(rb"(?:List<\w+>\s*|^)(\d+)\s*\(?\s*$", re.MULTILINE)
"""The number of entries before a list in a file of OpenFOAM."""


def open_vtk(path: Path) -> dict[str, FileArray]:
    """The fields on the points of a VTK file, or in its cells where points have none."""
    needs(path, "vtkmodules", "vtk")
    return arrays_of(_read_vtk, path)


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
    for file in (*path.iterdir(), *(path.parent / "constant" / "polyMesh").iterdir()):
        if file.is_file():
            _check(file)
    reader = _reader(path.parent)
    reader.UpdateTimeStep(float(path.name))
    mesh = reader.GetOutput().GetBlock(0)
    if mesh is None or not mesh.GetNumberOfCells():
        raise HeroError(f"{path.parent} has no cells, or its mesh is damaged; check the case with checkMesh.")
    return _fields(mesh, in_cells=True)


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


def _check_vtk(path: Path, head: bytes) -> None:
    """Refuse a file that announces far more points than it can hold, or that only names other files."""
    kind = re.search(rb"<VTKFile[^>]*?\stype=\"(\w+)\"", head)
    if kind and kind[1].decode() not in VTK_TYPES:
        raise HeroError(f"{path} is a {kind[1].decode()} file of VTK, which names other files; name these.")
    for xml, old in CLAIMS.findall(head):
        numbers = [int(word) for word in (xml or old).split()]
        if xml and len(numbers) == 6:
            numbers = [high - low + 1 for low, high in zip(numbers[::2], numbers[1::2], strict=True)]
        claimed = 1
        for number in numbers:
            claimed *= max(number, 1)
        if claimed > BOMB * path.stat().st_size:
            raise HeroError(f"{path} claims {claimed:,} points in {path.stat().st_size:,} bytes; save it again.")


def _read_vtk(path: Path) -> dict[str, np.ndarray]:
    from vtkmodules.vtkCommonCore import vtkObject
    from vtkmodules.vtkIOLegacy import vtkGenericDataObjectReader
    from vtkmodules.vtkIOXML import vtkXMLGenericDataObjectReader

    with path.open("rb") as file:
        head = file.read(1 << 16)
    _check_vtk(path, head)
    vtkObject.GlobalWarningDisplayOff()  # what is wrong is said below
    reader = vtkXMLGenericDataObjectReader() if b"<VTKFile" in head else vtkGenericDataObjectReader()
    reader.SetFileName(str(path))
    reader.Update()
    mesh = reader.GetOutput()
    if mesh is None or not mesh.GetNumberOfPoints():
        raise HeroError(f"{path} holds no points, or is damaged; save it again.")
    return _fields(mesh, in_cells=not mesh.GetPointData().GetNumberOfArrays())


def _fields(mesh: Any, in_cells: bool) -> dict[str, np.ndarray]:
    """The fields on the points or in the cells of a mesh, copied, since a reader may use their memory again."""
    from vtkmodules.util.numpy_support import vtk_to_numpy
    from vtkmodules.vtkFiltersCore import vtkCellCenters

    data = mesh.GetCellData() if in_cells else mesh.GetPointData()
    if in_cells:
        centres = vtkCellCenters()
        centres.SetInputData(mesh)
        centres.Update()
        mesh = centres.GetOutput()
    fields = {data.GetArrayName(i): vtk_to_numpy(data.GetArray(i)).copy() for i in range(data.GetNumberOfArrays())}
    return gridded({**dict(zip("xyz", _vtk_places(mesh), strict=True)), **fields})


def _vtk_places(mesh: Any) -> list[np.ndarray]:
    """x, y and z of the points of a mesh, in its order: x runs fastest on a grid."""
    from vtkmodules.util.numpy_support import vtk_to_numpy

    if mesh.IsA("vtkPointSet"):
        return list(vtk_to_numpy(mesh.GetPoints().GetData()).T)
    if mesh.IsA("vtkImageData"):
        facts = zip(mesh.GetOrigin(), mesh.GetSpacing(), mesh.GetExtent()[::2], mesh.GetDimensions(), strict=True)
        lines = [origin + step * (low + np.arange(n)) for origin, step, low, n in facts]
    else:
        lines = [vtk_to_numpy(line()) for line in (mesh.GetXCoordinates, mesh.GetYCoordinates, mesh.GetZCoordinates)]
    return [axis.ravel(order="F") for axis in np.meshgrid(*lines, indexing="ij")]
