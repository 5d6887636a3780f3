"""Files that survive a kill and tell damage: written atomically, with a checksum, in folders that one process locks.

A checksum lies in the file itself, as a word where the format allows one (a JSON field, an attribute, metadata, the
comment of a zip archive), and covers every byte around that word: file and checksum appear with one rename. It has 64
bits against accidents, not against attackers. CRCs of zip and HDF5 would miss names and headers.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import hashlib
import io
import json
import math
import os
import platform
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from hero.errors import HeroError, NoPermissionError

MARK = b"hero:sha256:"
DIGITS = 16  # 64 bits: a damaged file passes once in 2^64
UNSEALED = (MARK + b"0" * DIGITS).decode()  # the word that `seal` replaces
FIELD = "checksum"  # name of the checksum where a format asks for one
NEAR = 2**16  # of either end of a file: there the word is
BLOCK = 2**20
UNPACKED = 2**26  # bytes that any file may take at once
PACKED = 20  # beyond that, bytes in memory for each in the file: floats of simulations pack to a third at best
FAULT = "HERO_FAULT"
"""The variable with the point at which tests kill a process, to show that a kill there loses nothing."""
_passed = 0


def is_bomb(unpacked: int, size: int) -> bool:
    """Whether `size` bytes of a file would become too many in memory at once; numbers of simulations never do."""
    return unpacked > max(UNPACKED, PACKED * size)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`; on success it is flushed to the disk and renamed into place."""
    temporary = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
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


def sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def write_atomic(path: Path, data: bytes, previous: Path | None = None) -> Path:
    """Write `data` to `path`, the whole of it or nothing; the file that was there is kept as `previous` if given."""
    with replacing(path) as temporary:
        crash_point(f"half-write {path.name}", lambda: temporary.write_bytes(data[: len(data) // 2]))
        temporary.write_bytes(data)
        if previous and path.exists():
            previous.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # a file system without links
                os.link(path, previous)
    return path


def reserve(path: Path, size: int) -> None:
    """Make sure that `size` bytes fit on the disk of `path`, as far as the system can tell; OSError if they do not."""
    with path.open("wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)


def append(path: Path, text: str) -> None:
    """Add whole lines to a log; a kill may cut the last one short, which reading allows for."""
    try:
        with path.open("a", encoding="utf-8") as file:
            crash_point(f"half-line {path.name}", lambda: print(text[: len(text) // 2], file=file, end="", flush=True))
            file.write(text)
    except OSError as error:
        raise HeroError(
            f"cannot write {path} ({error.strerror or error}); check disk space and permissions, "
            "then repeat the command."
        ) from error
    crash_point(f"after-line {path.name}")


def write_json(path: Path, content: Any) -> Path:
    """Write JSON for people and any parser, an object with a checksum."""
    if isinstance(content, dict):
        return write_atomic(path, sealed((json_text({**content, FIELD: UNSEALED}) + "\n").encode()))
    return write_atomic(path, (json_text(content) + "\n").encode())


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


def sealed(data: bytes) -> bytes:
    """`data` with its checksum in the place of UNSEALED."""
    file = io.BytesIO(data)
    seal(file)
    return file.getvalue()


def sealed_archive(archive: io.BytesIO) -> bytes:
    """A zip archive (.npz, .pt, .pt2) with its checksum as its comment, whose length was in the last two bytes."""
    archive.seek(-2, os.SEEK_END)
    archive.write(len(UNSEALED).to_bytes(2, "little") + UNSEALED.encode())
    seal(archive)
    return archive.getvalue()


def seal(file: IO[bytes]) -> None:
    """Put the checksum of an open file in the place of UNSEALED."""
    at = _place(file)
    digits = _digits(file, at)
    file.seek(at + len(MARK))
    file.write(digits)


def is_whole(data: bytes | Path) -> bool:
    """Whether bytes, or a file, hold a checksum and are those that it was computed from."""
    with io.BytesIO(data) if isinstance(data, bytes) else reading(data) as file:
        at = _place(file)
        if at < 0:  # in a block that was lost
            return False
        file.seek(at + len(MARK))
        stored = file.read(DIGITS)
        return stored == _digits(file, at)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[io.BufferedReader]:
    """The file, open for reading; NoPermissionError where that is not allowed, so that nobody takes it for damage."""
    try:
        with path.open("rb") as file:
            yield file
    except PermissionError:
        raise NoPermissionError(path) from None


def _place(file: IO[bytes]) -> int:
    """Where the word begins, -1 if there is none."""
    size = file.seek(0, os.SEEK_END)
    for start in (max(0, size - NEAR), 0):
        file.seek(start)
        found = file.read(NEAR).rfind(MARK)
        if found >= 0:
            return start + found
    return -1


def _digits(file: IO[bytes], at: int) -> bytes:
    """The checksum of everything but the word at `at`."""
    digest, size = hashlib.sha256(), file.seek(0, os.SEEK_END)
    for start, stop in ((0, at), (at + len(MARK) + DIGITS, size)):
        file.seek(start)
        while start < stop and (block := file.read(min(BLOCK, stop - start))):
            digest.update(block)
            start += len(block)
    return digest.hexdigest()[:DIGITS].encode()


def crash_point(name: str, leave: Callable[[], object] | None = None) -> None:
    """Die by SIGKILL if $HERO_FAULT fits `name`: "before-rename state.pt", or "half-line *:3" for the third that fits.

    `leave` is called before, to leave a half-written file. Without the variable this is one look into a dictionary.
    """
    global _passed
    if FAULT not in os.environ:
        return
    pattern, _, count = os.environ[FAULT].partition(":")
    _passed += fnmatch.fnmatchcase(name, pattern)
    if _passed == int(count or 1):
        if leave:
            leave()
        os.kill(os.getpid(), signal.SIGKILL)
