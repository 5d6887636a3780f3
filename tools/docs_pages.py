"""Pages of the site that are made when it is built (mkdocs.yml names this file as a hook).

- Settings, metrics and public names come from the code, where a page holds a mark such as `<!-- made: settings -->`.
- Notebooks become pages, with their stored outputs.
- Examples, the contributing guide, the changelog and the tables of results lie outside of docs/; they become pages, and
  links lead there.
- llms.txt lists all pages for coding assistants, llms-full.txt holds them as Markdown. `python tools/docs_pages.py`
  writes docs/llms.txt, a list of the files of the repository; the long one would repeat them all.
"""

from __future__ import annotations

import ast
import base64
import inspect
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mkdocs.config import load_config
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
OUTSIDE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "README.md": "index.md",
    "SECURITY.md": "reference/security.md",
    "results/tables.md": "tables.md",
}
"""Files of the repository that have a page."""
TEXTS: dict[str, str] = {}
"""The pages of the present build as Markdown."""
REFERENCE = re.compile(r"^::: [\w.]+\.(\w+)\n    options:\n      heading_level: 3$", re.M)
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that have no file in docs/."""

    def add(name: str, content: str | bytes) -> None:
        files.append(File.generated(config, name, content=content))

    for path in sorted((ROOT / "examples").glob("*.py")):
        add(f"examples/{path.stem}.md", example_page(path))
    for name in ("CONTRIBUTING.md", "CHANGELOG.md", "results/tables.md"):
        add(OUTSIDE[name], inside((ROOT / name).read_text("utf-8"), name))
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        text, pictures = notebook_page(path)
        add(f"notebooks/{path.stem}.md", text)
        for name, picture in pictures.items():
            add(f"notebooks/{name}", picture)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in what is made from the code, and lead links to pages of the site."""
    for name, make in MADE.items():
        mark = f"<!-- made: {name} -->"
        if mark in markdown:
            markdown = markdown.replace(mark, make())
    markdown = inside(markdown, f"docs/{page.file.src_uri}") if page.file.generated_by is None else markdown
    TEXTS[page.file.src_uri] = markdown
    return markdown


def on_post_build(config: MkDocsConfig) -> None:
    """Write llms.txt and, with the text of all pages, llms-full.txt."""
    pages = [page for _, found in sections(config) for _, page in found]
    whole = "\n\n".join(f"<!-- {page} -->\n\n{TEXTS[page]}" for page in pages)
    site = Path(config.site_dir)
    listed = listing(config, html_of, "Everything in one file: [llms-full.txt](llms-full.txt)")
    (site / "llms.txt").write_text(listed, "utf-8")
    (site / "llms-full.txt").write_text(REFERENCE.sub(documented, whole), "utf-8")


def sections(config: MkDocsConfig) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Titles and pages below each heading of the navigation, in its order."""
    for title, entry in (next(iter(part.items())) for part in config.nav or []):
        yield title, list(entries(title, entry))


def listing(config: MkDocsConfig, link: Callable[[str], str], note: str) -> str:
    """llms.txt: a list of the pages, with a link to each."""
    parts = [f"# {config.site_name}", f"> {config.site_description}", note]
    for title, found in sections(config):
        parts.append(f"## {title}\n\n" + "\n".join(f"- [{name}]({link(page)})" for name, page in found))
    return "\n\n".join(parts) + "\n"


def source_of(page: str) -> str:
    """The file of the repository that a page is made from, seen from docs/."""
    outside = {made: file for file, made in OUTSIDE.items() if not (ROOT / "docs" / made).is_file()}
    if page in outside:
        return f"../{outside[page]}"
    found = {"examples": "../examples/{}.py", "notebooks": "notebooks/{}.ipynb"}.get(page.partition("/")[0], page)
    return found.format(Path(page).stem)


def repository_listing() -> str:
    """The text of docs/llms.txt."""
    config = load_config(str(ROOT / "mkdocs.yml"))
    return listing(config, source_of, "`make docs` writes all pages into one file, site/llms-full.txt.")


def html_of(page: str) -> str:
    """The file of the site that a page becomes."""
    return page.replace("README.md", "index.md").removesuffix("md") + "html"


def documented(reference: re.Match[str]) -> str:
    """The signature and the docstring of a public name."""
    import hero

    part = getattr(hero, reference[1])
    try:
        signature = str(inspect.signature(part))
    except (TypeError, ValueError):  # a registry, an exception
        signature = ""
    return f"### `{reference[1]}{signature}`\n\n{inspect.getdoc(part) or ''}"


def entries(title: str, entry: Any) -> Iterator[tuple[str, str]]:
    """Title and page of each entry below a part of the navigation; a page without a title has that of its part."""
    if isinstance(entry, str):
        yield title, entry
    elif isinstance(entry, dict):
        for name, below in entry.items():
            yield from entries(name, below)
    else:
        for below in entry:
            yield from entries(title, below)


def inside(markdown: str, path: str) -> str:
    """`markdown` of the file `path` of the repository, with links to files as links to their pages."""
    own = OUTSIDE.get(path, path.removeprefix("docs/"))

    def replaced(link: re.Match[str]) -> str:
        if "://" in link[1]:
            return link[0]
        target = os.path.normpath(os.path.join(os.path.dirname(path), link[1]))
        if target.startswith("examples/"):
            target = f"docs/{Path(target).with_suffix('.md')}"
        elif target.endswith(".ipynb"):
            target = f"{target.removesuffix('.ipynb')}.md"
        elif target in OUTSIDE:
            target = f"docs/{OUTSIDE[target]}"
        found = os.path.relpath(target.removeprefix("docs/"), os.path.dirname(own) or ".")
        return f"]({found}{link[2] or ''})"

    return LINK.sub(replaced, markdown)


def example_page(path: Path) -> str:
    """The source of an example below the first sentence of its docstring."""
    source = path.read_text("utf-8")
    sentence = " ".join((ast.get_docstring(ast.parse(source)) or "").split("\n\n")[0].split())
    return f"# {path.name}\n\n{sentence}\n\n```python\n{source}```\n"


def notebook_page(path: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its pictures by file name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(inside(source, f"docs/notebooks/{path.name}"))
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            parts.append(output_block(output, path.stem, pictures))
    return "\n\n".join(part for part in parts if part) + "\n", pictures


def output_block(output: dict[str, Any], stem: str, pictures: dict[str, bytes]) -> str:
    """One output of a cell as Markdown; a picture becomes a file of its own."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "image/png" in data:
        name = f"{stem}_{len(pictures)}.png"
        pictures[name] = base64.b64decode("".join(data["image/png"]))
        return f"![Figure]({name})"
    if "text/html" in data:
        return f'<div class="output" markdown="0">\n{"".join(data["text/html"])}\n</div>'
    text = "".join(data["text/plain"]).rstrip()
    return f"```text\n{text}\n```" if text else ""


def settings_text() -> str:
    """A table for each section, from the declarations that `hero settings` prints."""
    from hero.config.settings import default_text
    from hero.runs.sections import all_settings

    sections: dict[str, list[str]] = {}
    for key, field in all_settings():
        row = f"| `{key}` | {cell(default_text(field))} | {cell(field.description or '')} |"
        sections.setdefault(key.rpartition(".")[0] or "run", []).append(row)
    tables = (
        f"## {section}\n\n| setting | default | meaning |\n|---|---|---|\n" + "\n".join(rows)
        for section, rows in sections.items()
    )
    return "\n\n".join(tables)


def metrics_text() -> str:
    """A table of the metrics of files, and one of the metrics of benchmarks, at the usual horizon."""
    from hero.method.metrics import METRICS, Metric, Scoring

    def table(metrics: Mapping[str, Metric]) -> str:
        rows = (f"| `{key}` | {m.title} | {m.direction} | {cell(m.definition)} |" for key, m in metrics.items())
        return "| in files | in tables | better | definition |\n|---|---|---|---|\n" + "\n".join(rows)

    files = {name: metric for name, metric in Scoring(measure="vrmse").metrics().items() if name not in METRICS}
    return f"Your files:\n\n{table(files)}\n\nBenchmarks:\n\n{table(METRICS)}"


def api_text() -> str:
    """A heading for each module, and its public names with their docstrings."""
    return "\n\n".join(
        part
        for module, names in public_names().items()
        for part in (
            f"## `{module}`",
            *(f"::: {module}.{name}\n    options:\n      heading_level: 3" for name in names),
        )
    )


def public_names() -> dict[str, list[str]]:
    """Public names by the module that they are imported from, as `hero.core` and `hero.public` list them."""
    files = (ROOT / "src" / "hero" / name for name in ("core.py", "public.py"))
    parts = (part for file in files for part in ast.parse(file.read_text(encoding="utf-8")).body)
    return {part.module or "": [one.name for one in part.names] for part in parts if isinstance(part, ast.ImportFrom)}


def cell(text: str) -> str:
    """Text of a table, in which a bar would end the cell and a star begin emphasis."""
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


MADE = {"settings": settings_text, "metrics": metrics_text, "api": api_text}

if __name__ == "__main__":
    (ROOT / "docs" / "llms.txt").write_text(repository_listing(), encoding="utf-8")
