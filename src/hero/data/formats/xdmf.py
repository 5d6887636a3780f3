"""XDMF: an XML file that says which arrays of HDF5 files beside it are the states of a simulation, and on which mesh.

Regular meshes are grids. Points of other meshes, or the centres of their cells, are a grid where they fill one, else a
cloud. The mesh of the first state is that of all.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from hero.data.files.handles import opened_hdf5, read_hdf5
from hero.data.files.recording import Recording
from hero.data.formats.arrays import FileArray, held, stacked
from hero.data.formats.claims import check_hdf5, check_unpacked
from hero.data.formats.named import read_named
from hero.data.formats.tables import gridded
from hero.errors import HeroError

Element = ElementTree.Element
LARGEST = 2**27
"""Bytes of the XML file."""
REGULAR = ("2DCORECTMESH", "3DCORECTMESH", "2DRECTMESH", "3DRECTMESH")


def read_xdmf(path: Path, content: Path, layout: str) -> Recording:
    """One trajectory: the grids of a temporal collection, which are its states."""
    check_unpacked(path, "its XML", path.stat().st_size)
    text = path.read_bytes() if path.stat().st_size < LARGEST else b"<!ENTITY"
    if b"<!ENTITY" in text:
        raise HeroError(f"{path} is above {LARGEST:,} bytes or defines entities; keep its arrays in HDF5.")
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
    arrays = {name: _stacked(path, name, found, order) for name, found in fields.items()}
    word = (
        "t"
        + ("p" if "coords" in lines else "".join(lines))
        + "c" * any(len(array.shape) > 1 + order.ndim for array in arrays.values())
    )
    times = np.array([_time(state, place) for place, state in enumerate(states)])
    known = {name: held(path, name, values) for name, values in {**lines, "t": times}.items()}
    recording = read_named(path, {**known, **arrays}, layout or word, form="xdmf")
    beside = {
        _place_of(path, item)[0] for grid in (mesh, *states) for item in grid.iter("DataItem") if _is_beside(item)
    }
    return replace(recording, files=(path, *sorted(beside)))


def _time(state: Element, place: int) -> float:
    found = state.find("Time")
    return float(found.get("Value", place)) if found is not None else float(place)


def _places(path: Path, mesh: Element, in_cells: bool) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Coordinates by the letter of their axis, or `coords` of a cloud; and which value is at each place of the grid."""
    topology, geometry = mesh.find("Topology"), mesh.find("Geometry")
    assert geometry is not None
    if topology is None:
        raise HeroError(f"{path} has a mesh without topology; write it again.")
    kind = (topology.get("TopologyType") or topology.get("Type") or "").upper()
    parts = [_values(path, item) for item in geometry.findall("DataItem")]
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
    points = points.reshape(
        -1, 2 if (geometry.get("GeometryType") or geometry.get("Type")) == "XY" else points.shape[-1]
    )
    if in_cells:
        item = topology.find("DataItem")
        corners = _values(path, item).astype(np.int64) if item is not None else np.empty(0)
        if kind == "MIXED" or corners.ndim != 2:
            raise HeroError(
                f"{path} has fields in cells of several kinds; write them on the points, or cells of one kind."
            )
        points = points[corners].mean(axis=1)
    found = gridded({**dict(zip("xyz", points.T, strict=False)), "number": np.arange(len(points))})
    return {name: values for name, values in found.items() if name != "number"}, found["number"]


def _stacked(path: Path, name: str, fields: Sequence[Element], order: np.ndarray) -> FileArray:
    """A field with time first, read state by state."""
    items = [field.find("DataItem") for field in fields]
    present = [item for item in items if item is not None]
    if len(present) < len(items) or not order.size:
        raise HeroError(f"{path}: {name} is not there in all states; write it again.")
    like = held(path, name, _on_grid(path, name, order, present[0]))
    return stacked(partial(_on_grid, path, name, order), present, like)


def _on_grid(path: Path, name: str, order: np.ndarray, item: Element) -> np.ndarray:
    """The values of a field in one state, (*space) or (*space, component)."""
    values = _values(path, item)
    if values.size % order.size:
        raise HeroError(f"{path}: {name} has {values.size} numbers for {order.size} places; write it again.")
    found = values.reshape(order.size, -1)[order]
    return found if found.shape[-1] > 1 else found[..., 0]


def _is_beside(item: Element) -> bool:
    return item.get("Format", "XML").upper() == "HDF"


def _place_of(path: Path, item: Element) -> tuple[Path, str]:
    """File and name of a dataset; only files below the folder of the XML file."""
    name, _, dataset = (item.text or "").strip().partition(":")
    file = path.parent / name
    if not dataset or not file.resolve().is_relative_to(path.parent.resolve()) or not file.is_file():
        raise HeroError(f"{path} names {name!r}, which is not a file beside it; copy it there, or correct the name.")
    return file, dataset


def _values(path: Path, item: Element) -> np.ndarray:
    """The numbers of a DataItem, in the shape that it says."""
    shape = tuple(int(n) for n in item.get("Dimensions", "").split())
    if _is_beside(item):
        file, dataset = _place_of(path, item)
        values = _dataset(file, dataset)
    elif item.get("Format", "XML").upper() == "XML":
        values = np.array((item.text or "").split(), dtype=np.float64)
    else:
        raise HeroError(f"{path} keeps arrays as {item.get('Format')}; write them with HDF5.")
    if shape and math.prod(shape) != values.size:
        raise HeroError(f"{path}: an array of {values.size} numbers should have the shape {shape}; write it again.")
    return values.reshape(shape) if shape else values


def _dataset(file: Path, name: str) -> np.ndarray:
    shape = _shapes(file, file.stat().st_mtime_ns).get(name.strip("/"))
    if shape is None:
        raise HeroError(f"{file} has no dataset {name}; copy or write it again.")
    return read_hdf5(file, name, (slice(None),) * len(shape))


@functools.lru_cache(maxsize=8)
def _shapes(file: Path, changed: int) -> dict[str, tuple[int, ...]]:
    """The datasets of an HDF5 file by name, once it was checked."""
    found: dict[str, tuple[int, ...]] = {}
    with opened_hdf5(file) as opened:
        check_hdf5(file, opened)
        opened.visititems(lambda name, item: found.update({name: item.shape} if hasattr(item, "shape") else {}))
    return found
