"""Random streams with names: a seed for every purpose and step, so that no generator state has to be kept."""

from __future__ import annotations

import hashlib


def seed_of(*key: object) -> int:
    """A 63-bit seed from any key, such as (seed, "noise", step)."""
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8], "little") >> 1
