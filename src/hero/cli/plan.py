"""Commands before training: `hero data`, `hero settings` and `hero describe`."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hero.cli.options import (
    AsJson,
    Configuration,
    Folders,
    JsonFile,
    OneRun,
    RequiredTask,
    TrustCode,
    allow_code,
    argument,
    check_task,
    option,
)
from hero.cli.show import show, show_json, show_rows
from hero.console import say
from hero.errors import HeroError, unknown_name
from hero.parts import TASKS, key_of

if TYPE_CHECKING:
    from hero.data import Task
    from hero.runs.config import RunConfig


def list_tasks(where: Folders, as_json: AsJson = False) -> None:
    """List all benchmarks and their equations."""
    if as_json:
        facts = ("title", "equation", "dims", "channels", "resolution")
        show_json([{"task": name, **{fact: getattr(task, fact) for fact in facts}} for name, task in TASKS.items()])
        return
    rows = [(name, "×".join([str(task.resolution)] * task.dims), task.equation) for name, task in TASKS.items()]
    show_rows("Benchmarks", ("task", "grid", "equation"), rows)
    say("`hero settings TASK` shows the coefficients, extent, dt and warm-up", style="dim")


def make_data(task: RequiredTask, settings: Configuration, where: Folders) -> None:
    """Solve and store the training, validation and test trajectories."""
    check_task(task)
    from hero.data import SPLITS, load_split, split_path

    config = settings.resolve(task=task)
    benchmark = benchmark_of(config)
    for name in SPLITS:
        load_split(benchmark, config.split(name), where.data)
        say(str(split_path(benchmark, config.split(name), where.data)))


def benchmark_of(config: "RunConfig") -> "Task":
    """The task of a configuration; files are shown by `hero doctor`."""
    if config.source.task is None:
        raise HeroError(f"{config.source.title} is not a benchmark; `hero doctor` shows files.")
    return config.source.task


def show_data(task: RequiredTask, settings: Configuration, where: Folders) -> None:
    """Print settings and provenance, and draw the fields."""
    check_task(task)
    from hero.data import data_summary, load_split, split_path
    from hero.report.figures.fields import split_figure
    from hero.report.figures.style import save

    config = settings.resolve(task=task)
    benchmark, split = benchmark_of(config), config.split("test")
    states, path = load_split(benchmark, split, where.data), split_path(benchmark, split, where.data)
    show_rows(benchmark.title, ("fact", "value"), data_summary(path).items())
    say(f"picture: {save(split_figure(states, config.source), path.with_suffix('.png'))}")


def settings(
    settings: Configuration,
    words: Annotated[
        list[str] | None,
        argument("TASK|FILE|SECTION|NAME", "Data, of which the values are shown, and parts of the list.", "topic"),
    ] = None,
    as_json: AsJson = False,
    trust_code: TrustCode = False,
) -> None:
    """Print every setting, its default and its meaning, or a part of the list; for a TASK, the values."""
    from hero.config.settings import default_text
    from hero.runs.sections import all_settings

    allow_code(trust_code)
    fields = dict(all_settings())
    topics = {word: about for word in words or () if (about := settings_about(word, fields))}
    sources = [word for word in words or () if word not in topics]
    task = sources[0] if sources else None
    if len(sources) > 1:
        raise HeroError(f"{sources[1]!r} is neither a section nor a setting; name one task or file, and parts of it.")
    if task and key_of(task) == "task.name" and task not in TASKS:
        sections = {key.partition(".")[0] for key in fields}
        raise unknown_name("task, section or setting", task, [*TASKS, *sections])
    config = settings.resolve(task=task)
    values = config.to_dict()
    rows = [(f"task.{key}", value, "", "") for key, value in values["task"].items()]
    for key, field in fields.items():
        section, _, name = key.rpartition(".")
        found = values.get(section, {}) if section else values
        rows.append((key, found.get(name), default_text(field), field.description or ""))
    if topics:
        wanted = {key for about in topics.values() for key in about}
        rows = [row for row in rows if row[0] in wanted or (row[0].startswith("task.") and "task" in topics)]
    if as_json:
        show_json([dict(zip(("setting", "value", "default", "meaning"), row, strict=True)) for row in rows])
        return
    shown = [(key, default if value is None else value, meaning) for key, value, default, meaning in rows]
    show_rows(f"Settings for {config.task.name}", ("setting", "value" if task else "default", "meaning"), shown)


def settings_about(word: str, known: Iterable[str]) -> list[str]:
    """The settings of the section `word`, or with it in their name; none for a task, a file, or another word."""
    from hero.runs.sections import near_settings

    known = list(known)
    if word == "task":
        return ["task.name"]
    if word in TASKS or Path(word).exists():
        return []
    same = [key for key in known if key == word] or [key for key in known if key.partition(".")[0] == word != key]
    return same or [key for key in known if word.lower() in key] or near_settings(word, known)


def describe(
    run: OneRun,
    settings: Configuration,
    where: Folders,
    updates: Annotated[int, option("N", "Also make N real updates of each phase: time and peak memory.")] = 0,
    json: JsonFile = None,
) -> None:
    """Count parameters, FLOPs, memory and files of a run, and show what its data keep, before it is trained."""
    from hero.report.content import description_table, structure_table
    from hero.runs.structure import find_structure, sample_data
    from hero.study.cost import count
    from hero.study.cost.measure import measure

    config = settings.resolve("describe", **vars(run))
    found = count.describe(config)
    if updates:
        found = found.model_copy(update={"measured": measure(config, where.data, updates)})
    show(description_table(found))
    show(structure_table(find_structure(config, sample_data(config, where.data))))
    if json:
        found.write(json)
