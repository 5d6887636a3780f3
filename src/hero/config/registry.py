"""A registry: parts by name. To add one is one line; nothing else needs to know its name."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any, TypeVar

from hero.errors import HeroError, unknown_name

Part = TypeVar("Part")


class Registry(dict[str, Part]):
    """Parts of one kind by name, in order of registration; an unknown name is answered with the nearest known one.

    `TASKS["toy"] = task` registers. Where `importable`, a name may also be `package.module:Class`; it is imported on
    look-up, also from the current folder.
    """

    def __init__(self, kind: str, parts: dict[str, Part] | None = None, importable: bool = False) -> None:
        super().__init__(parts or {})
        self.kind, self.importable = kind, importable

    def __missing__(self, name: str) -> Part:
        if self.importable and ":" in name:
            part: Part = import_part(self.kind, name)
            return part
        raise unknown_name(self.kind, name, [*self, "package.module:Class"] if self.importable else self)

    def only(self, *names: str) -> dict[str, Part]:
        """The parts called `names`, in the order of registration."""
        for name in names:
            self[name]
        return {name: part for name, part in self.items() if name in names}


def user_module(name: str, part: str) -> ModuleType:
    """A module of the user, also from the current folder; `part` is named in an error."""
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -c` does: a file in the current folder is a module
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise HeroError(f"{part} cannot be imported ({error}); install it or correct the name.") from error


def import_part(kind: str, name: str) -> Any:
    """The object called `package.module:Class`."""
    module_name, _, part_name = name.partition(":")
    found = getattr(user_module(module_name, f"{kind} {name}"), part_name, None)
    if found is None:
        raise HeroError(f"{module_name} has no {part_name!r}; name the {kind} as package.module:Class.")
    return found
