"""The words of CONTRIBUTING.md: docstrings, comments, errors, help and documents avoid the listed turns of phrase."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
AVOIDED = {
    r"\banew\b": "again",
    r"\bmend(s|ed|ing)?\b": "fix, correct",
    r"\b(goes|go|went|going) on\b": "continue, resume",
    r"(?<![Tt]here )\bis no (?!longer\b|more\b|less\b|way\b)": "is not",
    r"\b(those|that) of\b": "repeat the noun",
    r"\beven over\b": "uniformly",
    r"(?<!standard )\bdeviations?\b": "standard deviation, std, difference",
    r"\b[Bb]eside\b": "next to, in addition to",
    r"\banyone's\b": "your own, any",
    r"\bof (its|their|one's) own\b|\bof ours\b": "its own ...",
    r"(^|[.:;\"] |\"\"\")What (is|are|a|an|the|it|has|was|may|one|can)\b(?![^.]*\?)": "name the thing",
    r"\babsurd\b": "implausible",
}
FILES = [*(ROOT / "src").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "examples").glob("*.py")]
DOCUMENTS = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of text with their numbers: comments and strings of Python, every line of a document."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), start=1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield from enumerate(token.string.splitlines(), start=token.start[0])


@pytest.mark.parametrize("path", [*FILES, *DOCUMENTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_plain_words(path: Path) -> None:
    found = [
        f"{number}: {line.strip()} ({instead})"
        for number, line in prose(path)
        for pattern, instead in AVOIDED.items()
        if re.search(pattern, line)
    ]
    assert not found, "\n".join(found)
