"""Packages whose names are imported when they are first used, so `import hero` loads neither torch nor pydantic."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazily(package: str, *modules: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names stand in `modules`, searched in this order.

    Type checkers read `from module import *` below `if TYPE_CHECKING` instead.
    """

    def find(name: str) -> Any:
        for module in modules if not name.startswith("__") else ():
            found = vars(import_module(module))
            if name in found:
                return found[name]
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
