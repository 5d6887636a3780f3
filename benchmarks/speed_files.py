"""Measurements of speed as files of `results/speed/`: written as they come, with the code, the day and the machine."""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
from pathlib import Path
from typing import Any

from hero.files import FIELD, write_json

SPEED = Path("results/speed")


def about() -> dict[str, Any]:
    """Commit, day and processor of a measurement."""
    told = subprocess.run(["git", "describe", "--always"], capture_output=True, text=True, check=False).stdout.strip()
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "src", "benchmarks"], check=False).returncode
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    commit = f"{told}-dirty" if changed else told  # other measurements that were written since change nothing
    return {"commit": commit, "day": day, "processor": platform.processor() or platform.machine()}


def read_speed(name: str, folder: Path = SPEED) -> dict[str, Any]:
    """A stored measurement; empty if there is none."""
    path = folder / f"{name}.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {part: content for part, content in stored.items() if part != FIELD}


def keep_speed(name: str, part: str, content: Any, folder: Path = SPEED) -> None:
    """Replace one part of a stored measurement and leave its other parts, so that a command can be run part by part."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{name}.json", read_speed(name, folder) | {part: {"about": about(), "rows": content}})
