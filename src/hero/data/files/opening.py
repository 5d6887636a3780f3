"""A file as training sees it: opened, tidied, and refused where it cannot be trained on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from hero.data.files.checks import UnfitError, fitted, problems, tidy
from hero.data.files.recording import Recording
from hero.data.files.resampling import resampled
from hero.data.files.selection import Selection, with_positions
from hero.data.files.splits import divided
from hero.data.formats import open_recording
from hero.errors import HeroError

if TYPE_CHECKING:
    from hero.data.files.settings import FileSettings

HASHED = 2**20
"""Bytes at either end of a file that its fingerprint covers, in addition to its size."""


@dataclass(frozen=True, eq=False)
class Tidied:
    """A recording with one length, a mask and boundaries; and why its coordinates do not fit its states, if so."""

    recording: Recording
    misfit: list[UnfitError]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of its files."""
        return fingerprint(self.recording.files)


@lru_cache(maxsize=2)
def tidied(given: Recording) -> Tidied:
    """The recording as training sees it; done once for each, since states are read for it."""
    fit, misfit = fitted(given)
    return Tidied(tidy(fit), misfit)


def opened(settings: FileSettings) -> Recording:
    """The recording that the settings name, tidied and fit for training.

    HeroError if it is not, or has changed since the settings were found in it.
    """
    given = resampled(open_recording(Path(settings.path), settings.layout), settings.resample)
    recording, unfit = examined(given, settings)
    for problem in unfit:
        raise problem
    if settings.fingerprint and tidied(given).fingerprint != settings.fingerprint:
        raise HeroError(
            f"{settings.path} is not the file that this run was trained on (its fingerprint differs); restore it, or "
            "train again."
        )
    return recording if recording.points is None else with_positions(recording)


def examined(given: Recording, settings: FileSettings) -> tuple[Recording, Iterator[UnfitError]]:
    """The recording as training sees it, and every reason to refuse it: training raises the first of them, and `hero
    doctor` shows them all."""
    tidy = tidied(given)
    recording = tidy.recording

    def unfit() -> Iterator[UnfitError]:
        yield from tidy.misfit
        yield from problems(Selection(recording, settings))
        try:
            divided(recording, settings)
        except UnfitError as problem:
            yield problem

    return recording, unfit()


def fingerprint(files: Sequence[Path]) -> str:
    """A hash of the sizes of the files and of their first and last MiB."""
    digest = hashlib.sha256()
    for path in files:
        if not path.is_file():
            continue
        size = path.stat().st_size
        digest.update(str(size).encode())
        with path.open("rb") as file:
            digest.update(file.read(HASHED))
            if size > HASHED:
                file.seek(max(HASHED, size - HASHED))
                digest.update(file.read(HASHED))
    return digest.hexdigest()[:16]
