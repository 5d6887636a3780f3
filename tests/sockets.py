"""Where the processes of a test listen, as the kernel lists it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks.children import descendants

PLACES = Path("/proc/net/tcp")
"""Where Linux lists its sockets."""
LOOPBACK = "0100007F"
"""127.0.0.1 as the kernel lists it, also as the end of an address of IPv6."""


def parent_of(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("PPid")).split()[1])


def listening_places(process: int) -> list[str]:
    """The places, address:port, where a process and its descendants listen."""
    own = sockets_of(process)
    return [place for place, inode in listeners() if inode in own]


def listeners() -> Iterator[tuple[str, str]]:
    """The places where anything on this machine listens, with the inode of the socket."""
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            place, state, inode = (line.split()[number] for number in (1, 3, 9))
            if state == "0A":
                yield f"{place.rpartition(':')[0][-8:]}:{place.rpartition(':')[2]}", inode


def sockets_of(process: int) -> set[str]:
    """The inodes of all sockets of a process and its descendants."""
    found = set()
    for pid in (process, *descendants(process)):
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    found.add(os.readlink(descriptor).removeprefix("socket:[").removesuffix("]"))
    return found
