"""Commands before training: `hero data`, `hero settings`, `hero describe` and `hero estimate`."""

from json import dumps
from typing import TYPE_CHECKING, Annotated

from rich.table import Table

from hero.cli.options import Folders, JsonFile, OneRun, RequiredTask, Settings, Task, flag, option
from hero.console import console, say

if TYPE_CHECKING:
    from hero.study.cost.measure import Estimate


def list_tasks(where: Folders) -> None:
    """List all benchmarks and their equations."""
    from hero.data import TASKS

    table = Table(title="Benchmarks", caption="`hero settings TASK` shows the coefficients, extent, dt and warm-up")
    for name in ("task", "grid"):
        table.add_column(name, no_wrap=True)
    table.add_column("equation", overflow="fold")
    for task in TASKS.values():
        table.add_row(task.name, "×".join([str(task.resolution)] * task.dims), task.equation)
    console.print(table)


def make_data(task: RequiredTask, settings: Settings, where: Folders) -> None:
    """Solve and store the training, validation and test trajectories."""
    from hero.data import load_split, split_path

    config = settings.resolve(task=task)
    for name in ("train", "val", "test"):
        load_split(config.make_task(), config.split(name), where.data)
        say(str(split_path(config.make_task(), config.split(name), where.data)))


def show_data(task: RequiredTask, settings: Settings, where: Folders) -> None:
    """Print settings and provenance, and draw the fields."""
    from hero.data import data_summary, load_split, split_path
    from hero.report.figures.fields import split_figure
    from hero.report.figures.style import save

    config = settings.resolve(task=task)
    benchmark, split = config.make_task(), config.split("test")
    states, path = load_split(benchmark, split, where.data), split_path(benchmark, split, where.data)
    table = Table(show_header=False, title=benchmark.title)
    for key, value in data_summary(path).items():
        table.add_row(key, str(value))
    console.print(table)
    say(f"picture: {save(split_figure(states, benchmark), path.with_suffix('.png'))}")


def settings(
    settings: Settings,
    task: Task = None,
    schema: Annotated[bool, flag("--schema", "Print the JSON schema of configuration files instead.")] = False,
) -> None:
    """Print every setting, its default and its meaning; for a TASK, the values that it resolves to."""
    from hero.config.settings import default_text
    from hero.runs.config import all_settings, json_schema

    if schema:
        print(dumps(json_schema(), indent=2))
        return
    config = settings.resolve(task=task)
    values, section = config.to_dict(), "task"
    table = Table(title=f"Settings for {config.task.name}")
    table.add_column("setting", no_wrap=True)
    for heading in ("value" if task else "default", "meaning"):
        table.add_column(heading, overflow="fold")
    for key, value in values["task"].items():
        table.add_row(f"task.{key}", str(value), "")
    for key, field in all_settings():
        where, _, name = key.rpartition(".")
        if where != section:
            table.add_section()
        section = where
        found = values.get(where, {}) if where else values
        table.add_row(key, str(found.get(name, default_text(field))), field.description or "")
    console.print(table)


def describe(run: OneRun, settings: Settings, where: Folders, json: JsonFile = None) -> None:
    """Count parameters, FLOPs, memory and files of a run, before anything is computed."""
    from hero.report.content import description_table
    from hero.study.cost import count

    found = count.describe(settings.resolve("describe", **vars(run)))
    table = description_table(found)
    console.print(table.to_rich())
    say(*table.notes, style="dim")
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
    from hero.study.cost import measure

    say(f"measuring {updates} updates of each phase", style="dim")
    found = measure.estimate(settings.resolve("estimate", **vars(run)), where.data, updates)
    show_estimate(found)
    if json:
        found.write(json)


def show_estimate(found: "Estimate") -> None:
    """One table, the total, and a warning if the memory is too small."""
    from hero.report.content import estimate_table
    from hero.study.cost.count import readable

    console.print(estimate_table(found).to_rich())
    peak, available = found.peak_memory, found.available_memory
    held = "" if peak is None else f", peak memory {readable(peak, 'B')}"
    say(f"predicted: {found.seconds / 60:.1f} minutes{held}")
    if peak is not None and available is not None and peak > available:
        say(f"warning: only {readable(available, 'B')} of memory are available", style="yellow")
    say("evaluation without its figures; the peak is that of training with validation", style="dim")
