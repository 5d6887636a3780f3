"""Commands that train: `hero train`, `hero finetune`, `hero compare` and `hero study`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import hero.parts as parts
from hero.cli import options
from hero.cli.options import (
    Configuration,
    Folders,
    Network,
    OneRun,
    WorkerOptions,
    argument,
    flag,
    in_folders,
    option,
    run_ids,
    split_names,
)
from hero.cli.show import measure, show, show_json, show_result, show_rows
from hero.console import say
from hero.errors import HeroError
from hero.ranks import RANKS

if TYPE_CHECKING:
    from hero.runs.config import RunConfig
    from hero.study.collect import Plan
    from hero.study.records import StudyResult
    from hero.study.worker import Workers

STRATEGIES = option("A,B,...", "Some of: NAMES.", parts.STRATEGIES)


def train(
    run: OneRun,
    settings: Configuration,
    where: Folders,
    resume: Annotated[str | None, option("RUN", "Continue this run; it keeps its settings.", run_ids)] = None,
    log: Annotated[list[str] | None, option("NAME", "Also log to: NAMES (default $HERO_LOG).", parts.LOGGERS)] = None,
) -> None:
    """Train, evaluate and report one run.

    The same command, or --resume RUN, continues a run that was stopped; on CPU to the same bits.

    `torchrun --nproc-per-node N -m hero train ...` shares every batch between N processes or GPUs.
    """
    parts.LOGGERS.check(*split_names(",".join(log or ())) or ())
    if resume is not None:
        if run != OneRun() or settings not in (Configuration(), Configuration(set=[])):
            raise HeroError("--resume keeps the run's own settings; leave out the others, or start a new run.")
        stopped = where.find(resume)  # before torch is loaded
        from hero.training import loop

        folder = loop.resume(stopped, where.data, log or None)
    else:
        config = settings.resolve("train", **vars(run))
        values = settings.values(**vars(run))
        from hero.training import loop

        say(*settings.recommendation(config, values), *file_summary(config), style="dim")
        folder = loop.train(config, where.runs, where.data, log or None)
    show_trained(folder, where)


def show_trained(folder: Path, where: Folders) -> None:
    """Print the result of a run, measured unless it was; of the processes that share a run the first does."""
    from hero.runs.folder import Run

    if RANKS.is_first:
        show_result(Run(folder).metrics or measure(folder, where.data), folder)


WEIGHT_FILES = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".mdlus")


@dataclass
class FinetuneFolders(Folders):
    """Where runs and benchmark data are; `--data` names the data to train on here."""

    data: Annotated[
        Path, in_folders("DIR", "Folder of the benchmark data.", spelled=["--data-dir"], envvar="HERO_DATA")
    ] = Path("data")


def finetune(
    checkpoint: Annotated[
        str,
        argument("CHECKPOINT", "Run, or weights: .safetensors, .pt, .ckpt, .mdlus, or a folder with them.", run_ids),
    ],
    network: Network,
    settings: Configuration,
    where: FinetuneFolders,
    on: Annotated[
        str | None,
        option(
            "TASK|FILE", "Benchmark or file of trajectories (default: the data of the run).", parts.TASKS, ["--data"]
        ),
    ] = None,
    unroll: Annotated[
        str | None, option("STAGES", "Steps of a window, or stages LENGTH:UPDATES, as 1:500,2:500,4:1000.")
    ] = None,
) -> None:
    """Fine-tune a checkpoint along its own rollouts; compare before and after.

    Weights without a run need --backbone and --data, and their module gets states as they are: train.normalise and
    backbone.residual are off unless set.

    By default 2,000 updates at a tenth of the optimizer's learning rate. The same command continues a run that was
    stopped.
    """
    stages = {} if unroll is None else {"train.stages" if ":" in unroll else "train.unroll": unroll}
    values = settings.values(task=on, **vars(network), **stages)
    found = find_checkpoint(checkpoint, where)
    from hero.evaluation.evaluate import measure_before
    from hero.runs.finetune import finetune_config
    from hero.training import loop

    config = finetune_config(found, values, settings.base(values), settings.config)
    say(*settings.recommendation(config, values), style="dim")
    if RANKS.is_first:
        measure_before(config, where.runs, where.data)
    show_trained(loop.train(config, where.runs, where.data), where)


def find_checkpoint(name: str, where: Folders) -> Path:
    if Path(name).exists():
        return Path(name)
    if Path(name).suffix in WEIGHT_FILES:
        raise HeroError(f"there is not a file {name}; check the path.")
    return where.find(name)


def file_summary(config: "RunConfig") -> list[str]:
    """Lines that say what was found in a file, the decisions taken in reading it, and the network with its cost."""
    from hero.data import SPLITS, FileSettings
    from hero.study.cost.count import network_sentence

    found = config.data
    if not isinstance(found, FileSettings):
        return []
    sizes = zip(found.axes, found.space, found.periodic, strict=True)
    axes = ", ".join(f"{name} {points}{' periodic' * around}" for name, points, around in sizes)
    parts = [f"{found.split(name).trajectories} x {found.split(name).steps + 1}" for name in SPLITS]
    given = f"; conditioned on {', '.join(found.condition)}" if found.condition else ""
    given += "; points without a value are left out (a mask)" if found.masked else ""
    return [
        f"{Path(found.path).name}: {found.format}, {', '.join(found.channels)} on {axes}, dt {found.dt:g}{given}; "
        f"trajectories x states: {parts[0]} to train, {parts[1]} to validate, {parts[2]} to test",
        *(f"note: {note}" for note in found.recording.notes),
        network_sentence(config),
    ]


def compare(
    settings: Configuration,
    where: Folders,
    workers: WorkerOptions,
    task: options.TaskName = None,
    strategies: Annotated[str, STRATEGIES] = "one_step,push_forward,hero,fixed_weight",
    backbone: options.Backbone = None,
    size: options.Size = None,
    seeds: Annotated[str, options.SEEDS] = "5",
    baseline: Annotated[
        str | None, option("NAME", "Compare with this strategy (default push_forward).", parts.STRATEGIES)
    ] = None,
    json: options.JsonFile = None,
    out: Annotated[Path | None, option("DIR", "Folder of table and figure (default: RUNS/compare-ID).")] = None,
) -> int:
    """Train strategies with shared seeds and compare them: a table, paired tests, and curves.

    All have the optimizer, the loss and the network of the preset recipe, as `hero train`; --preset paper compares them
    as published.
    """
    parts.STRATEGIES.check(*split_names(strategies) or (), baseline)
    values = settings.values("compare", task=task, backbone=backbone, size=size)
    from hero.runs.config import merge_settings
    from hero.study.compare import plan_comparison

    if values.keys() & {"strategy", "seed"}:
        raise HeroError("strategy and seed are compared, not set; use --strategies and --seeds instead of --set.")
    preset = settings.preset or ("paper" if settings.config else parts.RECOMMENDED)
    say(f"every strategy with the settings of the preset {preset}", style="dim")
    chosen = merge_settings(preset, settings.config, values), split_names(strategies) or [], options.seed_numbers(seeds)
    built = workers.build()
    planned = plan_comparison(*chosen, baseline)
    result = run_plan(planned, where, built, out)
    if json:
        result.write(json)
    return int(bool(result.failed))


def study(
    study: Annotated[str, argument("STUDY", "One of: NAMES.", parts.STUDIES)],
    settings: Configuration,
    where: Folders,
    workers: WorkerOptions,
    tasks: Annotated[str | None, option("A,B,...", "Benchmarks (default: as in the paper).", parts.TASKS)] = None,
    backbones: Annotated[
        str | None, option("A,B,...", "Some of: NAMES, or package.module:Class.", parts.BACKBONES)
    ] = None,
    strategies: Annotated[str | None, STRATEGIES] = None,
    seeds: Annotated[str | None, options.SEEDS] = None,
    loss: Annotated[str | None, option("NAME", "Absolute loss: relative, mse or both (default: by study).")] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Only list the runs and their state.")] = False,
    as_json: options.AsJson = False,
    table_only: Annotated[bool, flag("--table-only", "Train nothing; write the tables of the finished runs.")] = False,
    out: Annotated[Path | None, option("DIR", "Folder of tables and figures (default: RUNS/study-NAME-ID).")] = None,
) -> int:
    """Train the runs of a table of the paper; write tables and figures.

    Finished runs are found and not repeated: after a kill the same command continues and ends with the same table.
    """
    chosen = split_names(tasks), split_names(backbones), split_names(strategies)
    parts.STUDIES.check(study)
    for registry, given in zip((parts.TASKS, parts.BACKBONES, parts.STRATEGIES), chosen, strict=True):
        registry.check(*given or ())
    if dry_run and table_only:
        raise HeroError("--dry-run writes nothing, so it excludes --table-only; leave out one of them.")
    if as_json and not dry_run:
        raise HeroError("--json lists the runs of --dry-run; add that, or read study.json of the study.")
    from hero.study.plans import plan
    from hero.study.run import schedule

    values, only = settings.values(), None if seeds is None else options.seed_numbers(seeds)
    planned = plan(study, settings.preset or "paper", settings.config, values, *chosen, only, loss)
    if dry_run:
        runs = schedule(planned, where.runs)
        if as_json:
            show_json([{"run": run, "state": state} for run, state in runs.items()])
        else:
            show_rows("", ("run", "state"), runs.items())
            finished = sum(state == "finished" for state in runs.values())
            say(f"{len(runs)} runs, {finished} finished" if runs else "this study trains nothing: it measures")
        return 0
    return int(bool(run_plan(planned, where, workers.build(), out, table_only).failed))


def run_plan(
    planned: "Plan", where: Folders, workers: "Workers", out: Path | None, table_only: bool = False
) -> "StudyResult":
    """Run a study or comparison, write its tables and figures, and print the tables."""
    from hero.report.content import paired_table, study_tables, study_title, write_tables
    from hero.report.figures.runs import write_study
    from hero.report.sentences import result_sentences
    from hero.study.records import FILE, StudyResult
    from hero.study.run import run

    out = out or where.runs / planned.folder
    try:
        result = run(planned, where.runs, where.data, workers, out, table_only, measure)
    except KeyboardInterrupt:
        if (out / FILE).is_file():
            write_tables(out, StudyResult.read(out / FILE))
        raise
    figures = write_study(out, result, where.runs)
    say(study_title(result), style="bold")
    for table in (*study_tables(result), *map(paired_table, result.statistics)):
        show(table)
    say(*result_sentences(result))
    say(f"table: {out / 'table.md'}", *(f"figure: {figure}" for figure in figures))
    say(f"`hero report {out}` writes it as a page", style="dim")
    return result


COMMANDS = {"Train": (train, finetune, compare, study)}
