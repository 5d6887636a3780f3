"""What the documents say is true: commands parse, settings exist, Python runs, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from conftest import parse
from hero import CANDIDATES, DIAGNOSTICS, LOSSES, STRATEGIES
from hero.cli.options import Configuration
from hero.data import TASKS
from hero.data.formats import FORMATS
from hero.method.metrics import METRICS
from hero.models import BACKBONES
from hero.parts import key_of

REGISTRIES: tuple[dict[str, Any], ...] = (
    *(CANDIDATES, DIAGNOSTICS, LOSSES, STRATEGIES),
    *(TASKS, FORMATS, METRICS, BACKBONES),
)
ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md"]


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S)


COMMANDS = [
    (path.name, line.split("  #")[0].strip())
    for path in DOCUMENTS
    for block in blocks(path, "sh")
    for line in block.splitlines()
    if line.startswith("hero ")
]


@pytest.mark.parametrize(("document", "command"), COMMANDS)
def test_commands_parse_and_their_settings_exist(document: str, command: str) -> None:
    values = parse(*shlex.split(command)[1:])
    if values.get("task") and key_of(values["task"]) == "task.name":  # a document's files are not here
        named = {name: values.get(name) for name in ("task", "strategy", "backbone", "seed")}
        Configuration(values["preset"], values["config"], values["set"]).resolve(**named)


ELSEWHERE = {ROOT / "README.md", ROOT / "docs/howto/frameworks.md", *(ROOT / "docs/tutorials").glob("*.md")}
"""Documents whose code other tests run."""


@pytest.mark.parametrize(
    "path", [p for p in DOCUMENTS if blocks(p, "python") and p not in ELSEWHERE], ids=lambda p: p.name
)
def test_python_blocks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # a document may write a module
    names: dict[str, object] = {}
    before = [(registry, dict(registry)) for registry in REGISTRIES]
    try:
        for block in blocks(path, "python"):
            exec(compile(block, path.name, "exec", dont_inherit=True), names)
    finally:  # a document registers parts, which no other test should see
        for registry, parts in before:
            registry.clear()
            registry.update(parts)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_relative_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!http|#)([^)#]+)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_files_of_the_package_that_a_document_names_exist(path: Path) -> None:
    known = [
        str(file.relative_to(ROOT))
        for folder in ("src", "tests", "benchmarks", "examples")
        for file in (ROOT / folder).rglob("*.py")
    ]
    for name in re.findall(r"`([\w/]+\.py)`", path.read_text(encoding="utf-8")):
        assert any(file == name or file.endswith(f"/{name}") for file in known), name


def test_every_promise_names_a_test_that_exists() -> None:
    text = (ROOT / "docs/promises.md").read_text(encoding="utf-8")
    rows = [line for line in text.split("\n## ")[0].splitlines() if line.startswith("| ")][1:]
    named = [re.search(r"`(test_\w+\.py)::(test_\w+)` \|$", row) for row in rows]
    assert len(rows) > 15
    for row, test in zip(rows, named, strict=True):
        assert test, row
        assert f"\ndef {test[2]}(" in (ROOT / "tests" / test[1]).read_text(encoding="utf-8"), row
