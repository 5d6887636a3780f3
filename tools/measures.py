"""The measures of the code base, as a Markdown table: how wide is it, and where does one fact have two homes?

python tools/measures.py          # in the root of the repository
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path("src/hero")
LONG_FUNCTION, LONG_FILE, COMPLEX = 40, 300, 15


def lines_of(*paths: Path) -> int:
    """Lines of these files."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions and methods of a module."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    said = function.body[0] if ast.get_docstring(function) else None
    whole = (function.end_lineno or function.lineno) - function.lineno + 1
    return whole - ((said.end_lineno or said.lineno) - said.lineno + 1 if said else 0)


def too_complex() -> int:
    """Functions whose cyclomatic complexity is above the limit, by ruff."""
    options = ["--select", "C901", "--config", f"lint.mccabe.max-complexity={COMPLEX}", "--output-format", "concise"]
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", *options, str(SOURCE)]
    return subprocess.run(command, capture_output=True, text=True).stdout.count("C901")


def measures() -> dict[str, str]:
    """Every measure by its name."""
    files = sorted(SOURCE.rglob("*.py"))
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in files}
    classes = Counter(node.name for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef))
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    every = [function for tree in trees.values() for function in functions(tree)]
    long = [path for path in files if lines_of(path) > LONG_FILE]
    local = [node for function in every for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom)]
    tags = re.findall(r"isinstance\([^)]*\b(?:Cloud|PointCloud|PeriodicGrid|Box|Grid)\b|\.is_cloud|\.is_periodic", text)
    return {
        "lines of Python in src": f"{lines_of(*files):,}",
        "files in src": f"{len(files)}",
        "functions; median and longest, in lines": (
            f"{len(every):,}; {sorted(map(length, every))[len(every) // 2]} and {max(map(length, every))}"
        ),
        f"functions over {LONG_FUNCTION} lines": f"{sum(length(function) > LONG_FUNCTION for function in every)}",
        f"functions with a complexity over {COMPLEX}": f"{too_complex()}",
        f"files over {LONG_FILE} lines": f"{len(long)}",
        "class names used for two things": ", ".join(name for name, count in classes.items() if count > 1) or "none",
        "questions to a discretisation by its kind": f"{len(tags)}",
        "imports inside of functions": f"{len(local)}",
        "lines of tests": f"{lines_of(*Path('tests').glob('*.py')):,}",
        "lines of documentation": f"{lines_of(*Path('docs').rglob('*.md')):,}",
        **{f"lines of {folder}": f"{count:,}" for folder, count in by_folder(files).items()},
    }


def by_folder(files: list[Path]) -> dict[str, int]:
    """Lines of each folder of the first level."""
    folders: Counter[str] = Counter()
    for path in files:
        parts = path.relative_to(SOURCE).parts
        folders[parts[0] if len(parts) > 1 else "root"] += lines_of(path)
    return dict(sorted(folders.items()))


if __name__ == "__main__":
    print("| measure | value |\n|---|---|")
    for name, value in measures().items():
        print(f"| {name} | {value} |")
