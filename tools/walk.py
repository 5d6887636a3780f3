"""The walk from `hero train burgers` to the weights: the functions that a reader enters, in order.

python tools/walk.py          # in the root of the repository: trains a tiny run in a temporary folder

A station is a function on the stack where the settings are checked, the data solved, the operator built, the first loss
computed or the weights written. It only passes on if its body is one statement.
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import hero.cli

SOURCE = str(Path(hero.cli.__file__).parents[1])
ENDS = ("check_fit", "generate", "build_backbone", "PushForward.loss", "save_weights")
SETTINGS = "train.steps=1 train.batch=2 backbone.width=4 backbone.modes=4 train.compile=false data.train_trajectories=2"
SMALLER = "data.train_steps=6 data.val_trajectories=2 data.val_steps=4 data.test_trajectories=2 data.test_steps=4"
CONFIG = "runs/config.py"


def is_ours(code: CodeType) -> bool:
    """Whether it is a named function of hero."""
    return code.co_filename.startswith(SOURCE) and "<" not in code.co_name


def stack(frame: FrameType | None) -> list[CodeType]:
    """Our functions that are entered, the outermost first."""
    found = []
    while frame is not None:
        found.append(frame.f_code)
        frame = frame.f_back
    return [code for code in reversed(found) if is_ours(code)]


def walk() -> list[CodeType]:
    """The stations, each once, in the order in which they are entered."""
    stations, left = dict[CodeType, None](), set(ENDS)

    def entered(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_qualname in left and is_ours(frame.f_code):
            left.remove(frame.f_code.co_qualname)
            stations.update(dict.fromkeys(stack(frame)))

    settings = [part for text in f"{SETTINGS} {SMALLER}".split() for part in ("--set", text)]
    sys.setprofile(entered)
    try:
        hero.cli.main(["train", "burgers", *settings])
    finally:
        sys.setprofile(None)
    if left:
        raise SystemExit(f"not entered: {', '.join(left)}")
    return list(stations)


def only_passes_on(code: CodeType) -> bool:
    """Whether the body is one statement beside its docstring."""
    function: Any = ast.parse(textwrap.dedent(inspect.getsource(code))).body[0]
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return len(body) == 1 and isinstance(body[0], ast.Return | ast.Expr)


def returns(files: list[str]) -> Iterator[int]:
    """Where the walk enters the file of the configuration after it had left it."""
    visits = [i for i, file in enumerate(files) if file == CONFIG and (i == 0 or files[i - 1] != CONFIG)]
    yield from visits[1:]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        found = walk()
        os.chdir("/")
    files = [str(Path(code.co_filename).relative_to(SOURCE)) for code in found]
    passing = [code for code in found if only_passes_on(code)]
    for code, file in zip(found, files, strict=True):
        print(f"{file}:{code.co_firstlineno} {code.co_qualname}{' (passes on)' if code in passing else ''}")
    print(f"stations {len(found)}; only pass on {len(passing)}; returns to {CONFIG} {len(list(returns(files)))}")
