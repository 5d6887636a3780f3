"""The tutorials block by block as a reader would type them, the notebooks cell by cell, with few updates."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import pytest

from conftest import Call

DOCS = Path(__file__).parent.parent / "docs"
TUTORIALS, NOTEBOOKS = sorted((DOCS / "tutorials").glob("*.md")), sorted((DOCS / "notebooks").glob("*.ipynb"))
FEW = {"updates": 2, "seeds": 2}
"""Values of the cell of a notebook that is tagged as parameters."""


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


def cells(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The code cells and their tags."""
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"]), cell["metadata"].get("tags", [])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": path.stem}
    backend = matplotlib.get_backend()
    matplotlib.use("agg")
    try:
        for source, tags in cells(path):
            exec(compile(source, path.name, "exec", dont_inherit=True), names)
            if "parameters" in tags:
                names |= {name: value for name, value in FEW.items() if name in names}
    finally:
        matplotlib.pyplot.close("all")
        matplotlib.use(backend)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_stored_with_light_outputs_of_this_code(path: Path) -> None:
    notebook = json.loads(path.read_text("utf-8"))
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) or "<img" in str(output) for output in outputs)
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert path.stat().st_size < 400_000
    counts = [cell["execution_count"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))  # run once, from top to bottom
    for place in ("/tmp", "/home", "site-packages"):
        assert place not in path.read_text("utf-8"), "a path of the machine that ran it"


def test_there_are_parameters_to_make_small() -> None:
    for path in NOTEBOOKS:
        (parameters,) = (source for source, tags in cells(path) if "parameters" in tags)
        assert "updates" in parameters
