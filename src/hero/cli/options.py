"""Options that several commands share, in groups, and the names that complete them."""

import dataclasses
import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import hero.parts as parts
from hero.errors import HeroError

if TYPE_CHECKING:
    from hero.runs.config import RunConfig
    from hero.study.worker import Workers


def setting_names() -> list[str]:
    """Every setting, from a list that `tools/setting_names.py` writes: importing their classes would load torch."""
    return (Path(__file__).parent / "settings.txt").read_text(encoding="utf-8").split()


def run_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completion of a run."""
    found = Path(ctx.params.get("runs") or "runs").glob(f"{incomplete}*/config.toml")
    return sorted(path.parent.name for path in found)


def settings(incomplete: str) -> list[str]:
    """Completion of a setting that is given a value."""
    return [f"{name}=" for name in setting_names() if name.startswith(incomplete)]


def topics(incomplete: str) -> list[str]:
    """Completion of a benchmark or a section of the settings."""
    sections = dict.fromkeys(name.partition(".")[0] for name in setting_names() if "." in name)
    return [name for name in (*parts.TASKS, *sections) if name.startswith(incomplete)]


def option(
    metavar: str,
    text: str,
    names: Collection[str] | Callable[..., list[str]] = (),
    spelled: Sequence[str] = (),
    make: Callable[..., Any] = typer.Option,
    **more: Any,
) -> Any:
    """An option with a value; `names`, which also replace NAMES in `text`, or a function complete it."""

    def matches(incomplete: str) -> list[str]:
        before, comma, _ = incomplete.rpartition(",")  # of several names the last one is completed
        return [name for word in known if (name := before + comma + word).startswith(incomplete)]

    known = () if callable(names) else names
    if names:
        more["autocompletion"] = names if callable(names) else matches
    return make(*spelled, metavar=metavar, help=text.replace("NAMES", ", ".join(known)), **more)


argument = partial(option, make=typer.Argument)


def flag(name: str, text: str) -> Any:
    """An option without a value."""
    return typer.Option(name, help=text)


TASK = argument(
    "TASK|FILE", "Benchmark (`hero data list` shows all), or file or folder of your trajectories.", parts.TASKS
)
TaskName = Annotated[str | None, TASK]
RequiredTask = Annotated[str, TASK]
RunName = Annotated[str, argument("RUN", "Run folder, run id, or a unique part of the id.", run_ids)]
Backbone = Annotated[
    str | None, option("NAME", "One of: NAMES, or package.module:Class (default fno).", parts.BACKBONES)
]
Size = Annotated[
    str | None,
    option(
        "NAME", "Size of the network: NAMES (default: base for files, as in the paper for benchmarks).", parts.SIZES
    ),
]
SEEDS = option("N|A-B|A,B", "N seeds from 0; 10-14 or 3,7 names them.")
AsJson = Annotated[bool, flag("--json", "Print plain JSON instead of the table.")]


def not_a_folder(path: Path | None) -> Path | None:
    """Refuse a folder where a file is to be written, before the work of which it is the result."""
    if path is not None and path.is_dir():
        raise HeroError(f"{path} is a folder, and a file is to be written; name the file as well.")
    return path


JsonFile = Annotated[Path | None, option("FILE", "Also write all numbers to this file.", callback=not_a_folder)]
TrustCode = Annotated[
    bool, flag("--trust-code", "Allow code that a run, a file or --config names; only for sources that you trust.")
]
MOST_SEEDS = 1000
in_folders = partial(option, rich_help_panel="Folders")
in_settings = partial(option, rich_help_panel="Settings")
in_workers = partial(option, rich_help_panel="Where the runs are computed")


def seed_numbers(text: str) -> list[int]:
    """The seeds that `--seeds` means: 5 is 0 to 4, 10-14 and 3,7 are these."""
    first, dash, last = text.partition("-")
    parts = [first, last] if dash else text.split(",")
    if not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise HeroError(f"--seeds {text} is not understood; use a number such as 5, or name them as 10-14 or 3,7.")
    numbers = [int(part) for part in parts]
    if not dash and len(numbers) > 1:
        return numbers
    start, end = (numbers[0], numbers[1] + 1) if dash else (0, numbers[0])
    if not 0 < end - start <= MOST_SEEDS:
        raise HeroError(f"--seeds {text} is {max(end - start, 0)} seeds; use 1 to {MOST_SEEDS}.")
    return list(range(start, end))


@dataclass
class Folders:
    """Where runs and data are, and whether their code may be run."""

    runs: Annotated[Path, in_folders("DIR", "Folder of the runs.", envvar="HERO_RUNS")] = Path("runs")
    data: Annotated[Path, in_folders("DIR", "Folder of the data.", envvar="HERO_DATA")] = Path("data")
    trust_code: TrustCode = False

    def __post_init__(self) -> None:
        allow_code(self.trust_code)
        if self.data.is_file():
            raise HeroError(
                f"--data {self.data} is a file and names the folder where benchmarks are kept; to train on a file, "
                f"`hero train {self.data}`."
            )

    def find(self, run: str) -> Path:
        from hero.runs.stored import find_run

        return find_run(run, self.runs)


@dataclass
class Configuration:
    """A configuration: preset, then file, then single settings."""

    preset: Annotated[
        str | None,
        in_settings("NAME", "Base values: NAMES (default: paper; recipe if no strategy is named).", parts.PRESETS),
    ] = None
    config: Annotated[Path | None, in_settings("FILE", "TOML file, such as config.toml of a run.")] = None
    set: Annotated[
        list[str] | None,
        in_settings(
            "KEY=VALUE", "Override a setting, e.g. train.lr=1e-3 (repeatable; `hero settings` lists them).", settings
        ),
    ] = None

    def values(self, command: str | None = None, **named: Any) -> dict[str, Any]:
        """Single settings as dotted keys: `set` and those with their own option; `command` needs a benchmark.

        Unknown names are refused here, before torch is loaded; a file is looked for where it is read.
        """
        from hero.config import parse_override

        task = named.get("task")
        if command and not (task or self.config):
            raise HeroError(
                f"name a benchmark or a file, for example `hero {command} burgers` or `hero {command} flow.h5`; "
                "`hero data list` shows the benchmarks."
            )
        parts.PRESETS.check(self.preset)
        parts.TASKS.check(task if parts.key_of(task) == "task.name" else None)
        for name, registry in (("strategy", parts.STRATEGIES), ("backbone", parts.BACKBONES), ("size", parts.SIZES)):
            registry.check(named.get(name))
        keys = {"task": parts.key_of(task), "backbone": "backbone.name", "size": "backbone.size"}
        given = {keys.get(name, name): value for name, value in named.items() if value is not None}
        return dict(map(parse_override, self.set or ())) | given

    def resolve(self, command: str | None = None, **named: Any) -> "RunConfig":
        values = self.values(command, **named)
        from hero.runs.config import make_config

        return make_config(self.base(values), self.config, values)

    def base(self, values: dict[str, Any]) -> str:
        """The preset; where none is named the recommended one unless a strategy, settings of another or a file are."""
        from hero.runs.config import implied_preset

        return self.preset or ("paper" if self.config else implied_preset(values))

    def recommendation(self, config: "RunConfig", values: dict[str, Any]) -> list[str]:
        """A line that says what is trained where no preset, strategy or file is named."""
        if self.preset or self.base(values) != parts.RECOMMENDED:
            return []
        return [
            f"preset {parts.RECOMMENDED}, which we recommend: {config.train.optimizer}, the invariants of the data "
            "kept; `--strategy hero` trains HERO as published"
        ]


@dataclass
class Network:
    """What is trained, and how."""

    strategy: Annotated[
        str | None, option("NAME", "One of: NAMES (default: by preset; push_forward to fine-tune).", parts.STRATEGIES)
    ] = None
    backbone: Backbone = None
    size: Size = None
    seed: Annotated[int | None, option("N", "Seed of initial weights and batch order (default 0).")] = None


@dataclass
class OneRun(Network):
    """The names of one run."""

    task: TaskName = None


@dataclass
class WorkerOptions:
    """Where the runs of a command are computed."""

    workers: Annotated[
        int, in_workers("N", "Runs at a time (on a cluster: per machine); 0 computes in this process.")
    ] = 1
    cluster: Annotated[str | None, in_workers("ADDRESS", "Ray cluster: host:port, auto, or local to start one.")] = None
    cpus: Annotated[
        float | None, in_workers("X", "On a cluster: CPUs of each run (default: smallest machine / N).")
    ] = None
    gpus: Annotated[float, in_workers("X", "On a cluster: GPUs of each run, such as 0.5 to share one.")] = 0.0
    retries: Annotated[int, in_workers("N", "On a cluster: further tries of a run whose worker died.")] = 3
    processes: Annotated[int, in_workers("N", "Processes that share each run; they share its CPUs and GPUs.")] = 1

    def build(self) -> "Workers":
        from hero.study.worker import Workers

        return Workers(*dataclasses.astuple(self))


def allow_code(trusted: bool) -> None:
    """Run code that stored files name, if the user said so."""
    if trusted:
        from hero.config.registry import trust_stored_code

        trust_stored_code()


def split_names(text: str | None) -> list[str] | None:
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
