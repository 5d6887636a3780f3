"""The site builds strictly, loads nothing from elsewhere, has every public name and setting, and quotes real errors."""

from __future__ import annotations

import ast
import html
import re
from pathlib import Path

import pytest

from hero.method.metrics import METRICS
from hero.runs.sections import all_settings

ROOT = Path(__file__).parent.parent


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
