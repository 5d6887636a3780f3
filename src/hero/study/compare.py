"""Strategies against each other: the same seeds, equal updates or equal compute, paired differences with intervals.

Initial weights and batches depend on the seed alone, so runs of one seed differ in nothing but their strategy. A
finished run is found by its id and not repeated; the comparison itself is computed from the run folders every time.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hero.console import console
from hero.errors import HeroError, unknown_name
from hero.files import write_json
from hero.method.metrics import diverged
from hero.report.comparison import write_comparison
from hero.report.tables import COMPARED, as_float
from hero.runs.config import RunConfig, make_config
from hero.runs.folder import choose_device
from hero.runs.old import final_metrics, read_errors, read_log
from hero.strategies import STRATEGIES
from hero.study.cost.measure import Rehearsal
from hero.study.paired import mean_and_deviation, paired_difference
from hero.study.published import paper_value
from hero.study.sweep import Outcome, sweep
from hero.study.worker import Workers

BUDGETS = ("steps", "compute")
BASELINE = "push_forward"
PAIRED_STEP = 100
"""The rollout step whose errors are paired: nRMSE@100."""
TURNS, UPDATES = 5, 4
"""Turns that two strategies take while their cost is measured, and updates of each phase in a turn."""

Runs = dict[tuple[str, int], dict[str, Any]]
Errors = dict[tuple[str, int], np.ndarray]


def compare(
    settings: Mapping[str, Any],
    strategies: Sequence[str],
    seeds: Sequence[int],
    runs_dir: Path,
    data_dir: Path,
    budget: str = "steps",
    baseline: str | None = None,
    out: Path | None = None,
    workers: Workers | None = None,
) -> dict[str, Any]:
    """Train and evaluate every strategy with every seed; returns what `comparison.json` in the folder `out` holds.

    `settings` are dotted ones such as {"task.name": "kdv"}, not a configuration: what is derived from the strategy or
    the number of steps must be derived for each run anew. `out` is `runs_dir/<comparison>` unless given. The runs are
    computed in this process unless `workers` says otherwise.
    """
    baseline = checked_baseline(strategies, seeds, budget, baseline)
    planned = {name: make_config(overrides={**settings, "strategy": name, "seed": 0}) for name in strategies}
    comparison = comparison_id(planned, seeds, budget, baseline)
    out = out or runs_dir / comparison
    steps = {name: config.train.steps for name, config in planned.items()}
    costs = None
    if budget == "compute":
        costs = relative_costs(planned, baseline, data_dir, out / "costs.json")
        steps = {name: max(1, round(steps[name] / cost)) for name, cost in costs.items()}
    configs = {
        (name, seed): make_config(overrides={**settings, "strategy": name, "seed": seed, "train.steps": steps[name]})
        for seed in seeds
        for name in strategies
    }
    runs, errors = run_all(configs, runs_dir, data_dir, workers or Workers(count=0))
    result: dict[str, Any] = {
        "comparison": comparison,
        "task": planned[baseline].task.name,
        "backbone": planned[baseline].backbone.name,
        "budget": budget,
        "baseline": baseline,
        "seeds": list(seeds),
        "rows": [row(name, planned[name], steps[name], baseline, seeds, runs, errors) for name in strategies],
    }
    for line in result["rows"]:
        line["cost"] = costs[line["strategy"]] if costs else logged_cost(line["strategy"], baseline, seeds, runs)
    stacked = {name: of_strategy(name, seeds, errors) for name in strategies}
    write_comparison(out, result, {name: np.stack(found) for name, found in stacked.items() if found})
    return result


def checked_baseline(strategies: Sequence[str], seeds: Sequence[int], budget: str, baseline: str | None) -> str:
    """The strategy that the others are compared with; HeroError for what cannot be compared."""
    if not strategies:
        raise HeroError(f"there is no strategy to compare; name some of: {', '.join(STRATEGIES)}.")
    for name in strategies:
        if name not in STRATEGIES:
            raise unknown_name("strategy", name, STRATEGIES)
        if strategies.count(name) > 1:
            raise HeroError(f"strategy {name} is named twice; name each one once.")
    if not seeds or len(set(seeds)) < len(seeds):
        raise HeroError("a comparison needs at least one seed, and each one once; five are the paper's number.")
    if budget not in BUDGETS:
        raise unknown_name("budget", budget, BUDGETS)
    baseline = baseline or (BASELINE if BASELINE in strategies else strategies[0])
    if baseline not in strategies:
        raise HeroError(
            f"the baseline {baseline!r} is not among the strategies {', '.join(strategies)}; name one of them."
        )
    return baseline


def comparison_id(planned: Mapping[str, RunConfig], seeds: Sequence[int], budget: str, baseline: str) -> str:
    """A folder name that is the same for the same comparison and for no other."""
    what = [[config.run_id() for config in planned.values()], list(seeds), budget, baseline]
    return f"compare-{hashlib.sha256(json.dumps(what).encode()).hexdigest()[:8]}"


def relative_costs(planned: Mapping[str, RunConfig], baseline: str, data_dir: Path, path: Path) -> dict[str, float]:
    """Time of an update of each strategy over that of the baseline, averaged over the phases of a run.

    What was measured is kept in `path` under the ids of the runs: a second measurement would differ a little, and give
    runs of other lengths. Each strategy takes turns with the baseline, so that a slow moment of the machine meets both.
    """
    reference = planned[baseline]
    known: dict[str, float] = {}
    if path.is_file():
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            known = dict(stored["costs"]) if stored["baseline"] == reference.run_id() else {}
            if not all(0 < cost < float("inf") for cost in known.values()):
                raise ValueError
        except (ValueError, LookupError, TypeError):
            raise HeroError(f"{path} is damaged; delete it, so that the costs are measured again.") from None
    known[reference.run_id()] = 1.0
    rehearsal: Rehearsal | None = None
    for name, config in planned.items():
        if config.run_id() in known:
            continue
        console.print(f"measuring the cost of {name} relative to {baseline}", style="dim", highlight=False)
        device = choose_device(config.train.device)
        with torch.random.fork_rng(devices=[]):  # dropout may draw
            rehearsal = rehearsal or Rehearsal(reference, data_dir, device)
            other = Rehearsal(config, data_dir, device)
            ratios = [seconds_per_update(other) / seconds_per_update(rehearsal) for _ in range(TURNS)]
        known[config.run_id()] = statistics.median(ratios)
        write_json(path, {"baseline": reference.run_id(), "costs": known})
    return {name: known[config.run_id()] for name, config in planned.items()}


def seconds_per_update(rehearsal: Rehearsal) -> float:
    """The mean over a whole run, from a few updates of each of its phases."""
    phases = rehearsal.phases(UPDATES)
    return sum(phase["seconds"] for phase in phases) / sum(phase["times"] for phase in phases)


def run_all(
    configs: Mapping[tuple[str, int], RunConfig], runs_dir: Path, data_dir: Path, workers: Workers
) -> tuple[Runs, Errors]:
    """The metrics of every run and its nRMSE (trajectory, step); of a run that failed, the reason instead."""
    runs: Runs = {}
    errors: Errors = {}
    for key, outcome in zip(configs, sweep(list(configs.values()), runs_dir, data_dir, workers), strict=True):
        try:
            runs[key] = metrics_of(outcome)
            errors[key] = read_errors(outcome.run)["nrmse"]
        except HeroError as error:
            runs[key] = {"run": outcome.run.name, "failed": str(error)}
    if not errors:
        first = next(iter(configs))
        raise HeroError(f"no run could be finished; {first[0]}, seed {first[1]}: {runs[first]['failed']}")
    return runs, errors


def metrics_of(outcome: Outcome) -> dict[str, Any]:
    """The metrics of a finished run with its time per update; HeroError if it failed."""
    metrics = None if outcome.failed else final_metrics(outcome.run)
    if metrics is None:
        raise HeroError(outcome.failed or f"run {outcome.run.name} has no metrics; repeat the command.")
    return {**metrics, "seconds_per_update": logged_seconds(read_log(outcome.run))}


def of_strategy(name: str, seeds: Sequence[int], errors: Errors) -> list[np.ndarray]:
    """The errors of the finished runs of one strategy, in the order of the seeds."""
    return [errors[name, seed] for seed in seeds if (name, seed) in errors]


def row(
    name: str, config: RunConfig, steps: int, baseline: str, seeds: Sequence[int], runs: Runs, errors: Errors
) -> dict[str, Any]:
    """What the comparison says about one strategy."""
    finished = [runs[name, seed] for seed in seeds if (name, seed) in errors]
    paired = [seed for seed in seeds if (name, seed) in errors and (baseline, seed) in errors]
    difference = None
    if name != baseline and paired:
        ours, theirs = (
            np.stack([errors[which, seed][:, PAIRED_STEP - 1] for seed in paired]) for which in (name, baseline)
        )
        difference = {"seeds": paired, **paired_difference(ours, theirs)}
    kept = ("run", "failed", "seconds_per_update", "training", "best_step", "parameters")
    return {
        "strategy": name,
        "steps": steps,
        "metrics": {
            key: mean_and_deviation([as_float(run[split][metric]) for run in finished])
            for split, metric, _, key in COMPARED
        },
        "paper": paper_value(config.task.name, config.backbone.name, name),
        "difference": difference,
        "diverged": sum(map(diverged, of_strategy(name, seeds, errors))),
        "rollouts": sum(map(len, of_strategy(name, seeds, errors))),
        "runs": [
            {"seed": seed, **{key: runs[name, seed][key] for key in kept if key in runs[name, seed]}} for seed in seeds
        ],
    }


def logged_cost(name: str, baseline: str, seeds: Sequence[int], runs: Runs) -> float | None:
    """Time per update over the baseline's as the runs logged it, the median over the seeds that both finished."""
    key = "seconds_per_update"
    pairs = [(runs[name, seed], runs[baseline, seed]) for seed in seeds]
    ratios = [ours[key] / theirs[key] for ours, theirs in pairs if key in ours and key in theirs]
    return statistics.median(ratios) if ratios else None


def logged_seconds(log: Sequence[Mapping[str, Any]]) -> float:
    """Mean seconds of an update, from the stretches of a log without a validation: in short runs those dominate.

    A stretch reaches from one record of training to the next; the validation after update n falls into the one that
    begins at n or holds it. Where every stretch has one, all count.
    """
    validated = [record["step"] for record in log if "val_gm100" in record]
    trained = [{"step": 0, "seconds": 0.0}, *(record for record in log if "seconds" in record)]
    stretches = list(itertools.pairwise(trained))
    free = [(a, b) for a, b in stretches if not any(a["step"] <= step < b["step"] for step in validated)]
    chosen = free or stretches
    return sum(b["seconds"] - a["seconds"] for a, b in chosen) / sum(b["step"] - a["step"] for a, b in chosen)
