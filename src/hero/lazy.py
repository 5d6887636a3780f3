"""Packages whose names are imported when they are first used, so `import hero` loads neither torch nor pydantic."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazily(package: str, *modules: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose names stand in `modules`, which are searched in this order.

    Type checkers read `from module import *` below `if TYPE_CHECKING` instead.
    """

    def public(module: str) -> list[str]:
        found = vars(import_module(module))
        return found.get("__all__") or [name for name in found if not name.startswith("_") and name != "annotations"]

    def find(name: str) -> Any:
        if name == "__all__":
            return sorted(listed for module in modules for listed in public(module))
        for module in modules if not name.startswith("__") else ():
            if name in public(module):
                return getattr(import_module(module), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find, lambda: sorted({*vars(import_module(package)), *find("__all__")})
