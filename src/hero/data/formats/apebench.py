"""APEBench: scenarios by name, solved by its package when they are opened; and folders that it wrote."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from hero.data.formats.arrays import axes_of, channels_of, layout_of, length, slabs
from hero.data.formats.npy import check_numbers, opened_npy
from hero.data.recording import Axis, Recording, Trajectory
from hero.errors import HeroError, unknown_name


def is_apebench(name: str) -> bool:
    """Whether a name has the source apebench."""
    return name.startswith("apebench:")


def read_apebench(path: Path, name: str, layout: str) -> Recording:
    """A scenario such as `apebench:2d_phy_kolm_flow`, with its training and test trajectories."""
    try:
        from apebench.scenarios import scenario_dict
    except ImportError as error:
        raise HeroError(
            f"{name} needs the package apebench; install it with `pip install apebench==0.1.1`, in an environment "
            "without the tests of hero, because it pins exponax 0.1.0."
        ) from error
    found = re.fullmatch(r"apebench:(?:([123])d_)?(\w+)", name)
    dims, scenario_name = (int(found[1] or 1), found[2]) if found else (1, "")
    if scenario_name not in scenario_dict:
        raise unknown_name("scenario of apebench", scenario_name, scenario_dict)
    try:
        scenario = scenario_dict[scenario_name](num_spatial_dims=dims)
        arrays = {"train": np.asarray(scenario.get_train_data()), "test": np.asarray(scenario.get_test_data())}
    except (ValueError, TypeError) as error:
        raise HeroError(f"apebench cannot solve {name} ({error}); choose another number of dimensions.") from error
    return _recording((), arrays, _facts(vars(scenario)), "btc" + "xyz"[:dims])


def split_files(folder: Path) -> dict[str, Path]:
    """NAME_train.npy, NAME_test.npy and perhaps NAME_val.npy, or without NAME, if the folder has one such set."""
    found: dict[str, Path] = {}
    for split, words in {"train": ("train",), "val": ("val", "valid"), "test": ("test",)}.items():
        paths = [
            path for word in words for pattern in (f"{word}.npy", f"*_{word}.npy") for path in folder.glob(pattern)
        ]
        if len(paths) > 1:
            return {}
        found |= dict(zip([split], paths, strict=False))
    return found if "train" in found else {}


def read_split_files(path: Path, folder: Path, layout: str) -> Recording:
    """An array per split, (trajectory, time, channel, *space) or as the layout says; and the scenario's JSON."""
    files = split_files(folder)
    arrays = {}
    for split, file in files.items():
        with opened_npy(file) as array:
            check_numbers(file, "the array", array.dtype)
            arrays[split] = array
    described = files["train"].with_name(files["train"].name.removesuffix("_train.npy") + ".json")
    facts = _facts(_json(described).get("info", {})) if described.is_file() else {}
    return _recording(tuple(files.values()), arrays, facts, layout)


def _recording(files: tuple[Path, ...], arrays: dict[str, Any], facts: dict[str, float], layout: str) -> Recording:
    first = arrays["train"]
    where = files[0] if files else Path("apebench")
    layout = layout_of(layout, first.shape, {}, name="train", path=where)
    trajectories: list[Trajectory] = []
    for split, array in arrays.items():
        if len(array.shape) != len(first.shape) or _grid(array, layout) != _grid(first, layout):
            raise HeroError(f"{where}: {split} {array.shape} and train {first.shape} differ in channels or grid.")
        trajectories += slabs(array, layout, split)
    axes = axes_of(first, layout, {})
    if "domain_extent" in facts:
        width = facts["domain_extent"]
        axes = tuple(Axis(axis.name, np.arange(axis.points) * (width / axis.points), periodic=True) for axis in axes)
    return Recording(
        format="apebench",
        files=files,
        channels=channels_of("u", length(first, layout, "c")),
        axes=axes,
        dt=facts.get("dt", 1.0),
        trajectories=trajectories,
        notes=(f"The axes of {tuple(first.shape)} are read as {layout}.",),
    )


def _grid(array: Any, layout: str) -> tuple[int, ...]:
    return tuple(n for letter, n in zip(layout, array.shape, strict=True) if letter not in "bt")


def _facts(settings: Any) -> dict[str, float]:
    """Width of the domain and dt of a scenario, 1 both for the scenarios without units; every scenario is periodic."""
    if not isinstance(settings, dict) or "num_spatial_dims" not in settings:
        return {}
    return {name: float(settings.get(name, 1.0)) for name in ("domain_extent", "dt")}


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HeroError(f"{path} is not JSON ({error}); delete it or write it again.") from error
    return content if isinstance(content, dict) else {}
