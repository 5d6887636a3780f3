"""Evidence: what every run of docs/results.md was, and how anyone checks it.

`results/runs/` has a small file for each run: its settings, metrics and errors; `repeats/` has runs that were trained
again with other settings of the processor; `studies/`, `probes/` and `landscapes/` have what `hero study`, `hero probe`
and `hero landscape` wrote. Tables and figures are made from these files alone (`evidence_page.py`). There are four ways
to check a number of a run, each dearer than the last:

A  the page is what the files say
B  stored predictions give the stored errors             (results/predictions)
C  stored weights give the stored errors                 (results/weights; makes the test data)
D  the same command gives the same error, within the spread that repeating has (trains)
"""

from __future__ import annotations

import math
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from shutil import copyfile
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hero.console import progress_bar, say
from hero.errors import HeroError
from hero.evaluation.evaluate import evaluate
from hero.files import json_line, write_atomic
from hero.method.rollout_errors import rollout_errors
from hero.paper.landscape import Landscape
from hero.paper.theory import Probe
from hero.records import Record
from hero.runs.checkpoint import put_weights, read_weights
from hero.runs.config import RunConfig, make_config
from hero.runs.folder import Run, load_data
from hero.runs.records import Metrics, write_arrays
from hero.runs.stored import list_runs
from hero.study.plans import whole_trajectories
from hero.study.records import FILE as STUDY_FILE
from hero.study.records import StudyResult
from hero.training.loop import train

PAPER = ("one_step", "push_forward", "refiner", "recurrent", "hero", "fixed_weight")
COMPARED = ("push_forward", "hero", "fixed_weight")
"""The question of the paper: the usual loss, HERO, and a constant in the place of history."""
LOSSES = {"": {}, ", mse": {"train.loss": "mse"}}
RATES = {"": {}, ", lr=1e-4": {"train.lr": 1e-4}, ", lr=3e-5": {"train.lr": 3e-5}}
"""Both readings of the paper's loss, and its learning rate with two below it."""
OPTIMIZERS = {
    f"push_forward, {optimizer}, lr={lr:g}": {"train.optimizer": optimizer, "train.lr": lr}
    for optimizer, lr in (("adamw", 2e-3), ("adamw", 5e-3), ("soap", 1e-3), ("soap", 2e-3))
}
"""Optimizer and learning rate apart: `push_forward` is AdamW with 1e-3, `control` SOAP with 5e-3."""
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
ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: ("paper", {"strategy": name}) for name in PAPER},
    "recurrent": ("paper", {"strategy": "recurrent", **whole_trajectories(make_config())}),
    **{
        f"{name}{loss}{rate}": ("paper", {"strategy": name, **LOSSES[loss], **RATES[rate]})
        for name in COMPARED
        for loss in LOSSES
        for rate in RATES
    },
    **{f"hero, {name}": ("paper", {"strategy": "hero", **changes}) for name, changes in HERO_VARIANTS.items()},
    "control": ("paper", {**BALANCED, "train.loss": "relative"}),
    "balanced": ("paper", BALANCED),
    "recipe": ("recipe", {}),
    **{name: ("paper", {"strategy": "push_forward", **changes}) for name, changes in OPTIMIZERS.items()},
    "balanced, clip=20": ("paper", {**BALANCED, "loss.w_max": 20.0}),
    "balanced, clip=1000": ("paper", {**BALANCED, "loss.w_max": 1000.0}),
    "balanced, AdamW": ("paper", {**BALANCED, "train.optimizer": "adamw"}),
    "balanced, spectrum of the data": ("paper", {**BALANCED, "loss.spectrum": "data"}),
    "h1": ("paper", {**BALANCED, "train.loss": "h1"}),
    **{
        f"{name}, {kind}": ("paper", {**base, **changes})
        for kind, changes in TRANSOLVERS.items()
        for name, base in (
            *((name, {"strategy": name}) for name in COMPARED),
            ("control", {**BALANCED, "train.loss": "relative"}),
            ("balanced", BALANCED),
        )
    },
}
"""A name for each way of training in docs/results.md: its preset and what it changes. Kept runs may have arms that this
version no longer trains (foresight); their files say what they were."""
READINGS = {"kolmogorov_flow, drag 0.2": {"task.name": "kolmogorov_flow", "task.drag": 0.2}}
"""Tasks that the paper can be read to mean as well as our default."""
STEPS_KEPT = (1, 10, 50, 100, 200)
"""Steps of the rollouts whose errors are kept by trajectory, and whose predictions are stored of some runs."""
KEPT = ("recipe", "control")
FIRST_FRESH_SEED = 40
"""Runs whose predictions and weights are stored: these arms with this seed."""
ROUNDING = 4e-7
"""Relative rounding of a state in float32 along a rollout, as a share of the first state's norm."""


class Evidence(Record):
    """A finished run as `results/runs/` keeps it."""

    remedy: ClassVar[str] = "collect it again from its run folder."

    arm: str
    task: str
    seed: int
    updates: int
    commit: str
    """The code that trained it; empty where it was before version 0.2, whose commit was not written down."""
    command: str
    settings: dict[str, Any]
    metrics: Metrics
    nrmse: tuple[float, ...]
    """Mean over the test trajectories at each step; infinite where one of them has left the finite range."""
    trajectories: dict[int, tuple[float, ...]] | None = None
    """Error of each test trajectory at a few steps; not kept before version 0.2."""
    worst: tuple[float, ...] = ()
    """Largest error of each test trajectory at any step."""
    machine: str = ""
    """Settings of the processor, of a run that repeats another."""

    @property
    def run(self) -> str:
        """The id of the run."""
        return self.metrics.run

    @property
    def key(self) -> Key:
        """Arm, task, seed and updates."""
        return Key(self.arm, self.task, self.seed, self.updates)


class Key(NamedTuple):
    """The arm, task, seed and updates of a run, which give its command and configuration."""

    arm: str
    task: str
    seed: int
    updates: int

    @property
    def changes(self) -> dict[str, Any]:
        """What the run changes of its preset, but for the seed."""
        task = READINGS.get(self.task, {"task.name": self.task})
        return {**ARMS[self.arm][1], **task, "train.steps": self.updates}

    @property
    def command(self) -> str:
        """What to type to train it."""
        settings = self.changes
        words = ["hero train", settings.pop("task.name"), f"--preset {ARMS[self.arm][0]}"]
        words += [f"--strategy {settings.pop('strategy')}"] if "strategy" in settings else []
        usual = {"train.steps": make_config().train.steps}
        texts = {key: ",".join(value) if isinstance(value, tuple) else value for key, value in settings.items()}
        given = [f"{key}={value}" for key, value in texts.items() if usual.get(key) != value]
        return " ".join([*words, f"--seed {self.seed}", *(f"--set {setting}" for setting in given)])

    @property
    def config(self) -> RunConfig:
        """All settings."""
        return make_config(ARMS[self.arm][0], overrides={**self.changes, "seed": self.seed})


@cache
def run_id(key: Key) -> str:
    """The id that training gives; empty where an arm asks for what so few updates do not have."""
    try:
        return key.config.run_id()
    except HeroError:
        return ""


def key_of(config: RunConfig) -> Key | None:
    """The arm and task that a configuration belongs to, None if it is none of them."""
    name = config.task.name
    tasks = [name, *(reading for reading, settings in READINGS.items() if settings["task.name"] == name)]
    keys = (Key(arm, task, config.seed, config.train.steps) for arm in ARMS for task in tasks)
    return next((key for key in keys if run_id(key) == config.run_id()), None)


def full_hash(commit: str) -> str:
    """All digits of a commit of this repository; HeroError where it has no such commit."""
    command = ["git", "rev-parse", "--verify", "--quiet", f"{commit or 'none'}^{{commit}}"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        raise HeroError(f"{commit or 'no name'} is no commit of this repository; give --commit its hash.")
    return found.stdout.strip()


def collect(runs_dir: Path, results: Path, commit: str, machine: str = "") -> int:
    """Add the finished runs of `runs_dir` to `results`, as repeats if `machine` says on what; returns how many."""
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
            write_evidence(run, found, key, results, commit, machine)
            count += 1
    return count


def collect_studies(runs_dir: Path, results: Path) -> int:
    """Add studies, one of each name, probes and landscapes of `runs_dir` to `results`; returns how many there were."""
    studies = [StudyResult.read(path) for path in sorted(runs_dir.glob(f"study-*/{STUDY_FILE}"))]
    for study in studies:
        study.write(results / "studies" / f"{study.study}.json")
    probes = [Probe.read(path) for path in sorted(runs_dir.glob("*/probe.json"))]
    for probe in probes:
        probe.write(results / "probes" / f"{probe.run}.json")
    landscapes = [Landscape.read(path) for path in sorted(runs_dir.glob("*/landscape.json"))]
    for landscape in landscapes:
        landscape.write(results / "landscapes" / f"{landscape.run}.json")
    return len(studies) + len(probes) + len(landscapes)


def write_evidence(run: Run, found: Metrics, key: Key, results: Path, commit: str, machine: str) -> None:
    """One run: its file, and for a few its predictions and weights."""
    config, errors = run.config, run.errors.score
    with np.errstate(over="ignore"):
        mean = errors.mean(axis=0)
    evidence = Evidence(
        **key._asdict(),
        commit=commit,
        command=key.command,
        settings=tomllib.loads(config.to_toml()),
        metrics=found,
        nrmse=rounded(mean),
        trajectories={step: rounded(errors[:, step - 1]) for step in STEPS_KEPT if step <= errors.shape[1]},
        worst=rounded(errors.max(axis=1)),
        machine=machine,
    )
    folder, name = ("repeats", f"{run.name}-{machine.replace('=', '-')}") if machine else ("runs", run.name)
    line = json_line({"version": Evidence.version, **evidence.model_dump()})  # a file of one line, not of 300
    write_atomic(results / folder / f"{name}.json", line.strip().encode())
    kept = key.arm in KEPT and config.seed == FIRST_FRESH_SEED and not machine and config.source.dims == 1
    if kept and (rollout := run.rollout):
        steps = np.array([step for step in STEPS_KEPT if step <= len(rollout.truth)])
        arrays = {"steps": steps, "truth": rollout.truth[steps - 1], "prediction": rollout.prediction[steps - 1]}
        stored = {**arrays, "nrmse": errors[rollout.trajectory, steps - 1]}
        write_arrays(results / "predictions" / f"{run.name}.npz", stored)
        (results / "weights").mkdir(parents=True, exist_ok=True)
        copyfile(run.weights_file, results / "weights" / f"{run.name}.safetensors")


def rounded(values: np.ndarray) -> tuple[float, ...]:
    """Four digits of each value, infinite where it is not finite."""
    return tuple(float(f"{value:.4g}") if math.isfinite(value) else math.inf for value in values)


def read_evidence(results: Path, folder: str = "runs") -> list[Evidence]:
    """Every run that is kept, by arm, task and seed."""
    paths = sorted((results / folder).glob("*.json"))
    if not paths and folder == "runs":
        raise HeroError(f"{results / 'runs'} has no runs; `python -m benchmarks results --add RUNS` adds them.")
    return sorted(map(Evidence.read, paths), key=lambda found: (found.arm, found.task, found.updates, found.seed))


class Spread(NamedTuple):
    """By how much a run differs from itself, trained again with other settings of the processor."""

    task: str
    optimizer: str
    values: tuple[float, ...]
    """The measure of the run and of its repeats."""

    @property
    def factor(self) -> float:
        """Two trainings by the same command differ by no more than this factor, 19 times out of 20."""
        from scipy import stats

        logs = np.log(self.values)
        return math.exp(float(stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) * math.sqrt(2)))


@cache
def spreads(results: Path, measure: str = "gm100") -> list[Spread]:
    """The spread of every run that was repeated at least twice, by a measure of the test set."""
    repeats = read_evidence(results, "repeats")
    originals = {run.run: run for run in read_evidence(results)}
    found = []
    for name in sorted({run.run for run in repeats} & originals.keys()):
        runs = [originals[name], *(run for run in repeats if run.run == name)]
        if len(runs) > 2:
            found.append(Spread(runs[0].task, optimizer_of(runs[0]), tuple(run.metrics.test[measure] for run in runs)))
    return found


def optimizer_of(run: Evidence) -> str:
    """The optimizer that trained a run."""
    return str(run.settings["train"]["optimizer"])


def repeat_factor(measured: Sequence[Spread], optimizer: str, task: str) -> float | None:
    """The factor by which repeats differ: of this task, or the largest of the others where it was not repeated."""
    alike = [spread for spread in measured if spread.optimizer == optimizer]
    own = [spread for spread in alike if spread.task == task] or alike
    return max((spread.factor for spread in own), default=None)


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
        allowed = 2e-3 * expected + ROUNDING * size[0] / size
        furthest = float((np.abs(found - expected) / allowed).max())
        yield path.stem, furthest < 1, f"nRMSE at steps {', '.join(map(str, steps))} within {furthest:.2g} of the bound"


def verify_weights(results: Path, data_dir: Path) -> Iterator[Outcome]:
    """C: the stored weights, evaluated on test data that are made again, against the stored errors.

    Steps at which rounding, relative to the first state, is a tenth of the error or more are left out: other processors
    round otherwise.
    """
    for evidence in read_evidence(results):
        path = results / "weights" / f"{evidence.run}.safetensors"
        if not path.is_file():
            continue
        preset, changes = ARMS[evidence.arm][0], evidence.key.changes
        decided = {f"backbone.{name}": evidence.settings["backbone"].get(name) for name in ("kept", "predicts_change")}
        decided = {name: value for name, value in decided.items() if value is not None}  # by the training data
        config = make_config(preset, overrides={**changes, **decided, "seed": evidence.seed})
        model = config.build_operator()
        put_weights(read_weights(path)[0], model, path)
        test = load_data(config, "test", data_dir, "cpu")
        size = test.states.double().flatten(2).norm(dim=2).numpy()
        rounding = ROUNDING * (size[:, :1] / size[:, 1:]).mean(axis=0)
        step = config.make_strategy().stepper(model.eval())
        steps = config.data.test_steps + 1 - config.train.history
        found = rollout_errors(step, test, steps, "cpu", config.train.history)["nrmse"].mean(0).numpy()
        expected = np.array(evidence.nrmse)
        compared = (rounding < 0.1 * expected) & np.isfinite(expected)
        furthest = float(np.abs(found / expected - 1)[compared].max())
        yield evidence.run, furthest < 0.02, f"nRMSE at {compared.sum()} of {steps} steps within {100 * furthest:.2g} %"


def verify_training(results: Path, run: str, runs_dir: Path, data_dir: Path) -> Iterator[Outcome]:
    """D: one run trained again: the same bits on the same kind of machine, elsewhere within the spread of repeating."""
    found = next((one for one in read_evidence(results) if one.run == run), None)
    if found is None:
        raise HeroError(f"there is no run {run} in {results}; `ls {results / 'runs'}` lists them.")
    if found.arm not in ARMS:
        raise HeroError(f"this version does not train the arm {found.arm} of {run}; check out an earlier commit.")
    again = evaluate(train(found.key.config, runs_dir, data_dir), data_dir).test["gm100"]
    stored = found.metrics.test["gm100"]
    allowed = repeat_factor(spreads(results), optimizer_of(found), found.task) or 1.0
    words = f"GM100 {again:.4g}, stored {stored:.4g}: a factor of {again / stored:.3f}, repeating has {allowed:.2f}"
    yield run, again == stored or abs(math.log(again / stored)) <= math.log(allowed), words
