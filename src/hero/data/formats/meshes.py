"""Meshes: files that VTK reads, OpenFOAM cases (a folder per time with fields in the cells), and XDMF, an XML file that
says which arrays of HDF5 files beside it are the states of a simulation, and on which mesh.

Points, or the centres of cells, that fill a grid become one, others a cloud; several cases are trajectories. The mesh
of the first state of XDMF is that of all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from hero.data.files.handles import BOMB, check_hdf5, check_unpacked, opened_hdf5, read_hdf5
from hero.data.files.recording import Recording
from hero.data.formats.arrays import FileArray, held, loaded, stacked
from hero.data.formats.folders import read_snapshots
from hero.data.formats.named import read_named
from hero.data.formats.names import NameRule, Place, natural
from hero.data.formats.plain import gridded, needs
from hero.errors import HeroError

TIME = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")
VTK_TYPES = {"ImageData", "RectilinearGrid", "StructuredGrid", "UnstructuredGrid", "PolyData"}
CLAIMS = re.compile(
    rb"(?:NumberOfPoints|NumberOfCells|WholeExtent)=\"([-\d ]+)\"|^(?:DIMENSIONS|POINTS|CELLS|POINT_DATA)((?: +\d+)+)",
    re.MULTILINE,
)
"""Sizes that a VTK file announces, in XML and in the older format."""
CLAIM = re.compile(rb"(?:List<\w+>\s*|^)(\d+)\s*\(?\s*$", re.MULTILINE)  # the number of entries before an OpenFOAM list
Element = ElementTree.Element
LARGEST_XML = 2**27
REGULAR = ("2DCORECTMESH", "3DCORECTMESH", "2DRECTMESH", "3DRECTMESH")


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
    rule = NameRule("{b}/{t}", places, dated=False, counted=False)
    recording = read_snapshots(folder, rule, layout, partial(loaded, _read_time))
    files = tuple(file for name in places for file in sorted((folder / name).iterdir()) if file.is_file())
    return replace(recording, format="openfoam", files=files)


def _read_time(path: Path) -> dict[str, np.ndarray]:
    for file in (*path.iterdir(), *(path.parent / "constant" / "polyMesh").iterdir()):
        if file.is_file():
            with file.open("rb") as stream:
                head, size = stream.read(1 << 14), file.stat().st_size
            if b"#include" in head or any(int(n) > BOMB * size for n in CLAIM.findall(head)):
                told = "includes other files or claims more than"
                raise HeroError(f"{file} {told} its {size:,} bytes hold; write it again.")
    reader = _reader(path.parent)
    reader.UpdateTimeStep(float(path.name))
    mesh = reader.GetOutput().GetBlock(0)
    if mesh is None or not mesh.GetNumberOfCells():
        raise HeroError(f"{path.parent} has no cells, or its mesh is damaged; check the case with checkMesh.")
    return _fields(mesh, in_cells=True)


@lru_cache(maxsize=2)
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


def read_vtk(path: Path) -> dict[str, np.ndarray]:
    """The fields on the points of a VTK file, or in its cells where points have none."""
    needs(path, "vtkmodules", "vtk")
    from vtkmodules.vtkCommonCore import vtkObject
    from vtkmodules.vtkIOLegacy import vtkGenericDataObjectReader
    from vtkmodules.vtkIOXML import vtkXMLGenericDataObjectReader

    with path.open("rb") as file:
        head, size = file.read(1 << 16), path.stat().st_size
    kind = re.search(rb"<VTKFile[^>]*?\stype=\"(\w+)\"", head)
    if kind and kind[1].decode() not in VTK_TYPES:
        raise HeroError(f"{path} is a {kind[1].decode()} file of VTK, which names other files; name these.")
    for xml, old in CLAIMS.findall(head):
        numbers = [int(word) for word in (xml or old).split()]
        extent = zip(numbers[::2], numbers[1::2], strict=True) if xml and len(numbers) == 6 else ()
        claimed = math.prod(max(n, 1) for n in [high - low + 1 for low, high in extent] or numbers)
        if claimed > BOMB * size:
            raise HeroError(f"{path} claims {claimed:,} points in {size:,} bytes; save it again.")
    vtkObject.GlobalWarningDisplayOff()  # what is wrong is said below
    reader = vtkXMLGenericDataObjectReader() if b"<VTKFile" in head else vtkGenericDataObjectReader()
    reader.SetFileName(str(path))
    reader.Update()
    mesh = reader.GetOutput()
    if mesh is None or not mesh.GetNumberOfPoints():
        raise HeroError(f"{path} holds no points, or is damaged; save it again.")
    return _fields(mesh, in_cells=not mesh.GetPointData().GetNumberOfArrays())


def _fields(mesh: Any, in_cells: bool) -> dict[str, np.ndarray]:
    """The fields on the points or in the cells of a mesh, copied, since a reader may use their memory again.

    On a grid, x runs fastest.
    """
    from vtkmodules.util.numpy_support import vtk_to_numpy
    from vtkmodules.vtkFiltersCore import vtkCellCenters

    data = mesh.GetCellData() if in_cells else mesh.GetPointData()
    if in_cells:
        centres = vtkCellCenters()
        centres.SetInputData(mesh)
        centres.Update()
        mesh = centres.GetOutput()
    fields = {data.GetArrayName(i): vtk_to_numpy(data.GetArray(i)).copy() for i in range(data.GetNumberOfArrays())}
    if mesh.IsA("vtkPointSet"):
        return gridded({**dict(zip("xyz", vtk_to_numpy(mesh.GetPoints().GetData()).T, strict=True)), **fields})
    if mesh.IsA("vtkImageData"):
        facts = zip(mesh.GetOrigin(), mesh.GetSpacing(), mesh.GetExtent()[::2], mesh.GetDimensions(), strict=True)
        lines = [origin + step * (low + np.arange(n)) for origin, step, low, n in facts]
    else:
        lines = [vtk_to_numpy(line()) for line in (mesh.GetXCoordinates, mesh.GetYCoordinates, mesh.GetZCoordinates)]
    places = [axis.ravel(order="F") for axis in np.meshgrid(*lines, indexing="ij")]
    return gridded({**dict(zip("xyz", places, strict=True)), **fields})


def read_xdmf(path: Path, content: Path, layout: str) -> Recording:
    """One trajectory: the grids of a temporal collection, which are its states."""
    check_unpacked(path, "its XML", path.stat().st_size)
    text = path.read_bytes() if path.stat().st_size < LARGEST_XML else b"<!ENTITY"
    if b"<!ENTITY" in text:
        raise HeroError(f"{path} is above {LARGEST_XML:,} bytes or defines entities; keep its arrays in HDF5.")
    root = ElementTree.fromstring(text)
    states = [grid for grid in root.iter("Grid") if grid.find("Attribute") is not None]
    meshes = [grid for grid in root.iter("Grid") if grid.find("Geometry") is not None]
    if not states or not meshes:
        raise HeroError(f"{path} has no grid with a geometry and attributes; write states of a mesh with their times.")
    fields: dict[str, list[Element]] = {}
    for state in states:
        for field in state.findall("Attribute"):
            fields.setdefault(field.get("Name", "u"), []).append(field)
    fields = {name: found for name, found in fields.items() if len(found) == len(states)}
    centres = {field.get("Center", "Node").lower() for found in fields.values() for field in found}
    if centres not in ({"node"}, {"cell"}):
        raise HeroError(f"{path} has no field in all states, or fields on points and cells; write one kind of them.")
    mesh = next((grid for grid in meshes if grid is states[0]), meshes[0])
    lines, order = _places(path, mesh, centres == {"cell"})
    arrays = {name: _in_time(path, name, found, order) for name, found in fields.items()}
    word = "tp" if "coords" in lines else "t" + "".join(lines)
    word += "c" * any(len(array.shape) > 1 + order.ndim for array in arrays.values())
    clock = [state.find("Time") for state in states]
    times = np.array([float(n if time is None else time.get("Value", n)) for n, time in enumerate(clock)])
    known = {name: held(path, name, values) for name, values in {**lines, "t": times}.items()}
    recording = read_named(path, {**known, **arrays}, layout or word, form="xdmf")
    items = [item for grid in (mesh, *states) for item in grid.iter("DataItem") if _is_beside(item)]
    beside = {_place_of(path, item)[0] for item in items}
    return replace(recording, files=(path, *sorted(beside)))


def _places(path: Path, mesh: Element, in_cells: bool) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Coordinates by the letter of their axis, or `coords` of a cloud; and which value is at each place of the grid."""
    topology, geometry = mesh.find("Topology"), mesh.find("Geometry")
    assert topology is not None
    assert geometry is not None
    kind = (topology.get("TopologyType") or topology.get("Type") or "").upper()
    parts = [_numbers(path, item) for item in geometry.findall("DataItem")]
    if kind in REGULAR:
        sizes = [int(n) for n in (topology.get("Dimensions") or topology.get("NumberOfElements") or "").split()]
        letters = "zyx"[-len(sizes) :]
        if "CORECT" in kind:
            origin, spacing = (part.ravel() for part in parts)
            lines = {c: o + d * np.arange(n) for c, o, d, n in zip(letters, origin, spacing, sizes, strict=True)}
        else:
            lines = {c: part.ravel() for c, part in zip(letters, reversed(parts), strict=True)}
        if in_cells:
            lines = {letter: (line[1:] + line[:-1]) / 2 for letter, line in lines.items()}
        shape = tuple(map(len, lines.values()))
        return lines, np.arange(math.prod(shape)).reshape(shape)
    points = np.stack([part.ravel() for part in parts], axis=1) if len(parts) > 1 else parts[0]
    flat = (geometry.get("GeometryType") or geometry.get("Type")) == "XY"
    points = points.reshape(-1, 2 if flat else points.shape[-1])
    if in_cells:
        item = topology.find("DataItem")
        corners = _numbers(path, item).astype(np.int64) if item is not None else np.empty(0)
        if kind == "MIXED" or corners.ndim != 2:
            raise HeroError(f"{path} has fields in cells of several kinds; write them on points or cells of one kind.")
        points = points[corners].mean(axis=1)
    found = gridded({**dict(zip("xyz", points.T, strict=False)), "number": np.arange(len(points))})
    return {name: values for name, values in found.items() if name != "number"}, found["number"]


def _in_time(path: Path, name: str, fields: Sequence[Element], order: np.ndarray) -> FileArray:
    """A field with time first, read state by state."""

    def on_grid(field: Element) -> np.ndarray:
        """(*space) or (*space, component)."""
        item = field.find("DataItem")
        assert item is not None
        found = _numbers(path, item).reshape(order.size, -1)[order]
        return found if found.shape[-1] > 1 else found[..., 0]

    return stacked(on_grid, fields, held(path, name, on_grid(fields[0])))


def _is_beside(item: Element) -> bool:
    return item.get("Format", "XML").upper() == "HDF"


def _place_of(path: Path, item: Element) -> tuple[Path, str]:
    """File and name of a dataset; only files below the folder of the XML file."""
    name, _, dataset = (item.text or "").strip().partition(":")
    file = path.parent / name
    if not dataset or not file.resolve().is_relative_to(path.parent.resolve()) or not file.is_file():
        raise HeroError(f"{path} names {name!r}, which is not a file beside it; copy it there, or correct the name.")
    return file, dataset


def _numbers(path: Path, item: Element) -> np.ndarray:
    """The numbers of a DataItem, in the shape that it says."""
    shape = tuple(int(n) for n in item.get("Dimensions", "").split())
    if _is_beside(item):
        file, dataset = _place_of(path, item)
        _check_beside(file, file.stat().st_mtime_ns)
        values = read_hdf5(file, dataset, (...,))
    elif item.get("Format", "XML").upper() == "XML":
        values = np.array((item.text or "").split(), dtype=np.float64)
    else:
        raise HeroError(f"{path} keeps arrays as {item.get('Format')}; write them with HDF5.")
    return values.reshape(shape) if shape else values


@lru_cache(maxsize=8)
def _check_beside(file: Path, changed: int) -> None:
    with opened_hdf5(file) as opened:
        check_hdf5(file, opened)
