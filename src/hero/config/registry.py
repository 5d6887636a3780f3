"""A registry: parts by name. To add one is one line; nothing else needs to know its name."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any, TypeVar

from hero.errors import HeroError, unknown_name

Part = TypeVar("Part")


class Registry(dict[str, Part]):
    """Parts of one kind by name, in order of registration; an unknown name is answered with the nearest known one.

    `TASKS["toy"] = task` registers. Where `importable`, a name may also be `package.module:Class`; its module is
    imported, also from the current folder, if the user named it (see `trust`), never because a stored file does.
    """

    def __init__(self, kind: str, parts: dict[str, Part] | None = None, importable: bool = False) -> None:
        super().__init__(parts or {})
        self.kind, self.importable = kind, importable

    def __missing__(self, name: str) -> Part:
        if self.importable and ":" in name:
            module = name.partition(":")[0]
            if module not in sys.modules and module not in trusted_modules():
                raise HeroError(
                    f"the {self.kind} {name} is code that a stored configuration names, which is not run unasked; "
                    f"set HERO_IMPORT={module} if you trust it."
                )
            part: Part = import_part(self.kind, name)
            return part
        raise unknown_name(self.kind, name, [*self, "package.module:Class"] if self.importable else self)

    def only(self, *names: str) -> dict[str, Part]:
        """The parts called `names`, in the order of registration."""
        for name in names:
            self[name]
        return {name: part for name, part in self.items() if name in names}


_typed: set[str] = set()


def trusted_modules() -> set[str]:
    """The modules in $HERO_IMPORT, and the modules of names that the user typed."""
    return _typed | set(os.environ.get("HERO_IMPORT", "").replace(",", " ").split())


def trust(name: str) -> None:
    """Allow the import of `package.module:Class`, which the user typed, in this process."""
    module, colon, _ = name.partition(":")
    if colon:
        _typed.add(module)


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
