"""The notebooks: their cells run in order, in this process, with one update where a reader has hundreds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import pytest

FOLDER = Path(__file__).parent.parent / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SMALL = {"updates": 2, "seeds": 2}
"""Values of the cell that is tagged as parameters."""


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
                names |= {name: value for name, value in SMALL.items() if name in names}
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
