"""Mistakes a user can correct: one sentence with the thing, the value and the remedy; the CLI exits with code 2.

Arguments stand in backticks, as in "`seeds` is empty": the command line prints its option instead, here --seeds.
"""

from __future__ import annotations

import difflib
import importlib
import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

DISTRIBUTION = "hero-operators"  # the name that pip knows; the module and the command are `hero`


class HeroError(Exception):
    """A mistake in the user's request or input, told in one sentence; never a bug of hero."""


class NoPermissionError(HeroError):
    """A file may not be read: it may well be whole, and nothing is to be deleted or repeated."""

    def __init__(self, path: object) -> None:
        super().__init__(f"no permission to read {path}; ask its owner, or allow it with `chmod u+r`.")


def visible(sentence: str) -> str:
    """The sentence on one line, with what would move or colour the terminal spelled out: names may hold anything."""
    if sentence.isprintable():
        return sentence
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in sentence)


def shown(value: object) -> str:
    """A value in a sentence: an array by its type and shape, others as they are written, cut where that is long."""
    if hasattr(value, "shape"):
        return f"{type(value).__name__} of shape {tuple(value.shape)}"
    text = repr(value)
    return text if len(text) < 60 and text.isprintable() else f"{type(value).__name__} {text[:40]!a}…"


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> HeroError:
    """An error for `name` that is not one of the `valid` names; it suggests the one that it begins or resembles."""
    if not isinstance(name, str):
        return HeroError(f"{kind}={shown(name)} is not a word; name a {kind}.")
    lower = {valid_name.lower(): valid_name for valid_name in sorted(valid)}
    begun = [one for one in lower if len(name) > 2 and one.startswith(name.lower())]
    near = begun if len(begun) == 1 else difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.66)
    hint = f"did you mean {lower[near[0]]!r}?" if near else f"choose one of: {', '.join(lower.values())}."
    return HeroError(f"unknown {kind} {name!r}; {hint}")


def reason_of(error: BaseException) -> str:
    """The first line of an error of somebody's code, or its type where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def optional(package: str, sentence: str) -> Any:
    """A package that an extra installs; HeroError with `sentence` where it is missing."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise HeroError(sentence) from None


def install_hint(extra: str) -> str:
    """The command that installs an extra, ready to be copied: a shell would read bare brackets as a pattern."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


OUT_OF_MEMORY = "the memory is too small for these settings; lower the batch or the backbone."


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on the CPU or on a GPU; torch raises RuntimeError for the former."""
    refused = ("DefaultCPUAllocator", "out of memory", "not enough memory", "Storage size calculation overflowed")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in refused)
    )


def check_number(
    name: str, value: float, *, low: float | None = None, above: float | None = None, whole: bool = False
) -> None:
    """Refuse the argument `name` if it is below `low`, not above `above`, not finite, or not whole where it must be."""
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        raise HeroError(f"{name}={shown(value)} is not a {'whole ' if whole else ''}number; give one.")
    if not math.isfinite(value):
        raise HeroError(f"{name}={value!r} is not a finite number; give one.")
    if low is not None and value < low:
        raise HeroError(f"{name}={value!r} is too small; it must be at least {low:g}.")
    if above is not None and value <= above:
        raise HeroError(f"{name}={value!r} is too small; it must be above {above:g}.")
