"""CFDBench: a folder per case with u.npy and v.npy, (time, height, width), and its numbers in case.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hero.data.formats.npy import NpyArray, check_numbers, opened_npy
from hero.data.recording import Axis, Channel, Frames, Recording, Trajectory
from hero.errors import HeroError

NAMES = ("u", "v")


def case_folders(folder: Path) -> list[Path]:
    """The folders with a case: this one, or below it (problem/subset/case)."""
    found = [
        folder,
        *(path.parent for pattern in ("*", "*/*", "*/*/*") for path in folder.glob(f"{pattern}/case.json")),
    ]
    return sorted({case for case in found if (case / "case.json").is_file() and (case / "u.npy").is_file()})


def read_cfdbench(path: Path, folder: Path, layout: str) -> Recording:
    """One trajectory per case."""
    cases = case_folders(folder)
    names = [name for name in NAMES if (cases[0] / f"{name}.npy").is_file()]
    arrays = [[_array(case / f"{name}.npy") for name in names] for case in cases]
    grid = arrays[0][0].shape[1:]
    for case, parts in zip(cases, arrays, strict=True):
        shapes = {part.shape for part in parts}
        if len(shapes) > 1 or len(parts[0].shape) != 3 or parts[0].shape[1:] != grid:
            raise HeroError(
                f"{case} holds {', '.join(map(str, sorted(shapes)))} and {cases[0]} the grid {grid}; name a folder "
                "whose cases are (time, height, width) on one grid."
            )
    scalars = [_numbers(case / "case.json") for case in cases]
    common = [name for name in scalars[0] if all(name in row for row in scalars)]
    dropped = sorted({name for row in scalars for name in row} - set(common))
    notes = (
        (f"{', '.join(dropped)} of case.json are left out, because some cases do not have them.",) if dropped else ()
    )
    return Recording(
        format="cfdbench",
        files=tuple(case / f"{name}.npy" for case in cases for name in names),
        channels=tuple(Channel(name) for name in names),
        # every flow of CFDBench has walls, an inlet or an outlet
        axes=tuple(Axis(name, np.arange(n, dtype=np.float64), False) for name, n in zip("yx", grid, strict=True)),
        dt=1.0,
        trajectories=[
            Trajectory(parts[0].shape[0], _stacked(parts), {name: row[name] for name in common})
            for parts, row in zip(arrays, scalars, strict=True)
        ],
        notes=notes,
    )


def _array(path: Path) -> NpyArray:
    if not path.is_file():
        raise HeroError(f"{path} is missing; other cases have it: download the case again.")
    with opened_npy(path) as array:
        check_numbers(path, "the array", array.dtype)
        return array


def _stacked(parts: Sequence[NpyArray]) -> Frames:
    def read(frames: slice, channels: Sequence[int]) -> np.ndarray:
        return np.stack([parts[channel][frames] for channel in channels], axis=1)

    return read


def _numbers(path: Path) -> dict[str, float]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HeroError(f"{path} is not JSON ({error}); download the case again.") from error
    if not isinstance(content, dict):
        raise HeroError(f"{path} is not a table of numbers by name; download the case again.")
    return {
        name: float(value)
        for name, value in content.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
