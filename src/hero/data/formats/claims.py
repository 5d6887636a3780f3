"""Sizes that files claim, compared with the file and the memory before anything is unpacked; kinds of zip files."""

from __future__ import annotations

import math
import os
import zipfile
from pathlib import Path

from hero.data.recording import Recording
from hero.errors import HeroError

BOMB = 1000
"""Deflate cannot pack a real file this well; a member that claims to is made to fill the memory."""


def zip_kind(path: Path) -> str:
    """npz, torch or zarr by the names of the members of a zip file; zip where they are none of these."""
    names = {info.filename.rpartition("/")[2] for info in members(path)}
    if names & {"zarr.json", ".zgroup", ".zarray"}:
        return "zarr"
    if "data.pkl" in names:
        return "torch"
    return "npz" if any(name.endswith(".npy") for name in names) else "zip"


def members(path: Path) -> list[zipfile.ZipInfo]:
    """The directory of a zip file, refused before anything is unpacked if it cannot be genuine."""
    try:
        with zipfile.ZipFile(path) as file:
            infos = file.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise HeroError(f"{path} is a damaged zip file ({error}); download or save it again.") from error
    for info in infos:
        check_unpacked(path, info.filename, info.file_size)
    return infos


def check_unpacked(path: Path, name: str, unpacked: int) -> None:
    """Refuse a member of a file that unpacks to far more than a real one or the memory can hold."""
    size = path.stat().st_size
    if unpacked > BOMB * size:
        raise HeroError(f"{path}: {name} claims {unpacked:,} bytes in a file of {size:,}; it is damaged or a zip bomb.")
    if unpacked > max(memory(), size):
        raise HeroError(f"{path}: {name} has {unpacked:,} bytes, more than the memory; save it as .npy, read in parts.")


def check_claim(recording: Recording) -> Recording:
    """The recording; refused if it claims far more numbers than its files can hold, also packed."""
    sizes = [part.stat().st_size for path in recording.files for part in (path, *path.rglob("*")) if part.is_file()]
    frames = sum(trajectory.frames for trajectory in recording.trajectories)
    numbers = frames * len(recording.channels) * math.prod(recording.space)
    if sizes and numbers > BOMB * sum(sizes):
        raise HeroError(f"{recording.files[0]} claims {numbers:,} numbers in {sum(sizes):,} bytes; save it again.")
    return recording


def memory() -> int:
    """Bytes of memory of this machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 36
