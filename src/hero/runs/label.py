"""What people call a run: a name in `label.json` of its folder. The id, the folder and the results stay."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from hero.errors import HeroError
from hero.records import Record

FILE = "label.json"


class Label(Record):
    """A name, which decides nothing."""

    remedy: ClassVar[str] = "`hero runs rename {folder} NAME` writes it again."

    name: str = ""

    @classmethod
    def of(cls, run: Path) -> Label:
        """The label of a run folder; an empty one if it has none."""
        return cls.read(run / FILE) if (run / FILE).is_file() else cls()

    def put(self, run: Path) -> None:
        """Store the label in a run folder; an empty one is removed."""
        if self == Label():
            (run / FILE).unlink(missing_ok=True)
        else:
            self.write(run / FILE)


def checked_name(text: str) -> str:
    """A name in one line without spaces around it; HeroError for others."""
    name = text.strip()
    if not name or not name.isprintable():
        raise HeroError(f"the name {text!r} is not one line of text; give another.")
    return name
