"""A registry: parts by name. To add one is one line; nothing else needs to know its name.

A part may be a class of the user's, `package.module:Class`. The ones that were named on the command line are remembered
for the folder where that was, in a file of the user's, outside of all run folders. An entry holds the digest of every
source file of that folder which importing the class read. A remembered class is imported from exactly these files, or
as installed: neither a file that changed or appeared in the folder since, nor a compiled one, is run because of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import json
import os
import re
import sys
import sysconfig
from collections import UserDict
from collections.abc import Iterable, Iterator, Mapping
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeVar

from hero.errors import HeroError, unknown_name
from hero.files import folder_of_user, replacing

Part = TypeVar("Part")
Sources = dict[str, tuple[str, str]]  # path and digest of the source of each module
LARGEST = 2**22  # bytes of the memory; a larger file is not ours


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


PART_NAME = re.compile(r"(?!\d)\w+(\.(?!\d)\w+)*:(?!\d)\w+")  # dotted identifiers, a colon, and one identifier


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
