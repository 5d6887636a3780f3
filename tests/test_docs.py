"""What documents and site say is true: commands parse, Python runs, links lead somewhere, names and errors exist."""

from __future__ import annotations

import ast
import html
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
from hero.runs.sections import all_settings

REGISTRIES: list[dict[str, Any]] = [CANDIDATES, DIAGNOSTICS, LOSSES, STRATEGIES, TASKS, FORMATS, METRICS, BACKBONES]
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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a broken link or anchor, a missing page or a page outside of the navigation is an error."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True)
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
    return folder


def text_of(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text("utf-8")))


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?(https?:|//)", page.read_text("utf-8"))
        assert not loaded, page


def test_the_reference_has_every_public_name_setting_and_metric(site: Path) -> None:
    from tools.docs_pages import public_names

    names = (site / "reference/api.html").read_text("utf-8")
    for module, public in public_names().items():
        for name in public:
            assert f'id="{module}.{name}"' in names, name
    settings, metrics = (text_of(site / f"reference/{name}.html") for name in ("settings", "metrics"))
    for key, field in all_settings():
        assert key in settings
        assert (field.description or "").replace("`", "") in settings, key
    for metric in METRICS.values():
        assert metric.definition in metrics, metric.title


def test_notebooks_and_examples_are_pages_with_pictures(site: Path) -> None:
    for path in (ROOT / "docs" / "notebooks").glob("*.ipynb"):
        page = (site / "notebooks" / f"{path.stem}.html").read_text("utf-8")
        pictures = re.findall(r'src="([^"]+\.png)"', page)
        assert pictures, path.stem
        assert all((site / "notebooks" / name).is_file() for name in pictures)
    assert "STRATEGIES" in text_of(site / "examples/extending.html")


def test_assistants_find_every_page_in_one_file(site: Path) -> None:
    listed = re.findall(r"^- \[.+\]\((.+)\)$", (site / "llms.txt").read_text("utf-8"), re.M)
    pages = {str(page.relative_to(site)) for page in site.rglob("*.html") if page.name != "404.html"}
    assert set(listed) == pages
    whole = (site / "llms-full.txt").read_text("utf-8")
    for text in ("from hero import FNO, SOAP, Balanced, Windows, unroll", "`train.unroll`", "### `unroll(model: "):
        assert text in whole
    assert ":::" not in whole


def test_the_list_for_assistants_in_the_repository_is_current() -> None:
    from tools.docs_pages import repository_listing

    text = (ROOT / "docs" / "llms.txt").read_text("utf-8")
    assert text == repository_listing(), "run `python tools/docs_pages.py`"
    linked = re.findall(r"^- \[.+\]\((.+)\)$", text, re.M)
    assert len(linked) > 50
    assert not [link for link in linked if not (ROOT / "docs" / link).is_file()]


def messages() -> str:
    """Every text in the code with … in the place of its values, one per line."""
    found = []
    for path in (ROOT / "src" / "hero").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def one_value(text: str) -> str:
    """Neighbouring values, as a name and its shape, as one."""
    return re.sub(r"…[ …]*…", "…", text)


def test_errors_in_troubleshooting_are_in_the_code() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    quoted = re.findall(r"^```text\n(.*?)\n```", page, re.M | re.S)
    known = one_value(messages())
    assert len(quoted) >= 10
    for message in quoted:
        assert all(part in known for part in one_value(message).split("; ")), message
