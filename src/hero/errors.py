"""Mistakes a user can mend: one sentence that names the thing, the value and the remedy; the CLI exits with code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HeroError(Exception):
    """A mistake in what the user asked for or handed in, told in one sentence; never a bug of ours."""


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> HeroError:
    """An error for `name` that is not one of the `valid` names of its `kind`; it suggests the nearest."""
    names = sorted(valid)
    lower = {valid_name.lower(): valid_name for valid_name in names}
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.5)
    hint = f"did you mean {lower[near[0]]!r}?" if near else f"choose one of: {', '.join(names)}."
    return HeroError(f"unknown {kind} {name!r}; {hint}")
