"""Cache tensors that depend only on the weights for the duration of one rollout.

A scope cannot go stale, as a cache on the module could.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch

Made = TypeVar("Made")

_made: ContextVar[dict[Hashable, Any] | None] = ContextVar("made", default=None)
_inferring = ContextVar("inferring", default=False)


@contextmanager
def frozen_weights() -> Iterator[None]:
    """A scope in which no weight changes; the results of `once` in it are dropped at its end."""
    token = _made.set({})
    try:
        yield
    finally:
        _made.reset(token)


def once(key: Hashable, make: Callable[[], Made]) -> Made:
    """make(), or its earlier result for this key in the present scope. A compiler finds repeated work by itself."""
    kept = None if torch.compiler.is_compiling() else _made.get()
    if kept is None:
        return make()
    if key not in kept:
        kept[key] = make()
    return kept[key]


@contextmanager
def inference() -> Iterator[None]:
    """A scope in which numbers may differ from those of training by rounding, where that is faster."""
    token = _inferring.set(True)
    try:
        yield
    finally:
        _inferring.reset(token)


def inferring() -> bool:
    """Whether `inference` is on, and no gradient is wanted."""
    return not torch.compiler.is_compiling() and not torch.is_grad_enabled() and _inferring.get()
