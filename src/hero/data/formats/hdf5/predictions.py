"""Rollouts that `hero predict` wrote: one array with the names of its channels."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np

from hero.data.formats.hdf5.slabs import States, dataset_of, is_dataset, slabs_of
from hero.data.recording import Axis, Channel, Recording, Trajectory

CLOUD = "point"
"""The name of the axis of a point cloud."""


def is_prediction(file: h5py.File) -> bool:
    """`u` with the name of a run."""
    return is_dataset(file, "u") and "run" in file.attrs and "channels" in file.attrs


def read_prediction(path: Path, file: h5py.File, layout: str) -> Recording:
    """(trajectory, time, channel, *space) as predicted; numbers of the conditioning are in `mu`."""
    shape = dataset_of(file, "u").shape
    words = {name: json.loads(file.attrs[name]) for name in ("channels", "axes", "extent", "periodic", "conditioning")}
    (slab,) = slabs_of(file, path, ["u"], "btcxyz"[: len(shape)], shape[3:])
    table = file["mu"][:] if "mu" in file else np.zeros((shape[0], 0))
    scalars = [dict(zip(words["conditioning"], row.tolist(), strict=False)) for row in table]
    axes = tuple(
        Axis(name, np.linspace(0, extent, points, endpoint=not periodic), None if name == CLOUD else periodic)
        for name, extent, periodic, points in zip(
            words["axes"], words["extent"], words["periodic"], shape[3:], strict=True
        )
    )
    return Recording(
        "prediction",
        (path,),
        tuple(map(Channel, words["channels"])),
        axes,
        float(file.attrs["dt"]),
        [Trajectory(shape[1], States((slab.of(i),)), numbers) for i, numbers in enumerate(scalars)],
    )
