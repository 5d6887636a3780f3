"""A registry: parts by name. To add one is one line; nothing else needs to know its name."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
from collections import UserDict
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, TypeVar

from hero.config.remembered import Finder, recall, remember
from hero.errors import HeroError, unknown_name

Part = TypeVar("Part")


class Registry(UserDict[str, Part]):
    """Parts of one kind by name, in order of registration; an unknown name is answered with the nearest known one.

    `TASKS["toy"] = task` registers. A part may be given as the place where it is found, see `hero.parts`, and is then
    imported when it is first taken. Where there is `other`, the place of a function, that function makes a part of a
    name `package.module:Class`; a module of that name is imported, also from the current folder, if the user named it
    (see `trust`), never because a stored file does.
    """

    def __init__(self, kind: str, parts: Mapping[str, Any] | None = None, other: str = "") -> None:
        self.kind, self.other = kind, other
        super().__init__(parts or {})

    def __getitem__(self, name: str) -> Part:
        if not isinstance(name, str):
            raise unknown_name(self.kind, name, self)
        part = super().__getitem__(name)
        if isinstance(part, str):
            found = at_place(part)
            part = self.data[name] = found[name] if isinstance(found, dict) else found
        return part

    def get(self, name: str, default: Any = None) -> Any:
        """The registered part called `name`; `default` where there is none, also where the name could be imported."""
        return self[name] if name in self else default  # noqa: SIM401

    def __missing__(self, name: str) -> Part:
        self.check(name)
        part: Part = at_place(self.other)(name)
        return part

    def check(self, *names: str | None) -> None:
        """Refuse unknown names; nothing is imported for it. None is no name."""
        for name in names:
            if name is not None and name not in self and not (self.other and ":" in str(name)):
                raise unknown_name(self.kind, name, [*self, "package.module:Class"] if self.other else self)

    def only(self, *names: str) -> dict[str, Part]:
        """The parts called `names`, in the order of registration."""
        self.check(*names)
        return {name: self[name] for name in self if name in names}


def at_place(place: str) -> Any:
    """The object at `package.module:NAME`, a place that hero names itself."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


class Placed:
    """A class attribute at `package.module:NAME`, imported when it is read, as `Settings` of a loss of the core."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return at_place(self.place)


_typed: set[str] = set()
_allowed: set[str] = set()
_all_trusted = False
_is_command = False


def trust(*names: object, typed: bool = True) -> None:
    """Allow the import of each `package.module:Class` in this process; a command line remembers those `typed`."""
    (_typed if typed else _allowed).update(name for name in map(str, names) if PART_NAME.fullmatch(name))


def trust_stored_code() -> None:
    """Allow the import of all code that stored configurations name, in this process."""
    global _all_trusted
    _all_trusted = True


def is_named(name: str) -> bool:
    """Whether the module of `package.module:Class` is loaded, or this command or $HERO_IMPORT allows its import."""
    module = name.partition(":")[0]
    trusted = {one.partition(":")[0] for one in _typed | _allowed}
    trusted.update(os.environ.get("HERO_IMPORT", "").replace(",", " ").split())
    return _all_trusted or module in sys.modules or module in trusted


def is_trusted(name: str) -> bool:
    """Whether the module of `package.module:Class` may be imported, by this command or the memory of this folder."""
    return is_named(name) or recall(name) is not None


@contextlib.contextmanager
def command_line() -> Iterator[None]:
    """While a command runs: the classes that the user typed are remembered for later commands in this folder."""
    global _is_command
    before, _is_command = _is_command, True
    try:
        yield
    finally:
        remember_typed()  # again: a module may have imported others since
        _is_command = before


def remember_typed() -> None:
    """Remember the classes that the user typed on a command line, as far as they are imported."""
    for name in _typed if _is_command else ():
        if name.partition(":")[0] in sys.modules:
            remember(name)


def import_variable(names: Iterable[str], before: str) -> str:
    """$HERO_IMPORT of a process that we start: what it was `before`, and modules of names; it recalls others itself."""
    modules = [name.partition(":")[0] for name in names if PART_NAME.fullmatch(name) and is_named(name)]
    return ",".join(dict.fromkeys(filter(None, [before, *modules])))


PART_NAME = re.compile(r"(?!\d)\w+(\.(?!\d)\w+)*:(?!\d)\w+")
"""Identifiers with dots between them, a colon, and one identifier."""


def check_part_name(kind: str, name: str) -> None:
    """Refuse what is not written as `package.module:Class`."""
    if not PART_NAME.fullmatch(name):
        raise HeroError(f"{kind} {name!r} is not the name of a class; write it as package.module:Class.")


def user_module(name: str, part: str, here: bool = True) -> ModuleType:
    """A module of the user, with `here` also from the current folder; `part` is named in an error."""
    if here and name not in sys.modules and "" not in sys.path:
        sys.path.insert(0, "")  # as `python -c` does: a file in the current folder is a module
    try:
        return importlib.import_module(name)
    except Exception as error:  # its own code may raise anything
        reason = error if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise HeroError(f"{part} cannot be imported ({reason}); install it or correct the name.") from error


def import_part(kind: str, name: str) -> Any:
    """The object called `package.module:Class`, also of the current folder; HeroError where only a file names it."""
    check_part_name(kind, name)
    module_name, _, part_name = name.partition(":")
    if not is_named(name):
        sources = recall(name)
        if sources is None:
            raise HeroError(
                f"the {kind} {name} is code that a stored configuration names, which is not run unasked; "
                f"use `trust_code` or set HERO_IMPORT={module_name} if you trust it."
            )
        sys.meta_path.insert(0, Finder(sources))
    module = user_module(module_name, f"{kind} {name}", is_named(name))
    remember_typed()
    if not hasattr(module, part_name):
        raise HeroError(f"{module_name} has no {part_name!r}; name the {kind} as package.module:Class.")
    return getattr(module, part_name)


def import_subclass(kind: str, name: str, base: type) -> Any:
    """The class called `package.module:Class`; HeroError where it is not a kind of `base`, or `base` itself."""
    found = import_part(kind, name)
    if not (isinstance(found, type) and issubclass(found, base)) or found is base:
        raise HeroError(
            f"the {kind} {name} is not a subclass of {base.__module__}.{base.__name__}; name one as "
            "package.module:Class."
        )
    return found
