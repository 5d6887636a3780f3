"""Points at which a process kills itself on request, so that tests can show that a kill there loses nothing."""

from __future__ import annotations

import fnmatch
import os
import signal
from collections.abc import Callable

VARIABLE = "HERO_FAULT"

_passed = 0


def crash_point(name: str, leave: Callable[[], object] | None = None) -> None:
    """Die by SIGKILL if $HERO_FAULT fits `name`: "before-rename state.pt", or "half-line *:3" for the third that fits.

    `leave` is called before, to leave a half-written file. Without the variable this is one look into a dictionary.
    """
    if VARIABLE in os.environ:
        _crash(os.environ[VARIABLE], name, leave)


def _crash(wanted: str, name: str, leave: Callable[[], object] | None) -> None:
    global _passed
    pattern, _, count = wanted.partition(":")
    _passed += fnmatch.fnmatchcase(name, pattern)
    if _passed == int(count or 1):
        if leave:
            leave()
        os.kill(os.getpid(), signal.SIGKILL)
