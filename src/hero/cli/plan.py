"""Commands before training: `hero data`, `hero settings`, `hero describe` and `hero estimate`."""

from json import dumps
from typing import TYPE_CHECKING, Annotated

from hero.cli.options import (
    Folders,
    JsonFile,
    OneRun,
    RequiredTask,
    Settings,
    TaskName,
    TrustCode,
    allow_code,
    flag,
    option,
)
from hero.cli.show import show, show_rows
from hero.console import say
from hero.errors import HeroError

if TYPE_CHECKING:
    from hero.data import Task
    from hero.runs.config import RunConfig


def list_tasks(where: Folders) -> None:
    """List all benchmarks and their equations."""
    from hero.data import TASKS

    rows = [(name, "×".join([str(task.resolution)] * task.dims), task.equation) for name, task in TASKS.items()]
    show_rows("Benchmarks", ("task", "grid", "equation"), rows)
    say("`hero settings TASK` shows the coefficients, extent, dt and warm-up", style="dim")


def make_data(task: RequiredTask, settings: Settings, where: Folders) -> None:
    """Solve and store the training, validation and test trajectories."""
    from hero.data import SPLITS, load_split, split_path

    config = settings.resolve(task=task)
    benchmark = benchmark_of(config)
    for name in SPLITS:
        load_split(benchmark, config.split(name), where.data)
        say(str(split_path(benchmark, config.split(name), where.data)))


def benchmark_of(config: "RunConfig") -> "Task":
    """The task of a configuration; files are shown by `hero doctor`."""
    from hero.data import Task

    source = config.make_source()
    if not isinstance(source, Task):
        raise HeroError(f"{source.title} is not a benchmark; `hero doctor` shows files.")
    return source


def show_data(task: RequiredTask, settings: Settings, where: Folders) -> None:
    """Print settings and provenance, and draw the fields."""
    from hero.data import data_summary, load_split, split_path
    from hero.report.figures.fields import split_figure
    from hero.report.figures.style import save

    config = settings.resolve(task=task)
    benchmark, split = benchmark_of(config), config.split("test")
    states, path = load_split(benchmark, split, where.data), split_path(benchmark, split, where.data)
    show_rows(benchmark.title, ("fact", "value"), data_summary(path).items())
    say(f"picture: {save(split_figure(states, benchmark), path.with_suffix('.png'))}")


def settings(
    settings: Settings,
    task: TaskName = None,
    schema: Annotated[bool, flag("--schema", "Print the JSON schema of configuration files instead.")] = False,
    trust_code: TrustCode = False,
) -> None:
    """Print every setting, its default and its meaning; for a TASK, the values that it resolves to."""
    from hero.config.settings import default_text
    from hero.runs.config import all_settings, json_schema

    allow_code(trust_code)
    if schema:
        print(dumps(json_schema(), indent=2))
        return
    config = settings.resolve(task=task)
    values = config.to_dict()
    rows = [(f"task.{key}", value, "") for key, value in values["task"].items()]
    for key, field in all_settings():
        section, _, name = key.rpartition(".")
        found = values.get(section, {}) if section else values
        rows.append((key, found.get(name, default_text(field)), field.description or ""))
    show_rows(f"Settings for {config.task.name}", ("setting", "value" if task else "default", "meaning"), rows)


def describe(run: OneRun, settings: Settings, where: Folders, json: JsonFile = None) -> None:
    """Count parameters, FLOPs, memory and files of a run, before anything is computed."""
    from hero.report.content import description_table
    from hero.study.cost import count

    found = count.describe(settings.resolve("describe", **vars(run)))
    show(description_table(found))
    if json:
        found.write(json)


def estimate(
    run: OneRun,
    settings: Settings,
    where: Folders,
    updates: Annotated[int, option("N", "Updates measured per phase.")] = 10,
    json: JsonFile = None,
) -> None:
    """Predict time and peak memory of a run from a few real updates."""
    from hero.report.content import estimate_table
    from hero.study.cost import measure

    say(f"measuring {updates} updates of each phase", style="dim")
    found = measure.estimate(settings.resolve("estimate", **vars(run)), where.data, updates)
    show(estimate_table(found))
    if json:
        found.write(json)
