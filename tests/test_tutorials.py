"""The tutorials, block by block as a reader would type them, with fewer updates."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from conftest import Call

FOLDER = Path(__file__).parent.parent / "docs" / "tutorials"
TUTORIALS = sorted(FOLDER.glob("*.md"))


def shortened(command: str) -> list[str]:
    """The command with three uncompiled updates and one validation in the place of thousands, in this process."""
    command = re.sub(
        r"train\.steps=\d+", "train.steps=3 --set train.validate_every=3 --set train.compile=false", command
    )
    command = re.sub(r"--steps \d+", "--steps 3", command)
    command = re.sub(r"^hero compare", "hero compare --workers 0", command)
    return shlex.split(re.sub(r"\b(\d+):\d+", r"\1:2", command))[1:]


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_every_block_runs(path: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, object] = {}
    for language, block in re.findall(r"^```(python|sh)\n(.*?)^```", path.read_text("utf-8"), re.M | re.S):
        if language == "python":
            short = re.sub(r"\bsteps=\d{3,}", "steps=1", block)
            short = re.sub(r"= 24, 41, \(32, 24\)", "= 12, 13, (16, 12)", short)  # the room of the tutorial on walls
            exec(compile(short, path.name, "exec", dont_inherit=True), names)
            continue
        for line in block.splitlines():
            code, _, err = call(*shortened(line))
            assert code == 0, f"{line}: {err}"
