"""Options that several commands share, in groups, and the names that complete them."""

import ast
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hero.errors import HeroError

if TYPE_CHECKING:
    from hero.runs.config import RunConfig
    from hero.study.worker import Workers

REGISTRIES = {
    "task": ("data/benchmarks.py", "ROWS"),
    "strategy": ("strategies/__init__.py", "STRATEGIES"),
    "backbone": ("models/__init__.py", "BACKBONES"),
    "study": ("study/plans.py", "STUDIES"),
    "preset": ("runs/config.py", "PRESETS"),
    "logger": ("training/loggers.py", "LOGGERS"),
    "budget": ("study/compare.py", "BUDGETS"),
    "format": ("evaluation/export.py", "FORMATS"),
}
"""Source file and variable of each registry whose names help and completion show."""


def names(kind: str) -> list[str]:
    """The names in a registry, read from its source: importing the registry would load torch, which takes seconds."""
    file, variable = REGISTRIES[kind]
    for node in ast.parse((Path(__file__).parents[1] / file).read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(targets[0], ast.Name) and targets[0].id == variable:
            return list(literal_names(getattr(node, "value", None)))
    return []


def literal_names(value: ast.expr | None) -> Iterator[str]:
    """The keys in `{...}` or `Registry(kind, {...})`, the words in `("a", "b")`, or a, b in `(Part(name="a"), ...)`."""
    if isinstance(value, ast.Call) and value.args:
        value = value.args[-1]
    for part in value.keys if isinstance(value, ast.Dict) else getattr(value, "elts", ()):
        named = next((word.value for word in getattr(part, "keywords", ()) if word.arg == "name"), part)
        if isinstance(named, ast.Constant):
            yield str(named.value)


def complete(kind: str) -> Callable[..., list[str]]:
    """Completion of a name, or of the last one of several names separated by commas."""

    def run_ids(ctx: typer.Context, incomplete: str) -> list[str]:
        found = Path(ctx.params.get("runs") or "runs").glob(f"{incomplete}*/config.toml")
        return sorted(path.parent.name for path in found)

    def matches(incomplete: str) -> list[str]:
        before, comma, _ = incomplete.rpartition(",")
        return [name for word in names(kind) if (name := before + comma + word).startswith(incomplete)]

    return run_ids if kind == "run" else matches


def option(flag: str, metavar: str, text: str, kind: str | None = None, panel: str | None = None, **more: Any) -> Any:
    """An option with a value; `kind` completes it from a registry, whose names take the place of NAMES in `text`."""
    if kind:
        more["autocompletion"] = complete(kind)
    if "NAMES" in text and kind:
        text = text.replace("NAMES", ", ".join(names(kind)))
    return typer.Option(flag, metavar=metavar, help=text, rich_help_panel=panel, **more)


def flag(name: str, text: str) -> Any:
    """An option without a value."""
    return typer.Option(name, help=text)


def argument(metavar: str, text: str, kind: str) -> Any:
    """A positional argument, completed from the registry `kind`."""
    return typer.Argument(metavar=metavar, help=text, autocompletion=complete(kind))


Task = Annotated[str | None, argument("TASK", "Benchmark; `hero data list` shows all.", "task")]
RunName = Annotated[str, argument("RUN", "Run folder, run id, or a unique part of the id.", "run")]
Backbone = Annotated[
    str | None, option("--backbone", "NAME", "One of: NAMES, or package.module:Class (default fno).", "backbone")
]
JsonFile = Annotated[Path | None, option("--json", "FILE", "Also write all numbers to this file.")]


@dataclass
class Folders:
    """Where runs and data are."""

    runs: Annotated[Path, option("--runs", "DIR", "Runs.", panel="Folders", envvar="HERO_RUNS")] = Path("runs")
    data: Annotated[Path, option("--data", "DIR", "Data.", panel="Folders", envvar="HERO_DATA")] = Path("data")

    def find(self, run: str) -> Path:
        """The folder of a run."""
        from hero.runs.folder import find_run

        return find_run(run, self.runs)


@dataclass
class Settings:
    """A configuration: preset, then file, then single settings."""

    preset: Annotated[str, option("--preset", "NAME", "Base values: NAMES.", "preset", "Settings")] = "paper"
    config: Annotated[Path | None, option("--config", "FILE", "TOML file, such as a run's.", panel="Settings")] = None
    overrides: Annotated[
        list[str] | None, option("--set", "KEY=VALUE", "One setting of `hero settings`; repeatable.", panel="Settings")
    ] = None

    def values(self, **named: Any) -> dict[str, Any]:
        """Single settings as dotted keys; `named` has the settings with an option of their own, where given."""
        from hero.config import parse_override

        keys = {"task": "task.name", "backbone": "backbone.name"}
        given = {keys.get(name, name): value for name, value in named.items() if value is not None}
        return dict(map(parse_override, self.overrides or ())) | given

    def resolve(self, **named: Any) -> "RunConfig":
        """The configuration."""
        from hero.runs.config import make_config

        return make_config(self.preset, self.config, self.values(**named))

    def require_task(self, task: str | None, command: str) -> None:
        """Refuse a command that names no benchmark."""
        if not (task or self.config):
            raise HeroError(f"name a benchmark, for example `hero {command} burgers`; `hero data list` shows all.")


@dataclass
class OneRun(Settings):
    """The configuration of one run."""

    task: Task = None
    strategy: Annotated[str | None, option("--strategy", "NAME", "One of: NAMES (default hero).", "strategy")] = None
    backbone: Backbone = None
    seed: Annotated[int | None, option("--seed", "N", "Of initial weights and batch order (default 0).")] = None

    def resolved(self, command: str) -> "RunConfig":
        """The configuration of the run."""
        self.require_task(self.task, command)
        return self.resolve(task=self.task, strategy=self.strategy, backbone=self.backbone, seed=self.seed)


PLACE = {"panel": "Where the runs are computed"}


@dataclass
class WorkerOptions:
    """Where the runs of a command are computed."""

    workers: Annotated[
        int, option("--workers", "N", "Runs at a time, each a process; 0: in this process; or per machine.", **PLACE)
    ] = 1
    cluster: Annotated[
        str | None,
        option("--cluster", "ADDRESS", "Use a Ray cluster: host:port, auto, or local to start it.", **PLACE),
    ] = None
    cpus: Annotated[float | None, option("--cpus", "X", "On a cluster: CPUs of each run.", **PLACE)] = None
    gpus: Annotated[float, option("--gpus", "X", "On a cluster: GPUs of each run; 0.5 shares one.", **PLACE)] = 0.0
    retries: Annotated[int, option("--retries", "N", "On a cluster: tries after a worker died.", **PLACE)] = 3

    def build(self) -> "Workers":
        """The workers."""
        from hero.study.worker import Workers

        return Workers(self.workers, self.cluster, self.cpus, self.gpus, self.retries)


def split_names(text: str | None) -> list[str] | None:
    """Names separated by commas."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def flat(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with the options of each group among its parameters in place of the group, as Typer needs them."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if dataclasses.is_dataclass(parameter.annotation):
            groups[name] = parameter.annotation
            parameters += inspect.signature(groups[name]).parameters.values()
        else:
            parameters.append(parameter)

    def run(**values: Any) -> Any:
        for name, group in groups.items():
            values[name] = group(**{item.name: values.pop(item.name) for item in dataclasses.fields(group)})
        return function(**values)

    run.__doc__ = function.__doc__
    by_keyword = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in parameters]
    run.__signature__ = inspect.Signature(by_keyword)  # type: ignore[attr-defined]
    return run
