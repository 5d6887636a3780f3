"""Classes that the user named on the command line, remembered for the folder where that was.

The memory is a file of the user's, outside of all run folders. An entry holds the digest of every source file of that
folder which importing the class read. A remembered class is imported from exactly these files, or as it is installed:
neither a file that changed or appeared in the folder since, nor a compiled one, is run because of the memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import sys
import sysconfig
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from hero.errors import HeroError
from hero.files import folder_of_user, replacing

Sources = dict[str, tuple[str, str]]
"""Path and digest of the source of each module."""
LARGEST = 2**22
"""Bytes of the memory; a larger file is not ours."""


def memory_file() -> Path:
    """Where the memory is: below $XDG_STATE_HOME, or ~/.local/state."""
    return folder_of_user("XDG_STATE_HOME", ".local/state") / "trusted.json"


def memory() -> dict[str, Any]:
    """Entries by folder and name; none from a file that others may write."""
    try:
        path = memory_file()
        about = path.stat()
        is_ours = not hasattr(os, "getuid") or (about.st_uid == os.getuid() and not about.st_mode & 0o022)
        found = json.loads(path.read_bytes()) if is_ours and about.st_size < LARGEST else {}
    except (OSError, RuntimeError, ValueError, RecursionError):  # none yet, no home, not JSON
        found = {}
    return found if isinstance(found, dict) else {}


def digest(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()


def recall(name: str) -> Sources | None:
    """The sources of a class that was named in this folder; None if it was not, or if one of them is another now."""
    try:
        found = {module: (str(path), str(known)) for module, (path, known) in memory()[os.getcwd()][name].items()}
        same = all(digest(Path(path).read_bytes()) == known for path, known in found.values())
    except (OSError, LookupError, TypeError, ValueError, AttributeError):
        return None
    return found if same else None


def remember(name: str) -> None:
    """Keep the sources of an imported class for this folder, if all are source files and the memory can be written."""
    with contextlib.suppress(OSError, RuntimeError, HeroError):
        folder, sources, known = os.getcwd(), sources_here(), memory()
        if sources is None or recall(name) == sources:
            return
        text = json.dumps({**known, folder: {**known.get(folder, {}), name: sources}}, indent=1)
        path = memory_file()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(path) as temporary:
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL, 0o600))
            temporary.write_text(text)


def sources_here() -> Sources | None:
    """The sources of all loaded modules of this folder; None if one of them is another kind of file."""
    here = os.path.join(os.getcwd(), "")
    installed = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "purelib", "platlib"))
    found: Sources = {}
    for name, module in list(sys.modules.items()):
        spec, parent = getattr(module, "__spec__", None), name.rpartition(".")[0]
        file = os.path.abspath(spec.origin) if spec is not None and spec.has_location else ""
        if not file.startswith(here) or file.startswith(installed) or name.partition(".")[0] in ("hero", "__main__"):
            continue
        if parent and parent not in sys.modules:  # made by a compiler: nothing imports it again
            continue
        if not file.endswith(".py"):
            return None
        found[name] = file, digest(Path(file).read_bytes())
    return found


class KnownSource(SourceFileLoader):
    """Runs the source that has the digest, never a compiled file."""

    known = ""

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path)
        if digest(source) != self.known:
            raise ImportError(f"{self.path} has changed")
        return self.source_to_code(source, self.path)


class Finder(MetaPathFinder):
    """Finds remembered modules, and in their packages nothing that was not remembered."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self.sources:
            is_folder = any(module.startswith(f"{name}.") for module in self.sources)  # without `__init__.py`
            return ModuleSpec(name, None, is_package=True) if is_folder else None
        file, known = self.sources[name]
        loader = KnownSource(name, file)
        loader.known = known
        inside: list[str] | None = [] if os.path.basename(file) == "__init__.py" else None
        return importlib.util.spec_from_file_location(name, file, loader=loader, submodule_search_locations=inside)
