"""Run every notebook in a kernel and keep its outputs, the last line of each progress: `make notebooks`."""

from __future__ import annotations

import sys
import tempfile
from itertools import groupby
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "docs" / "notebooks"


def run(path: Path) -> None:
    """Execute one notebook in an empty folder and write it back."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=1800, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of this machine
        if cell.cell_type == "code":
            shown = [output for output in cell.outputs if output.get("name") != "stderr"]  # warnings of this machine
            cell.outputs = [shortened(output) for output in joined(shown)]
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    nbformat.write(notebook, path)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Streams that arrived in parts as one."""
    merged: list[nbformat.NotebookNode] = []
    for output in outputs:
        if merged and output.output_type == merged[-1].output_type == "stream" and output.name == merged[-1].name:
            merged[-1].text += output.text
        else:
            merged.append(output)
    return merged


def shortened(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Of the progress of a training, the last line."""
    if output.output_type == "stream":
        kept: list[str] = []
        for is_progress, lines in groupby(output.text.splitlines(keepends=True), lambda line: line.startswith("step ")):
            found = list(lines)
            kept += ["…\n", found[-1]] if is_progress and len(found) > 1 else found
        output.text = "".join(kept)
    return output


if __name__ == "__main__":
    for path in [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")):
        run(path)
