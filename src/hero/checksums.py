"""A checksum inside each file that hero writes, so that damage is noticed and never read as other numbers.

The checksum lies in the file itself, as a word where the format allows one (a JSON field, an attribute, metadata, the
comment of a zip archive), and covers every byte around that word: file and checksum appear with one rename. It has 64
bits against accidents, not against attackers. CRCs of zip and HDF5 would miss names and headers.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from hero.errors import NoPermissionError

MARK = b"hero:sha256:"
DIGITS = 16  # 64 bits: a damaged file passes once in 2^64
UNSEALED = (MARK + b"0" * DIGITS).decode()
"""The word that `seal` replaces."""
FIELD = "checksum"
"""Its name where a format asks for one."""
NEAR = 2**16  # of either end of a file: there the word is
BLOCK = 2**20


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


def is_whole(data: bytes | IO[bytes]) -> bool:
    """Whether there is a checksum, and the bytes around it are those that it was computed from."""
    file = io.BytesIO(data) if isinstance(data, bytes) else data
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


def is_whole_file(path: Path) -> bool:
    """The same of a file, which is read in blocks."""
    with reading(path) as file:
        return is_whole(file)


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
