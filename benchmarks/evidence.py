"""Evidence: what every run of docs/results.md was, and how anyone checks it.

`results/runs/` has a small file for each run: its settings, metrics and error per step; `studies/`, `probes/` and
`landscapes/` next to it have what `hero study`, `hero probe` and `hero landscape` wrote. Tables and figures are made
from these files alone (`evidence_page.py`). There are four ways to check a number of a run, each dearer than the last:

A  the page is what the files say
B  stored predictions give the stored errors        (results/predictions)
C  stored weights give the stored metrics           (results/weights; makes the test data)
D  the same command gives the same metrics          (trains)
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from shutil import copyfile
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hero.console import progress_bar, say
from hero.errors import HeroError
from hero.evaluation.evaluate import Landscape, evaluate
from hero.evaluation.theory import Probe
from hero.files import json_line, write_atomic
from hero.method import metrics
from hero.records import Record
from hero.runs.checkpoint import load_weights
from hero.runs.config import RunConfig, make_config
from hero.runs.folder import Run, load_data
from hero.runs.records import Metrics, write_arrays
from hero.runs.stored import list_runs
from hero.study.records import FILE as STUDY_FILE
from hero.study.records import StudyResult
from hero.study.rows import whole_trajectories
from hero.training.loop import train

PAPER = ("one_step", "push_forward", "refiner", "recurrent", "hero", "fixed_weight")
COMPARED = ("push_forward", "hero", "fixed_weight")
"""The question of the paper: the usual loss, HERO, and a constant in the place of history."""
HERO_VARIANTS: dict[str, dict[str, Any]] = {
    "self only": {"hero.candidates": ("self",)},
    "lag only": {"hero.candidates": ("lag",)},
    "without lag": {"hero.candidates": ("perturbed", "self")},
    "without perturbed": {"hero.candidates": ("lag", "self")},
    "without self": {"hero.candidates": ("lag", "perturbed")},
    **{f"start={value}": {"hero.start": value} for value in (2000, 6000, 8000)},
    **{f"refresh={value}": {"hero.refresh": value} for value in (500, 1000, 4000)},
}
"""The paper's ablation, start step and refresh interval; its values at 10,000 updates."""
FORESIGHTS: dict[str, dict[str, Any]] = {
    "power=0.5": {"foresight.power": 0.5},
    "horizon=10": {"foresight.horizon": 10},
    "horizon=100": {"foresight.horizon": 100},
    "refresh=2000": {"foresight.refresh": 2000},
    "random phases": {"foresight.adjoint": "phases"},
    "solver's adjoint": {"foresight.adjoint": "solver"},
}
"""Foresight with one change."""
TRANSOLVERS: dict[str, dict[str, Any]] = {
    "Transolver": {"backbone.name": "transolver", "train.validate_every": 15},
    "Transolver, batch 4": {
        "backbone.name": "transolver",
        "train.batch": 4,
        "train.validate_every": 200,
        "train.compile": "false",
    },
}
"""The other backbone, with the paper's batch and with one that leaves time for more updates."""
BALANCED: dict[str, Any] = {"strategy": "push_forward", "train.loss": "balanced", "train.optimizer": "soap"}
"""The recommended preset before it kept invariants."""
ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: ("paper", {"strategy": name}) for name in PAPER},
    "recurrent": ("paper", {"strategy": "recurrent", **whole_trajectories(make_config())}),
    **{f"{name}, mse": ("paper", {"strategy": name, "train.loss": "mse"}) for name in COMPARED},
    **{
        f"{name}, {kind}": ("paper", {"strategy": name, **changes})
        for kind, changes in TRANSOLVERS.items()
        for name in COMPARED
    },
    **{
        f"control, {kind}": ("paper", {**BALANCED, "train.loss": "relative", **changes})
        for kind, changes in TRANSOLVERS.items()
    },
    **{f"recipe, {kind}": ("paper", {**BALANCED, **changes}) for kind, changes in TRANSOLVERS.items()},
    **{f"hero, {name}": ("paper", {"strategy": "hero", **changes}) for name, changes in HERO_VARIANTS.items()},
    # As trained before the preset dropped history; BALANCED gives the same bits (tests/test_presets.py).
    "recipe": ("paper", {"strategy": "foresight", "foresight.power": 0.0, "train.optimizer": "soap"}),
    "control": ("paper", {**BALANCED, "train.loss": "relative"}),
    "invariants": ("recipe", {}),
    "clip=20": ("paper", {**BALANCED, "loss.w_max": 20.0}),
    "clip=1000": ("paper", {**BALANCED, "loss.w_max": 1000.0}),
    "AdamW": ("paper", {**BALANCED, "train.optimizer": "adamw"}),
    "spectrum of the data": ("paper", {**BALANCED, "loss.spectrum": "data"}),
    "h1": ("paper", {**BALANCED, "train.loss": "h1"}),
    "foresight": ("paper", {**BALANCED, "strategy": "foresight"}),
    **{
        f"foresight, {name}": ("paper", {**BALANCED, "strategy": "foresight", **changes})
        for name, changes in FORESIGHTS.items()
    },
}
"""A name for each way of training in docs/results.md: its preset and what it changes."""
READINGS = {"kolmogorov_flow, drag 0.2": {"task.name": "kolmogorov_flow", "task.drag": 0.2}}
"""Tasks that the paper can be read to mean as well as our default."""
PREDICTED = (1, 10, 50, 100, 200)
"""Steps of the rollouts whose predictions are stored."""
KEPT = ("recipe", "control", "foresight")
"""Arms whose predictions and weights are stored, for the first of the seeds."""
FIRST_SEED = 10


class Evidence(Record):
    """A finished run as `results/runs/` keeps it."""

    remedy: ClassVar[str] = "collect it again from its run folder."

    arm: str
    task: str
    seed: int
    updates: int
    tag: str
    """The version of the code that trained it."""
    command: str
    settings: dict[str, Any]
    metrics: Metrics
    nrmse: tuple[float, ...]
    """Mean over the test trajectories at each step; infinite where one of them has left the finite range."""

    @property
    def run(self) -> str:
        """The id of the run."""
        return self.metrics.run

    @property
    def key(self) -> Key:
        """Its arm, task, seed and updates."""
        return Key(self.arm, self.task, self.seed, self.updates)


class Key(NamedTuple):
    """The arm, task, seed and updates of a run, which give its command and configuration."""

    arm: str
    task: str
    seed: int
    updates: int

    @property
    def command(self) -> str:
        """What to type to train it."""
        preset, changes = ARMS[self.arm]
        task = READINGS.get(self.task, {"task.name": self.task})
        settings = {**changes, **task, "train.steps": self.updates}
        words = ["hero train", settings.pop("task.name"), f"--preset {preset}"]
        words += [f"--strategy {settings.pop('strategy')}"] if "strategy" in settings else []
        usual = {"train.steps": make_config().train.steps}
        texts = {key: ",".join(value) if isinstance(value, tuple) else value for key, value in settings.items()}
        given = [f"{key}={value}" for key, value in texts.items() if usual.get(key) != value]
        return " ".join([*words, f"--seed {self.seed}", *(f"--set {setting}" for setting in given)])

    @property
    def config(self) -> RunConfig:
        """The whole of it; some arms have a strategy that is an example now, and is registered here."""
        import examples.foresight  # noqa: F401

        preset, changes = ARMS[self.arm]
        task = READINGS.get(self.task, {"task.name": self.task})
        return make_config(preset, overrides={**changes, **task, "seed": self.seed, "train.steps": self.updates})


@cache
def run_id(key: Key) -> str:
    """The id that training gives."""
    return key.config.run_id()


def key_of(config: RunConfig) -> Key | None:
    """The arm and task that a configuration belongs to, None if it is none of them."""
    name = config.task.name
    tasks = [name, *(reading for reading, settings in READINGS.items() if settings["task.name"] == name)]
    keys = (Key(arm, task, config.seed, config.train.steps) for arm in ARMS for task in tasks)
    return next((key for key in keys if is_run_of(key, config)), None)


def is_run_of(key: Key, config: RunConfig) -> bool:
    """Whether a configuration is the one of a key; an arm may ask for what so few updates do not have."""
    try:
        return run_id(key) == config.run_id()
    except HeroError:
        return False


def collect(runs_dir: Path, results: Path, tag: str) -> int:
    """Add the finished runs of `runs_dir` to `results`; returns how many there were."""
    count = 0
    folders = list_runs(runs_dir)
    with progress_bar("runs", len(folders)) as advance:
        for folder in folders:
            advance()
            run = Run(folder)
            if (found := run.metrics) is None:
                continue
            if (key := key_of(run.config)) is None:
                say(f"{run.name} is none of the arms of docs/results.md and is left out.", style="yellow")
                continue
            write_evidence(run, found, key, results, tag)
            count += 1
    return count


def collect_studies(runs_dir: Path, results: Path) -> int:
    """Add studies, one of each name, probes and landscapes of `runs_dir` to `results`; returns how many there were."""
    studies = [StudyResult.read(path) for path in sorted(runs_dir.glob(f"study-*/{STUDY_FILE}"))]
    for study in studies:
        study.write(study_path(results, study.study))
    probes = [Probe.read(path) for path in sorted(runs_dir.glob("*/probe.json"))]
    for probe in probes:
        probe.write(results / "probes" / f"{probe.run}.json")
    landscapes = [Landscape.read(path) for path in sorted(runs_dir.glob("*/landscape.json"))]
    for landscape in landscapes:
        landscape.write(landscape_folder(results) / f"{landscape.run}.json")
    return len(studies) + len(probes) + len(landscapes)


def landscape_folder(results: Path) -> Path:
    """Where the errors of kept checkpoints are."""
    return results / "landscapes"


def study_path(results: Path, name: str) -> Path:
    """The kept result of a study."""
    return results / "studies" / f"{name}.json"


def write_evidence(run: Run, found: Metrics, key: Key, results: Path, tag: str) -> None:
    """One run: its file, and for a few its predictions and weights."""
    config = run.config
    with np.errstate(over="ignore"):
        mean = run.errors.score.mean(axis=0)
    evidence = Evidence(
        **key._asdict(),
        tag=tag,
        command=key.command,
        settings=tomllib.loads(config.to_toml()),
        metrics=found,
        nrmse=tuple(float(f"{value:.4g}") if math.isfinite(value) else math.inf for value in mean),
    )
    line = json_line({"version": Evidence.version, **evidence.plain()})  # a file of one line, not of 300
    write_atomic(results / "runs" / f"{run.name}.json", line.strip().encode())
    if key.arm in KEPT and config.seed == FIRST_SEED and config.make_source().dims == 1 and (rollout := run.rollout):
        steps = np.array([step for step in PREDICTED if step <= len(rollout.truth)])
        arrays = {"steps": steps, "truth": rollout.truth[steps - 1], "prediction": rollout.prediction[steps - 1]}
        errors = run.errors.score[rollout.trajectory, steps - 1]
        write_arrays(results / "predictions" / f"{run.name}.npz", {**arrays, "nrmse": errors})
        (results / "weights").mkdir(parents=True, exist_ok=True)
        copyfile(run.path / "model.safetensors", results / "weights" / f"{run.name}.safetensors")


def read_evidence(results: Path) -> list[Evidence]:
    """Every run that is kept, by arm, task and seed."""
    paths = sorted((results / "runs").glob("*.json"))
    if not paths:
        raise HeroError(f"{results / 'runs'} has no runs; `python -m benchmarks results --add RUNS` adds them.")
    return sorted(map(Evidence.read, paths), key=lambda found: (found.arm, found.task, found.updates, found.seed))


Outcome = tuple[str, bool, str]
"""A run, whether the check held, and what was compared."""


def verify_predictions(results: Path) -> Iterator[Outcome]:
    """B: the errors of the stored predictions, in float64, against the errors of the evaluation."""
    for path in sorted((results / "predictions").glob("*.npz")):
        with np.load(path, allow_pickle=False) as stored:
            truth, prediction = (stored[name].astype(np.float64) for name in ("truth", "prediction"))
            steps, expected = stored["steps"], stored["nrmse"]
        axes = tuple(range(1, truth.ndim))
        size = np.sqrt((truth**2).sum(axes))
        found = np.sqrt(((prediction - truth) ** 2).sum(axes)) / size
        # Rounding in float32 is relative to the first states; where the state decays, as in KdV, it is the error.
        allowed = 2e-3 * expected + 4e-7 * size[0] / size
        furthest = float((np.abs(found - expected) / allowed).max())
        yield path.stem, furthest < 1, f"nRMSE at steps {', '.join(map(str, steps))} within {furthest:.2g} of the bound"


def verify_weights(results: Path, data_dir: Path) -> Iterator[Outcome]:
    """C: the stored weights, evaluated on test data that are made again, against the stored metrics."""
    for evidence in read_evidence(results):
        path = results / "weights" / f"{evidence.run}.safetensors"
        if not path.is_file():
            continue
        config = evidence.key.config
        model = config.build_operator()
        load_weights(path, model)
        test = load_data(config, "test", data_dir, "cpu")
        step = config.make_strategy().stepper(model.eval())
        steps = config.data.test_steps + 1 - config.train.history
        found = metrics.summarise(metrics.rollout_errors(step, test, steps, "cpu", config.train.history))["nrmse@100"]
        expected = evidence.metrics.test["nrmse@100"]
        yield evidence.run, abs(found / expected - 1) < 0.01, f"nRMSE@100 {found:.4g}, stored {expected:.4g}"


def verify_training(results: Path, run: str, runs_dir: Path, data_dir: Path) -> Iterator[Outcome]:
    """D: one run trained again; with the same versions on the same kind of machine every number is the same."""
    for evidence in read_evidence(results):
        if evidence.run == run:
            found = evaluate(train(evidence.key.config, runs_dir, data_dir), data_dir)
            same = (found.val, found.test) == (evidence.metrics.val, evidence.metrics.test)
            yield run, same, "the same metrics" if same else "other metrics: other versions or another machine?"
            return
    raise HeroError(f"there is no run {run} in {results}; `ls {results / 'runs'}` lists them.")
