"""Files that survive a kill: written atomically, and run folders locked by one process at a time."""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import json
import math
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from hero.checksums import FIELD, UNSEALED, reading, sealed
from hero.errors import HeroError
from hero.faults import crash_point

UNPACKED = 2**26
"""Bytes that any file may take at once."""
PACKED = 20
"""Beyond that, bytes in memory for each in the file: floats of simulations pack to a third at best."""


def is_bomb(unpacked: int, size: int) -> bool:
    """Whether `size` bytes of a file would become too many in memory at once; numbers of simulations never do."""
    return unpacked > max(UNPACKED, PACKED * size)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`; on success it is flushed to the disk and renamed into place."""
    temporary = _temporary(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for leftover in path.parent.glob(glob.escape(f".{path.name}.{platform.node()}.") + "*.tmp"):
            if not _is_alive(leftover.name.split(".")[-2]):
                leftover.unlink(missing_ok=True)
        yield temporary
        sync(temporary)
        crash_point(f"before-rename {path.name}")
        os.replace(temporary, path)
        crash_point(f"after-rename {path.name}")
    except OSError as error:
        raise HeroError(
            f"cannot write {path} ({error.strerror or error}); check disk space and permissions; "
            "the previous file is unchanged."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    """The name under which this process of this machine writes `path`."""
    return path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}.tmp")


def _is_alive(process: str) -> bool:
    """Whether a process of this machine has this number; True where asking is not possible."""
    try:
        if os.name == "posix":  # elsewhere signal 0 is one that ends it
            os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError, ValueError):
        return False
    except OSError:  # of another user
        pass
    return True


def sync(path: Path) -> None:
    """Flush a file to the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def write_atomic(path: Path, data: bytes, previous: Path | None = None) -> Path:
    """Write `data` to `path`, the whole of it or nothing; the file that was there is kept as `previous` if given."""
    with replacing(path) as temporary:
        crash_point(f"half-write {path.name}", lambda: temporary.write_bytes(data[: len(data) // 2]))
        temporary.write_bytes(data)
        if previous:
            _link(path, previous)
    return path


def _link(path: Path, other: Path) -> None:
    """Give the file `path` a second name, which replaces `other`; nothing without it, or where there are no links."""
    temporary = _temporary(other)
    with contextlib.suppress(OSError):
        try:
            os.link(path, temporary)
            os.replace(temporary, other)
        finally:
            temporary.unlink(missing_ok=True)  # still there if `other` was a link to the same file already


def reserve(path: Path, size: int) -> None:
    """Make sure that `size` bytes fit on the disk of `path`, as far as the system can tell; OSError if they do not."""
    with path.open("wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)


def append(path: Path, text: str) -> None:
    """Add whole lines to a log; a kill may cut the last one short, which reading allows for."""
    crash_point(f"half-line {path.name}", lambda: _add(path, text[: len(text) // 2]))
    try:
        _add(path, text)
    except OSError as error:
        raise HeroError(
            f"cannot write {path} ({error.strerror or error}); check disk space and permissions, "
            "then repeat the command."
        ) from error
    crash_point(f"after-line {path.name}")


def _add(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def write_json(path: Path, content: Any) -> Path:
    """Write JSON for people and any parser, an object with a checksum."""
    if not isinstance(content, dict):
        return write_atomic(path, (json_text(content) + "\n").encode())
    return write_atomic(path, sealed((json_text({**content, FIELD: UNSEALED}) + "\n").encode()))


def json_text(content: Any) -> str:
    """JSON in lines: infinities become the string "inf", which JSON lacks."""
    return json.dumps(_plain(content), indent=2, allow_nan=False)


def json_line(content: dict[str, Any]) -> str:
    """One line of a JSONL log, with its checksum."""
    text = json.dumps(_plain({**content, FIELD: UNSEALED}), allow_nan=False)
    return sealed(text.encode()).decode() + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


@contextlib.contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process; HeroError if another process holds it. The system frees it when we die."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open_lock(folder / ".lock")
    except OSError as error:
        raise HeroError(f"cannot write in {folder} ({error.strerror or error}); choose another folder.") from error
    with file:
        if not lock(file, wait=False):
            raise HeroError(
                f"run {folder.name} is in use by another process; wait for it, or change a setting or the seed."
            )
        for leftover in folder.rglob(".*.tmp"):  # of a process killed while it wrote
            leftover.unlink(missing_ok=True)
        yield


def open_lock(path: Path) -> IO[str]:
    """The file to lock, as it is; OSError where it is a link, whose target is not ours to write."""
    no_links = getattr(os, "O_NOFOLLOW", 0)
    return open(path, "a+", opener=lambda name, flags: os.open(name, flags | no_links, 0o666))


def lock(file: IO[str], wait: bool) -> bool:
    """Lock an open file until it is closed; False if another process holds it and we do not wait.

    On a system or file system without locks it returns True: keeping processes apart is then up to the user.
    """
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass
    return True


def file_hash(path: Path) -> str:
    """SHA-256 of a file; read again only if its size or time has changed."""
    found = path.stat()
    return _file_hash(path, found.st_size, found.st_mtime_ns)


@functools.lru_cache(maxsize=4096)
def _file_hash(path: Path, size: int, modified: int) -> str:
    with reading(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_of_user(variable: str, default: str) -> Path:
    """Our folder in the one of the user's that an XDG variable names, or in `default` of the home folder."""
    given = os.environ.get(variable, "")
    return (Path(given) if os.path.isabs(given) else Path.home() / default) / "hero"
