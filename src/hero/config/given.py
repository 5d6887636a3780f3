"""Objects that a Python session hands over, a network, a loss or an optimizer, under names for a configuration.

    name = give(net)        # "given:Net-1f0c93ab"
    found("backbone", name)     # a network equal to net

A name ends in a hash of the object, so the same object finds the same run. Where a stored configuration names an object
that nobody handed over in this process, `found` says so.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hero.errors import HeroError

PREFIX = "given:"
_given: dict[str, Any] = {}


def give(part: Any) -> str:
    """The name of an object in configurations; a network is kept as it is now."""
    label = part.__name__ if hasattr(part, "__name__") else type(part).__name__
    label = re.sub(r"\W+", "_", label).strip("_") or "function"
    name = f"{PREFIX}{label}-{fingerprint_of(part)}"
    if name not in _given:
        _given[name] = copy.deepcopy(part) if isinstance(part, nn.Module) else part
    return name


def is_given(name: str) -> bool:
    """Whether a name in a configuration stands for an object of a Python session, known here or not."""
    return name.startswith(PREFIX) or name in _given


def is_known(name: str) -> bool:
    return name in _given


def found(kind: str, name: str) -> Any:
    """The object of this name; HeroError where it was handed over in another process."""
    if name not in _given:
        remedy = "load it with hero.load(path, model=net)" if kind == "backbone" else "give it to hero.train again"
        raise HeroError(f"the {kind} {name} was handed over in Python and is not known here; {remedy}.")
    return _given[name]


@contextlib.contextmanager
def standing_in(name: str, part: Any) -> Iterator[None]:
    """Let `part` be the object called `name` for a while: a network of the same class with other weights."""
    before = dict(_given)
    _given[name] = part
    try:
        yield
    finally:
        _given.clear()
        _given.update(before)


def fingerprint_of(part: Any) -> str:
    """A hash of an object: its code as far as it can be seen, and the values that it holds."""
    digest = hashlib.sha256()
    for piece in _pieces(part, set()):
        digest.update(piece)
    return digest.hexdigest()[:8]


def _pieces(part: Any, seen: set[int]) -> Iterator[bytes]:
    """The content of an object, in the order in which it is hashed; what is inside of `seen` is not repeated."""
    if isinstance(part, Tensor):
        values = part.detach().cpu()
        yield from _pieces((values.float() if values.dtype == torch.bfloat16 else values).numpy(), seen)
    elif isinstance(part, np.ndarray):
        yield f"{part.dtype}{part.shape}".encode() + np.ascontiguousarray(part).tobytes()
    elif part is None or isinstance(part, bool | int | float | complex | str | bytes | torch.dtype | torch.device):
        yield repr(part).encode()
    elif id(part) in seen:
        yield b"again"
    else:
        seen.add(id(part))
        yield type(part).__qualname__.encode()
        for inner in _parts(part):
            yield from _pieces(inner, seen)


def _parts(part: Any) -> Iterator[Any]:
    """The values that an object consists of."""
    if isinstance(part, nn.Module):
        yield repr(part)
        yield from sorted({_code(type(module)) for module in part.modules()})
        plain = bool | int | float | str | tuple  # numbers and words to compute with; the mode decides nothing
        yield [{k: v for k, v in vars(m).items() if isinstance(v, plain) and k != "training"} for m in part.modules()]
        yield from (value for item in part.state_dict().items() for value in item)
    elif isinstance(part, Mapping):
        yield from (value for item in part.items() for value in item)
    elif isinstance(part, list | tuple | set | frozenset):
        yield from part
    elif isinstance(part, functools.partial):
        yield from (part.func, part.args, part.keywords)
    elif inspect.isfunction(part):
        yield from (_code(part), part.__defaults__, part.__kwdefaults__)
        yield from (cell.cell_contents for cell in part.__closure__ or ())
    elif inspect.ismethod(part):
        yield from (part.__func__, part.__self__)
    elif inspect.isclass(part) or inspect.isbuiltin(part):
        yield _code(part)
    else:
        yield _code(type(part))
        yield from sorted(getattr(part, "__dict__", {}).items())


def _code(part: Any) -> str:
    """Name and source; the instructions of a function without source, as of one typed into an interpreter."""
    name = f"{part.__module__}.{part.__qualname__}"
    if name.startswith("torch."):
        return name
    try:
        return name + inspect.getsource(part)
    except (OSError, TypeError):
        inside = [part] if inspect.isfunction(part) else getattr(part, "__dict__", {}).values()
        codes = [function.__code__ for function in inside if inspect.isfunction(function)]
        return name + "".join(f"{code.co_code.hex()}{code.co_names}{code.co_consts!r}" for code in codes)
