"""Commands before training: `hero doctor`, which also explains a run, `hero data`, `hero settings`, `hero describe`."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    option,
    run_ids,
    topics,
)
from hero.cli.show import show, show_json, show_rows
from hero.console import say
from hero.errors import HeroError, unknown_name
from hero.parts import RECOMMENDED, TASKS, key_of

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
    config = settings.resolve(task=task)
    from hero.data import SPLITS, load_split, split_path

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
    config = settings.resolve(task=task)
    from hero.data import data_summary, load_split, split_path
    from hero.report.figures.fields import split_figure
    from hero.report.figures.style import save

    benchmark, split = benchmark_of(config), config.split("test")
    states, path = load_split(benchmark, split, where.data), split_path(benchmark, split, where.data)
    show_rows(benchmark.title, ("fact", "value"), data_summary(path).items())
    say(f"picture: {save(split_figure(states, config.source), path.with_suffix('.png'))}")


def settings(
    settings: Configuration,
    words: Annotated[
        list[str] | None,
        argument("TASK|FILE|SECTION|NAME", "Data, of which the values are shown, and parts of the list.", topics),
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
    config = settings.resolve("describe", **vars(run))
    from hero.report.described import description_table, structure_table
    from hero.runs.structure import find_structure, sample_data
    from hero.study.cost import count
    from hero.study.cost.measure import measure

    found = measure(config, where.data, updates) if updates else count.describe(config)
    show(description_table(found))
    show(structure_table(find_structure(config, sample_data(config, where.data))))
    if json:
        found.write(json)


def doctor(
    name: Annotated[str, argument("FILE|FOLDER|RUN", "Trajectories in a file or folder, or a trained run.", run_ids)],
    where: Folders,
    layout: Annotated[
        str, option("WORD", "Axes of an array, such as btcxy, or names of files, such as sim_{b}/{c}_{t}.npy.")
    ] = "",
    out: Annotated[Path | None, option("DIR", "Folder of the pictures (default: doctor-NAME).")] = None,
    json: JsonFile = None,
) -> int:
    """Check whether trajectories are fit for training, or explain why the rollout of a run fails.

    Exit code of a file: 0 fit for training, 1 problems to solve first, 2 unreadable.
    """
    folder = find_only_run(name, where)
    if folder is None:
        return examine_file(Path(name), layout, out or Path(f"doctor-{Path(name).resolve().stem}"), json)
    from hero.analysis.doctor_run import doctor_run
    from hero.report.doctor import run_figure, run_table
    from hero.report.figures.style import save

    found = doctor_run(folder, where.data)
    show(run_table(found))
    say(f"figure: {save(run_figure(found), folder / 'figures' / 'doctor.png')}", style="dim")
    if json:
        found.write(json)
    say(found.verdict)
    return 0


def examine_file(path: Path, layout: str, out: Path, json: Path | None) -> int:
    """Print the diagnosis of a file, draw its pictures, and return the exit code."""
    from hero.analysis.doctor import diagnose
    from hero.data.formats import open_recording
    from hero.report import doctor
    from hero.report.described import structure_table
    from hero.report.figures.style import save
    from hero.runs.config import make_config
    from hero.runs.structure import find_structure, sample_data
    from hero.study.cost.count import network_sentence

    recording = open_recording(path, layout)
    found = diagnose(recording, str(path), layout)
    for table in (doctor.facts_table(found), doctor.channels_table(found), doctor.findings_table(found)):
        show(table)
    for name, figure in doctor.figures(found, recording).items():
        save(figure, out / f"{name}.png")
    if json:
        found.write(json)
    network = ""
    if not found.problems:
        words = [f"{key}={value}" for key, value in found.settings.items()]
        config = make_config(RECOMMENDED, overrides=[f"data.path={found.source}", *words])
        show(structure_table(find_structure(config, sample_data(config, out))))
        network = network_sentence(config)
    say(f"pictures: {out}", style="dim")
    say(*doctor.verdict(found, network))
    return int(bool(found.problems))


def find_only_run(name: str, where: Folders) -> Path | None:
    """The run of that name; None where it is not a run but something on the disk, or nothing at all."""
    if Path(name).exists() and not (Path(name) / "config.toml").is_file():
        return None
    try:
        return where.find(name)
    except HeroError:
        if Path(name).suffix or "/" in name or ":" in name:
            return None  # a missing file: its reader says so
        raise


COMMANDS = {"Before training": (doctor, settings, describe)}
ACTIONS: dict[str, Any] = {"list": list_tasks, "make": make_data, "show": show_data}
