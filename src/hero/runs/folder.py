"""What is known about run folders and the machine they run on."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hero.errors import HeroError


def choose_device(name: str) -> torch.device:
    """`auto` takes CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise HeroError(f"train.device={name!r} is not available here; use auto or cpu.") from None
    return device


def versions() -> dict[str, str]:
    """What produced a result."""
    packages = {name: importlib.metadata.version(name) for name in ("hero", "torch", "numpy")}
    return packages | {"python": platform.python_version(), "platform": platform.platform()}


def find_run(name: str, runs_dir: Path) -> Path:
    """A run folder by path, by id, or by an unambiguous part of its id."""
    for path in (Path(name), runs_dir / name):
        if (path / "config.toml").is_file():
            return path
    matches = [path for path in list_runs(runs_dir) if name in path.name]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise HeroError(
            f"{name!r} fits {len(matches)} runs ({', '.join(p.name for p in matches[:4])}); give more of the id."
        )
    raise HeroError(f"there is no run {name!r} in {runs_dir}; `hero runs` lists the runs.")


def list_runs(runs_dir: Path) -> list[Path]:
    """All run folders, oldest first."""
    found = [path.parent for path in runs_dir.glob("*/config.toml")]
    return sorted(found, key=lambda path: (path / "config.toml").stat().st_mtime)


def read_log(run: Path) -> list[dict[str, Any]]:
    """The records of `log.jsonl`; a last line that a kill cut short is left out."""
    path = run / "log.jsonl"
    records = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records


def read_metrics(run: Path) -> dict[str, Any] | None:
    """`metrics.json`, or None if the run has not been evaluated."""
    try:
        content: dict[str, Any] = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
        content["training"]["steps"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError):
        raise HeroError(f"{run / 'metrics.json'} is damaged; `hero evaluate {run.name}` writes it anew.") from None
    return content


def read_errors(run: Path) -> dict[str, np.ndarray]:
    """The arrays (trajectory, step) of `errors.npz` that are drawn: nrmse and correlation of the test rollouts."""
    path = run / "errors.npz"
    try:
        with np.load(path, allow_pickle=False) as arrays:
            errors = {name: np.asarray(arrays[name], dtype=np.float64) for name in ("nrmse", "correlation")}
        if any(values.ndim != 2 or not values.size for values in errors.values()):
            raise ValueError
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        raise HeroError(f"{path} is missing or damaged; `hero evaluate {run.name}` writes it anew.") from None
    return errors
