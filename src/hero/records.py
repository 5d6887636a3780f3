"""Typed records of everything that is stored as JSON: one class per file, one reader, one writer.

JSON has no infinity, and dropping a diverged run would be dishonest: infinities are written as the string "inf" and are
numbers again after reading.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from hero.errors import HeroError
from hero.files import is_whole, reading, write_json

LARGEST_FILE = 2**28
"""Bytes that are read of a record: hundreds of times as many as a study of thousands of runs writes."""


class Record(BaseModel):
    """Base of the records. A file names the version of its schema; files of another version are refused."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=True)

    version: ClassVar[int] = 1
    """Raised when a field changes its name or meaning."""
    remedy: ClassVar[str] = "repeat the command that wrote it."
    """How a user replaces a damaged file, in the folder {folder}; the last words of the error."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """The record in `path`; HeroError if it is missing, damaged or of another version."""
        remedy = cls.remedy.format(folder=path.parent.name)
        try:
            with reading(path) as file:
                text = file.read(LARGEST_FILE)
        except OSError as error:
            raise HeroError(f"cannot read {path} ({error.strerror or error}); {remedy}") from None
        content = None
        with suppress(ValueError, RecursionError):  # not JSON
            content = json.loads(text) if is_whole(text) else None
        version = content.get("version", 1) if isinstance(content, dict) else cls.version
        if version != cls.version:
            raise HeroError(f"{path} has version {version}, this hero reads {cls.version}; {remedy}")
        try:
            return cls.model_validate(content)
        except ValidationError:
            raise HeroError(f"{path} is damaged (its checksum or its content is wrong); {remedy}") from None

    def write(self, path: Path) -> Path:
        return write_json(path, {"version": self.version, **self.model_dump()})
