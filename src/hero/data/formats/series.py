"""Arrays beside the states that depend on time: numbers or fields that may serve as forcing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from hero.data.files.recording import SPELLINGS, Recording
from hero.data.formats.arrays import FileArray, describe

FORCING = "forcing"
"""The name of an array ([trajectory,] time, number[, *space])."""


def with_series(recording: Recording, arrays: Mapping[str, FileArray]) -> Recording:
    """The recording with every array that is ([trajectory,] time[, number][, *space]); `heat_train` is of a split.

    All are listed as not used otherwise.
    """
    used = set[str]()
    found: list[dict[str, Callable[[slice], np.ndarray]]] = [{} for _ in recording.trajectories]
    for split in dict.fromkeys(one.split for one in recording.trajectories):
        rows = [i for i, one in enumerate(recording.trajectories) if one.split == split]
        frames = max(recording.trajectories[i].frames for i in rows)
        for name, array in arrays.items():
            base, own_split = base_and_split(name)
            base = base if own_split in ("", split) else ""
            numeric = np.dtype(array.dtype).kind in "fiu"
            axes = _axes(base, array.shape, len(rows), frames, recording.space) if base and numeric else ""
            used |= {name} if axes else set()
            count = array.shape[axes.index("c")] if "c" in axes else 1
            for place, i in enumerate(rows):
                for number in range(count if axes else 0):
                    read = partial(_read, array, axes, place, number)
                    found[i][base if "c" not in axes else f"{base}_{number}"] = read
    runs = [replace(one, series={**one.series, **own}) for one, own in zip(recording.trajectories, found, strict=True)]
    if not arrays:
        return recording
    as_forcing = f"; {', '.join(sorted(used))} only as forcing, where data.forcing names it" if used else ""
    return replace(recording, trajectories=runs, notes=(*recording.notes, f"Not used: {describe(arrays)}{as_forcing}."))


def base_and_split(name: str) -> tuple[str, str]:
    """(reynolds, train) for reynolds_train and train_reynolds."""
    for word, split in SPELLINGS.items():
        base = name.removesuffix(f"_{word}").removeprefix(f"{word}_")
        if base != name:
            return base, split
    return name, ""


def _axes(name: str, shape: tuple[int, ...], rows: int, frames: int, space: tuple[int, ...]) -> str:
    """A letter for each axis, b t c and s for all of space; empty where the array is something else."""
    for axes, wanted in (("bt", (rows, frames)), ("t", (frames,))):
        rest = shape[len(axes) :]
        if shape[: len(axes)] == wanted:
            for word, sizes in (("", ()), ("s", space), ("c", rest[:1]), ("cs", (*rest[:1], *space))):
                if rest == sizes and (name != FORCING or "c" in word):
                    return axes + word
    return ""


def _read(array: FileArray, axes: str, row: int, number: int, frames: slice) -> np.ndarray:
    """(time,), or (time, *space)."""
    chosen: dict[str, int | slice] = {"b": row, "t": frames, "c": number}
    places = tuple(chosen[letter] for letter in axes if letter != "s")
    return np.asarray(array[(*places, *(slice(None),) * (len(array.shape) - len(places)))])
