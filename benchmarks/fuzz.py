"""Random values for settings, options and configuration files: each is taken, or refused in a sentence.

    python -m benchmarks fuzz --values 20000 --options 1000 --files 2000 --seconds 3600

The cases follow from the seed alone. They run in this process, which limits its own memory. A case fails if it
ends in another way than exit code 0 or 1, or 2 with one sentence.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MEMORY = 6 * 2**30
"""Bytes of address space: several times what the commands need, far below what a wrong size would ask for."""
CASE_SECONDS = 30
"""Of CPU time, as all limits here: nothing that is refused takes so long, nor does anything tiny that is done."""


def words(text: str) -> list[str]:
    return text.split()


NUMBERS = words("""
0 1 2 3 5 7 -1 -0.0 0.5 .5 5. 1e-300 1e300 -1e300 1e-30 1e4 1e10 1e30 nan inf -inf NaN Infinity +1
1_000 0x10 0b11 0o7 9223372036854775807 9223372036854775808 -9223372036854775809 1000000000000
4294967296 99999999999999999999 ٣ １２ ² ½ 1,5 1:2 1e 1e400 0.999999999 1+1j
""")
WORDS = words("""
auto true false True None null meta cpu cuda cuda:99 mps cpu:5 nonsense fno unet transolver hero
one_step burgers kdv adamw soap SGD LBFGS SparseAdam relative mse balanced float32 bfloat16 fixed
steps stages random a:b : :: a: :b torch.nn:Identity torch.nn:Linear torch.nn:Module
torch.nn:functional torch.optim:Adam math:pi os:system json:nothing hero.strategies:Strategy
hero.strategies.base:Strategy given:x-1 given: 1:10,2:10 0:10 1:99999999999999 0:64,32:96 *
encoder.* ../x / // . .. ~ /dev/null /dev/zero /dev/full /etc /proc/self/mem /nonexistent/x {RUN}
{FILE} {FOLDER} {TEXT} [/] [red]x[/] :smile: %s {} {0} \\ \\n 'a "a -- - -x --help =x a=b
btcx btx
""")
LITERALS = [
    *("[]", "[1]", "[0]", "[-1]", "[[]]", "[[1]]", "[1,2,3]", "[1,2,3,4,5,6,7]", '["a"]', "[true]", "[nan]", "[1e300]"),
    *('["a",1]', '[["a"]]', "{}", "{a=1}", "{a={b=1}}", "[{a=1}]", '{"": 1}', "{kwargs={a=1}}", "{lr=1}", '{"a b"=1}'),
    *("1979-05-27", "07:32:00", "1979-05-27T07:32:00Z", "[1979-05-27]", "{a=1979-05-27}", "{a=[07:32:00]}"),
    *('""', '" "', '"\\u0000"', '"a\\nb"', '"\\u202e"', '"ü"', "''", "'''a\nb'''", '"1"', "[" * 3000, "{a=" * 2000),
    *("", " ", "\x00", "\x1b[31m", "a\nb", "a\rb", "\udcff", "€", "😀", "é" * 300, "x" * 5000, "9" * 5000, "\ufeff1"),
]
KEYS = words("""
a a.b .a a. . .. train train. .steps train.steps.x trian.steps task task. task.x task.name
task.extent task.dt task.viscosity task.resolution task.substeps task.warmup task.cutoff
task.convection backbone.kwargs.a backbone.kwargs.width backbone.kwargs. optimizer.kwargs.lr
optimizer.kwargs.a optimiser.kwargs train.optimiser data.path.x loss.x 中 a[b]
[/]
""")
BASES = [
    [],
    ["strategy=hero"],
    ["strategy=push_forward", "backbone.name=unet", "train.optimizer=SGD"],
    ["strategy=refiner", "task.name=kolmogorov_flow", "train.optimizer=rmsprop"],
    ["strategy=push_forward", "backbone.name=transolver", "train.loss=balanced", "train.optimizer=soap"],
    ["strategy=one_step", "backbone.name=torch.nn:Conv1d"],
    ["data.path={FILE}", "train.loss=h1"],
    ["strategy=recurrent", "task.name=unbalanced_advection", "train.loss=mse"],
]
TINY = words("""
task.resolution=8 task.substeps=1 task.cutoff=1 backbone.width=2 backbone.modes=2
data.train_trajectories=1 data.train_steps=6 data.val_trajectories=1 data.val_steps=3
data.test_trajectories=1 data.test_steps=3 train.batch=2 train.steps=1 train.compile=false
strategy=push_forward
""")


@dataclass
class Fuzzer:
    """Cases and what became of them."""

    folder: Path
    deadline: float = math.inf
    taken: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = {"RUN": "", "FILE": str(self.folder / "flow.npy"), "FOLDER": str(self.folder / "empty")}
        self.names["TEXT"] = str(self.folder / "words.txt")

    def filled(self, text: str) -> str:
        """The text with the names of things that exist."""
        for name, value in self.names.items():
            text = text.replace("{" + name + "}", value)
        return text

    def prepare(self) -> None:
        """A run, a file of trajectories, an empty folder and a file of words."""
        import numpy as np

        (self.folder / "empty").mkdir()
        (self.folder / "words.txt").write_text("not numbers\n")
        states = np.random.default_rng(0).standard_normal((6, 12, 1, 16)).astype("f4")
        np.save(self.folder / "flow.npy", states)
        given = [part for text in TINY for part in ("--set", text)]
        code, problem = self.outcome(["train", "burgers", *given, *self.where()])
        if problem or code:
            raise SystemExit(f"the run of the fuzzer cannot be made: {code} {problem}")
        (run,) = (path.parent for path in (self.folder / "runs").glob("*/config.toml"))
        self.names["RUN"] = str(run)

    def where(self) -> list[str]:
        return ["--runs", str(self.folder / "runs"), "--data", str(self.folder / "data")]

    def outcome(self, arguments: list[str]) -> tuple[int, str]:
        """Exit code of a command and what is wrong with the way it ended, if anything is."""
        from hero.cli import main
        from hero.config import registry

        out, err = io.StringIO(), io.StringIO()
        signal.setitimer(signal.ITIMER_PROF, CASE_SECONDS)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(arguments)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            return -1, "".join(traceback.format_exception(error)[-4:])
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            registry._all_trusted = False
        lines = [line for line in err.getvalue().split("\n") if line.strip()]
        if code == 2:
            told = len(lines) == 1 and lines[0].startswith("hero: ") and lines[0].endswith((".", "?"))
            return code, "" if told else f"not one sentence: {err.getvalue()!r}"
        if code == 1:
            return code, ""
        return code, "" if code == 0 else f"exit code {code}: {err.getvalue()[-300:]!r}"

    def run(self, cases: Iterator[Any], count: int) -> int:
        """Try up to `count` cases; how many were tried before the time was over."""
        for tried in range(count):
            if tried and tried % 1000 == 0:
                print(f"{tried} tried, {len(self.failures)} failed so far", flush=True)
            if time.process_time() > self.deadline:
                return tried
            arguments = [self.filled(text) for text in next(cases)]
            code, problem = self.outcome(arguments)
            self.taken += code in (0, 1)
            self.refused += code == 2
            if problem:
                self.failures.append(f"{arguments!r}\n  {problem}")
                print("FAILED", self.failures[-1], flush=True)
        return count


def random_value(rng: random.Random, default: str = "1") -> str:
    """A value as somebody may type it, mistaken or malicious."""
    kind = rng.random()
    if kind < 0.3:
        return rng.choice(NUMBERS)
    if kind < 0.5:
        return rng.choice(WORDS)
    if kind < 0.7:
        return rng.choice(LITERALS)
    if kind < 0.8:
        return mutated(rng, default)
    if kind < 0.9:
        return f"[{', '.join(rng.choice(NUMBERS + WORDS) for _ in range(rng.randrange(4)))}]"
    return rng.choice(NUMBERS) + rng.choice(["", ",", " ", ":", ";", "e5"]) + rng.choice(NUMBERS + WORDS)


def mutated(rng: random.Random, text: str) -> str:
    """The text with a few characters changed, doubled or left out."""
    letters = list(text or "x")
    for _ in range(rng.randrange(1, 4)):
        place = rng.randrange(len(letters) + 1)
        letters[place : place + rng.randrange(3)] = rng.choice(
            ["", "0", "-", ".", "[", "]", '"', "=", "\n", "#", "\x00", "ü", "e9", *text[:3]]
        )
    return "".join(letters)


def values(rng: random.Random) -> Iterator[list[str]]:
    """`hero settings`, at times `hero describe`, with values of every setting in turn, on several bases."""
    from hero.config.settings import default_text
    from hero.runs.sections import all_settings

    known = [(key, default_text(entry)) for key, entry in all_settings()]
    while True:
        for key, default in rng.sample(known, len(known)) + [(key, "1") for key in KEYS]:
            given = [*rng.choice(BASES), f"{key}={random_value(rng, default)}"]
            if rng.random() < 0.2:
                other, default = rng.choice(known)
                given.append(f"{other}={random_value(rng, default)}")
            command = ["settings"]
            if rng.random() < 0.03:  # which builds the operator and counts an update of it, without numbers
                command, given = ["describe", "burgers"], [*TINY, *given[-1:]]
            yield [*command, *(part for text in given for part in ("--set", text))]


def options(rng: random.Random, where: list[str]) -> Iterator[list[str]]:
    """Every option and argument of every command, one at a time with a strange value, else as small as can be."""
    import typer

    from hero.cli import app

    tiny = [part for text in TINY for part in ("--set", text)]
    rows = [part for text in TINY if not text.startswith("strategy") for part in ("--set", text)]
    usual: dict[str, list[str]] = {
        "train": ["burgers", *tiny],
        "finetune": ["{RUN}", "--set", "train.steps=1"],
        "compare": ["burgers", *rows, "--strategies", "one_step", "--seeds", "1", "--workers", "0"],
        "study": ["main", "--dry-run", "--seeds", "1"],
        "describe": ["burgers", *tiny, "--updates", "1"],
        "make": ["burgers", *tiny],
        "show": ["burgers", *tiny],
        "doctor": ["{FILE}", "--layout", "btcx", "--out", "{FOLDER}/../pictures"],
        "settings": ["burgers"],
        "predict": ["{RUN}", "--steps", "2", "--out", "{FOLDER}/../p.npz"],
        **{name: ["{RUN}"] for name in ("evaluate", "report", "animate", "landscape", "probe", "anatomy")},
        "export": ["{RUN}", "--format", "folder", "--out", "{FOLDER}/../model"],
    }
    root: Any = typer.main.get_command(app)
    commands = {**root.commands, **root.commands["data"].commands}
    named = [(name, param) for name, found in commands.items() if name != "data" for param in found.params]
    while True:
        for name, param in rng.sample(named, len(named)):
            start = ["data", name] if name in ("list", "make", "show") else [name]
            folders = where if name != "finetune" else [part.replace("--data", "--data-dir") for part in where]
            rest = [*usual.get(name, []), *(folders if any(p.name == "runs" for p in commands[name].params) else [])]
            value = random_value(rng, str(param.default or "1"))
            if param.name in ("cluster", "open", "log"):
                continue  # they start Ray, a browser or a service
            if param.param_type_name == "argument":
                yield [*start, value, *rest[1:]]
            elif getattr(param, "is_flag", False):
                yield [*start, *rest, rng.choice(param.opts)]
            else:
                yield [*start, *rest, rng.choice(param.opts), value]


TABLES = ["", "[a]", "[[train]]", "[train.a]", "[task]", "a.b.c=1", "[", "]", "=", "#"]


def files(rng: random.Random, folder: Path, filled: Callable[[str], str]) -> Iterator[list[str]]:
    """Configuration files: those of runs with lines, values and bytes changed."""
    from hero.runs.config import make_config
    from hero.runs.sections import all_settings

    bases = [[filled(text) for text in base] for base in BASES if "Conv1d" not in str(base)]
    whole = [make_config(overrides=base).to_toml().splitlines() for base in bases]
    keys = [key for key, _ in all_settings()]
    for number in range(sys.maxsize):
        lines = list(rng.choice(whole))
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(len(lines))
            changed = f"{rng.choice([lines[place].partition('=')[0], rng.choice(keys)])} = {random_value(rng)}"
            other = rng.choice([mutated(rng, lines[place]), rng.choice(lines), rng.choice(TABLES)])
            lines[place] = rng.choice([changed, other])
        content = "\n".join(map(filled, lines)).encode("utf-8", "surrogateescape")
        if rng.random() < 0.2:
            place = rng.randrange(len(content))
            content = content[:place] + rng.randbytes(rng.randrange(3)) + content[place + rng.randrange(99) :]
        path = folder / f"fuzz{number % 50}.toml"
        path.write_bytes(rng.choice([b"", b"", b"", b"\xef\xbb\xbf"]) + content)
        yield ["settings", "--config", str(path)]


def too_slow(*_: Any) -> None:
    raise RuntimeError(f"it takes more than {CASE_SECONDS} s")


def fuzz(
    values_count: int, files_count: int, options_count: int, seconds: float, seed: int = 0
) -> tuple[str, list[str]]:
    """Try so many of each kind, or as many as the time allows: a sentence with the counts, and what failed."""
    from hero.cli import plan

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, too_slow)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)  # whatever is written without a folder goes with it
        fuzzer = Fuzzer(Path(name))
        fuzzer.prepare()
        fuzzer.deadline = time.process_time() + seconds
        kinds = {
            "values of settings": (values(random.Random(f"{seed} values")), values_count),
            "configuration files": (files(random.Random(f"{seed} files"), Path(name), fuzzer.filled), files_count),
            "options": (options(random.Random(f"{seed} options"), fuzzer.where()), options_count),
        }
        vars(plan)["show_rows"] = lambda *_: None  # drawing the table of all settings takes most of the time
        tried = {kind: fuzzer.run(*given) for kind, given in kinds.items()}
        os.chdir("/")
    counts = ", ".join(f"{count} {kind}" for kind, count in tried.items())
    outcome = f"{fuzzer.taken} taken, {fuzzer.refused} refused, {len(fuzzer.failures)} failed"
    return f"{counts}: {outcome}", fuzzer.failures
