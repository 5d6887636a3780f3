"""Writers of small files in the layouts of others, from known arrays: NumPy, MATLAB, PyTorch, Zarr, CFDBench."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import torch

from conftest import Later

matlab = Later("scipy.io")


def states(*shape: int, seed: int = 0) -> np.ndarray:
    """Random float64 numbers, no two of them equal."""
    return np.random.default_rng(seed).standard_normal(shape)


class Trap:
    """An object whose unpickling creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.path), "w")


def write_npz_trap(path: Path, trap: Path, **arrays: np.ndarray) -> Path:
    """A .npz file in which one member, `note`, is a pickle that creates `trap`."""
    np.savez(path, note=np.array([Trap(trap)], dtype=object), **arrays)
    return path


def write_phiflow(path: Path, trap: Path) -> Path:
    """A frame of a PhiFlow scene; `extrapolation` is a pickle."""
    np.savez_compressed(
        path,
        dim_names=np.array(["x", "y", "vector"]),
        dim_types=np.array(["spatial", "spatial", "channel"]),
        field_type=np.array("StaggeredGrid"),
        lower=np.zeros(2),
        upper=np.ones(2),
        extrapolation=np.array(Trap(trap), dtype=object),
        data=states(9, 5, 2).astype(np.float32),
    )
    return path


def write_fno(path: Path, u: np.ndarray, with_start: bool) -> Path:
    """Navier-Stokes data of FNO: u (N, H, W, T), and a (N, H, W) or t (1, T)."""
    n, time = u.shape[0], u.shape[1]
    extra = {"a": states(n, *u.shape[2:])} if with_start else {"t": np.arange(1.0, time + 1)[None]}
    matlab.savemat(path, {"u": np.moveaxis(u, 1, -1), **extra})
    return path


def write_pinn(path: Path, u: np.ndarray, x: np.ndarray, t: np.ndarray, names: str, transposed: bool) -> Path:
    """One solution: u (time, x), stored as (x, time) or `transposed`; x as a row, t as a column."""
    solution, time = names.split()
    matlab.savemat(path, {solution: u if transposed else u.T, time: t[:, None], "x": x[None]}, do_compression=True)
    return path


def write_neuralop(path: Path, x: np.ndarray, y: np.ndarray, visc: float) -> Path:
    """neuralop: strided float64 tensors that are views of one larger array."""
    stored = torch.from_numpy(np.ascontiguousarray(np.moveaxis(y, 0, -1)))  # (time, x, N)
    start = torch.from_numpy(np.ascontiguousarray(x.T))
    torch.save({"x": start.T, "y": stored.permute(2, 0, 1), "visc": torch.tensor([[visc]], dtype=torch.float64)}, path)
    return path


def write_torch_trap(path: Path, trap: Path) -> Path:
    """A file of torch.save with an object that creates `trap` when unpickled."""
    torch.save({"u": torch.zeros(2, 3, 1, 8), "note": Trap(trap)}, path)
    return path


def write_pickle(path: Path, trap: Path) -> Path:
    """A bare pickle."""
    path.write_bytes(pickle.dumps(Trap(trap)))
    return path


def write_cfdbench(folder: Path, cases: list[tuple[np.ndarray, dict[str, object]]]) -> Path:
    """A folder per case: u.npy and v.npy (time, height, width), and case.json; cases are (time, 2, height, width)."""
    for number, (u, settings) in enumerate(cases):
        case = folder / "bc" / f"case{number:04d}"
        case.mkdir(parents=True)
        np.save(case / "u.npy", u[:, 0])
        np.save(case / "v.npy", u[:, 1])
        (case / "case.json").write_text(json.dumps(settings))
    return folder


def write_zarr_trap(folder: Path, trap: Path, place: str) -> Path:
    """A store of Zarr 2 whose coordinate has the codec pickle as its `place`, filter or compressor."""
    codec = {"id": "pickle", "protocol": 5}
    described = {"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "<i8", "fill_value": 0, "order": "C"}
    described |= {
        "compressor": codec if place == "compressor" else None,
        "filters": [codec] if place == "filter" else None,
    }
    (folder / "time").mkdir(parents=True)
    (folder / ".zgroup").write_text(json.dumps({"zarr_format": 2}))
    (folder / "time" / ".zarray").write_text(json.dumps(described))
    (folder / "time" / ".zattrs").write_text(json.dumps({"_ARRAY_DIMENSIONS": ["time"]}))
    (folder / "time" / "0").write_bytes(pickle.dumps(Trap(trap)))
    return folder
