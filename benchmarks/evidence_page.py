"""Tables and figures of docs/results.md, made from `results/` alone.

Between `<!-- begin NAME -->` and `<!-- end NAME -->` a page holds what is written here; the rest is written by people.
`results/tables.md` is written whole. The statistics are the same everywhere: ratios are paired by seed, geometric mean
with the 95 % t-interval of their logarithm from three pairs on, with fewer the factor by which repeating alone changes
them; every cell of a row has the same seeds; a star marks ratios that differ from one after Holm's correction over all
ratios of the table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from benchmarks.before_after import before_after_figure
from benchmarks.evidence import (
    HERO_VARIANTS,
    LOSSES,
    PAPER,
    RATES,
    Evidence,
    optimizer_of,
    read_evidence,
    repeat_factor,
    spreads,
)
from benchmarks.predictability import Predictability
from hero.errors import HeroError
from hero.files import write_atomic
from hero.paper.landscape import Landscape, landscape_figure
from hero.paper.numbers import published_row
from hero.paper.theory import Probe
from hero.report.content import study_tables
from hero.report.figures.style import colours_of, new_figure, save
from hero.report.tables import Table, format_number, format_published, format_std
from hero.study.records import Pairs, StudyResult
from hero.study.statistics import compare_pairs, holm

ONE_D = ("burgers", "kuramoto_sivashinsky", "kdv", "dispersion", "kdv_difficulty")
TWO_D = ("decaying_turbulence", "anisotropic_diffusion", "kolmogorov_flow", "kolmogorov_flow, drag 0.2")
THREE_D = ("swift_hohenberg", "unbalanced_advection")
STUDIED = ("burgers", "kuramoto_sivashinsky")
"""Tasks of the studies with many arms."""
FULL, SHORT, SHORTEST, LONGER = 10_000, 2_000, 500, 12_000
"""Updates of the paper's protocol, in two dimensions, in three, and of a control with more time than the others."""
PAPER_SEEDS, OWN_SEEDS, FRESH_SEEDS = range(5), range(10, 15), range(40, 50)
"""Seeds of the paper's protocol, of arms that were tuned with seeds 0 to 2, and of the recipe of today."""
NOT_RUN = "not run"
GONE = 10.0
"""A rollout whose error exceeds this has blown up; by how much says nothing, so in a mean it counts as this."""
MEASURES = {"nrmse@1": "nRMSE@1", "gm100": "GM100", "nrmse@100": "nRMSE@100", "nrmse@200": "nRMSE@200"}
PUBLISHED_VARIANTS = {
    "as published": ("ablation", "Full HERO"),
    "self only": ("ablation", "Self-relative"),
    "lag only": ("ablation", "Lag-only HERO"),
    "without lag": ("ablation", "HERO w/o Lag"),
    "without perturbed": ("ablation", "HERO w/o Pert"),
    "without self": ("ablation", "HERO w/o Self"),
    **{f"start={value}": ("start_step", f"HERO (s0={value})") for value in (2000, 6000, 8000)},
    **{f"refresh={value}": ("refresh", f"HERO (R={value})") for value in (500, 1000, 4000)},
}
"""Where the paper has a variant: the study, and the name of the row."""
GAIN_ARMS = {
    "push_forward": "AdamW, relative loss (the paper's push_forward)",
    "balanced, AdamW": "AdamW, balanced loss",
    "h1": "SOAP, H1 loss",
    "balanced, spectrum of the data": "SOAP, weights by the spectrum of the data",
    "balanced": "SOAP, weights by the spectrum of the error (balanced)",
    "balanced, clip=20": "balanced, weights up to 20 instead of 100",
    "balanced, clip=1000": "balanced, up to 1000",
    "foresight": "balanced, times the lagged operator's adjoint (foresight)",
    "foresight, power=0.5": "foresight, exponent 0.5 instead of 1",
    "foresight, horizon=10": "foresight, horizon 10 instead of 50",
    "foresight, horizon=100": "foresight, horizon 100",
    "foresight, refresh=2000": "foresight, refresh every 2,000 updates instead of 500",
    "foresight, random phases": "foresight, adjoint at states with random phases",
    "foresight, solver's adjoint": "foresight, the solver's adjoint",
}
"""One change at a time, next to the control."""
OPTIMIZER_ARMS = {
    "AdamW 1e-3": "push_forward",
    "AdamW 2e-3": "push_forward, adamw, lr=0.002",
    "AdamW 5e-3": "push_forward, adamw, lr=0.005",
    "SOAP 1e-3": "push_forward, soap, lr=0.001",
    "SOAP 2e-3": "push_forward, soap, lr=0.002",
    "SOAP 5e-3": "control",
}
FOREST = {
    "HERO": ("hero", "push_forward"),
    "a constant for history": ("fixed_weight", "push_forward"),
    "HERO, mse": ("hero, mse", "push_forward, mse"),
    "a constant, mse": ("fixed_weight, mse", "push_forward, mse"),
    "SOAP": ("control", "push_forward"),
    "SOAP, balanced loss": ("balanced", "push_forward"),
    "recipe: SOAP, invariants": ("recipe", "push_forward"),
}
"""The arms of the figure, each over the push-forward training that it changes."""


@dataclass(frozen=True)
class Found:
    """The kept runs, by arm, task and updates, and the folder that they are kept in."""

    runs: Sequence[Evidence]
    results: Path = Path("results")

    @classmethod
    def read(cls, results: Path) -> Found:
        return cls(read_evidence(results), results)

    def band(self, ratio: Ratio, seeds: Sequence[int]) -> float | None:
        """The factor by which repeating alone changes a ratio of so few seeds that it has no interval."""
        if not seeds or not (measured := spreads(self.results, ratio.measure)):
            return None
        runs = [run for arm in (ratio.arm, ratio.other)
                for run in self.runs_of(arm, ratio.task, ratio.updates, seeds).values()]  # fmt: skip
        factors = [repeat_factor(measured, optimizer, ratio.task) for optimizer in {optimizer_of(run) for run in runs}]
        return max(filter(None, factors)) ** (1 / math.sqrt(len(seeds))) if any(factors) else None

    def runs_of(self, arm: str, task: str, updates: int, seeds: Sequence[int] | range) -> dict[int, Evidence]:
        """Seed -> run."""
        chosen = [run for run in self.runs if (run.arm, run.task, run.updates) == (arm, task, updates)]
        return {run.seed: run for run in chosen if run.seed in seeds}

    def cell(self, arm: str, task: str, updates: int, seeds: Sequence[int] | range, measure: str = "gm100") -> Cell:
        """Seed -> value on the test set; infinite where a trajectory left the finite range."""
        found = self.runs_of(arm, task, updates, seeds)
        return {seed: run.metrics.test[measure] for seed, run in sorted(found.items())}


Cell = Mapping[int, float]


class Ratio(NamedTuple):
    """An arm over another one on a task."""

    arm: str
    other: str
    task: str
    updates: int = FULL
    measure: str = "gm100"


def compare(ours: Cell, theirs: Cell) -> Pairs | None:
    """Two cells on the seeds that both have, and how often each is capped; the interval of two pairs would span orders
    of magnitude.
    """
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    first, second = ([min(cell[seed], GONE) for seed in seeds] for cell in (ours, theirs))
    pairs = compare_pairs(first, second)
    capped = {"diverged": first.count(GONE), "baseline_diverged": second.count(GONE)}
    return pairs.model_copy(update=capped if len(seeds) > 2 else {**capped, "interval": None})


class Row(NamedTuple):
    """A line of a table: its first cells, the ratios, and arms of which the mean stands before them.

    All ratios of a row are of one task, number of updates and measure.
    """

    names: Sequence[str]
    ratios: Sequence[Ratio]
    arms: Sequence[str] = ()
    with_blow_ups: bool = False

    def seeds(self, found: Found, among: Sequence[int] | range) -> list[int]:
        """The seeds that all arms of the row have; arms without a single run are left out of it."""
        first = self.ratios[0]
        arms = {*self.arms, *(arm for ratio in self.ratios for arm in (ratio.arm, ratio.other))}
        cells = [cell for arm in sorted(arms) if (cell := found.cell(arm, first.task, first.updates, among))]
        return sorted(set.intersection(*map(set, cells))) if cells else []

    def first_cells(self, found: Found, seeds: Sequence[int]) -> list[str]:
        """Names, means, and how many of the runs blew up."""
        place = self.ratios[0].task, self.ratios[0].updates
        values = [mean_text(found.cell(arm, *place, seeds, self.ratios[0].measure)) for arm in self.arms]
        gone = [f"{sum(map(blew_up, runs))} of {len(runs)}" if runs else "–" for arm in self.arms
                for runs in [found.runs_of(arm, *place, seeds).values()]]  # fmt: skip
        return [*self.names, *values, *([", ".join(gone)] if self.with_blow_ups else [])]


def ratio_table(
    found: Found, heading: Sequence[str], rows: Sequence[Row], among: Sequence[int] | range, names_seeds: bool = True
) -> str:
    """Rows of ratios, each on the seeds that all of its cells have; a star after Holm's correction over the table."""
    seeds = [row.seeds(found, among) for row in rows]
    cells = [
        [compare(*(found.cell(arm, r.task, r.updates, own, r.measure) for arm in (r.arm, r.other))) for r in row.ratios]
        for row, own in zip(rows, seeds, strict=True)
    ]
    tested = [pairs for row in cells for pairs in row if pairs and pairs.interval]
    corrected = dict(zip(map(id, tested), holm([pairs.p for pairs in tested]), strict=True))
    lines = [
        [
            *row.first_cells(found, own),
            *(
                ratio_text(pairs, corrected.get(id(pairs), 1.0) < 0.05, found.band(ratio, own))
                for ratio, pairs in zip(row.ratios, compared, strict=True)
            ),
            *([seeds_text(own)] if names_seeds else []),
        ]
        for row, own, compared in zip(rows, seeds, cells, strict=True)
    ]
    return table([*heading, *(["seeds"] if names_seeds else [])], lines)


def seeds_text(seeds: Sequence[int]) -> str:
    """The seeds of a row."""
    if not seeds:
        return "–"
    ends = sorted({seeds[0], seeds[-1]})
    whole = len(seeds) == seeds[-1] - seeds[0] + 1
    return " to ".join(map(str, ends)) if whole else ", ".join(map(str, seeds))


def mean_text(values: Cell) -> str:
    """The geometric mean over seeds, and in how many of them it is capped."""
    if not values:
        return NOT_RUN
    capped = sum(value > GONE for value in values.values())
    mean = float(np.exp(np.log(np.minimum(list(values.values()), GONE)).mean()))
    return format_number(mean) + (f" ({capped} of {len(values)} above {GONE:g}, counted as it)" if capped else "")


def spread_text(values: Cell) -> str:
    """Mean ± std over seeds, as in the paper."""
    found = np.array(list(values.values()))
    if not found.size:
        return NOT_RUN
    std = float(found.std(ddof=1)) if found.size > 1 and np.isfinite(found).all() else None
    return format_number(float(found.mean())) + format_std(std)


def ratio_text(pairs: Pairs | None, differs: bool = False, band: float | None = None) -> str:
    """Ratio, or its bound, and its 95 % interval; without one, the factor by which repeating alone changes it."""
    if pairs is None:
        return NOT_RUN
    interval = f" [{', '.join(map(format_number, pairs.interval))}]" if pairs.interval else ""
    repeats = f" ×÷{band:.2f}" if band and not pairs.interval else ""
    bound = ">" if pairs.diverged > pairs.baseline_diverged else "<" if pairs.diverged < pairs.baseline_diverged else ""
    return bound + format_number(pairs.ratio) + interval + repeats + ("*" if differs else "")


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    return Table.of_words("", heading, rows).to_markdown().rstrip()


def blew_up(run: Evidence) -> bool:
    """Whether the error of a test trajectory exceeds 10 at any step, or the mean error of the validation data does.

    Of runs before version 0.2 only the mean over the test trajectories is kept.
    """
    last = max(run.metrics.val[name] for name in run.metrics.val if name.startswith("nrmse@"))
    return max(run.worst or run.nrmse) > GONE or last > GONE or run.metrics.val["diverged"] > 0


def recipe_table(found: Found) -> str:
    """The recipe next to its control and to the paper's push-forward training, on seeds that nobody had seen."""
    arms = ("push_forward", "control", "recipe")
    places = [(task, task, FULL) for task in (*ONE_D, *TWO_D)]
    places += [(f"{task}, {SHORTEST} updates", task, SHORTEST) for task in THREE_D]
    rows = [
        Row([name], [Ratio("recipe", other, task, updates) for other in arms[1::-1]], arms, True)
        for name, task, updates in places
    ]
    return ratio_table(
        found, ["task", *arms, "blew up", "recipe / control", "recipe / push_forward"], rows, FRESH_SEEDS
    )


def headline_table(found: Found) -> str:
    """The first table of the README: HERO as published, and the recipe next to its control."""
    rows = [Row([task], [Ratio("recipe", "control", task)], ("hero", "recipe")) for task in ONE_D]
    return ratio_table(found, ["task", "HERO", "our recipe", "recipe / control"], rows, FRESH_SEEDS, names_seeds=False)


def hero_table(found: Found) -> str:
    """HERO and a constant in its place over push-forward training: every task, both losses, three learning rates."""
    rows = []
    for task in ONE_D:
        published = format_number(published_value(task, "push_forward"))
        for loss in LOSSES:
            for rate in RATES:
                usual = f"push_forward{loss}{rate}"
                ratios = [Ratio(f"{arm}{loss}{rate}", usual, task) for arm in ("hero", "fixed_weight")]
                names = [task, "mse" if loss else "D", rate.removeprefix(", lr=") or "1e-3", published]
                row = Row(names, ratios, (usual,))
                if task in STUDIED or row.seeds(found, PAPER_SEEDS):
                    rows.append(row)
    heading = ["task", "loss", "lr", "the paper's", "push_forward", "HERO / push_forward", "constant / push_forward"]
    return ratio_table(found, heading, rows, PAPER_SEEDS)


def published_value(task: str, arm: str) -> float | None:
    """The paper's test GM100 of a strategy."""
    row = published_row("complete", task, "fno", arm)
    return row["test_gm100"].mean if row else None


def parts_table(found: Found) -> str:
    """What HERO and each part of the recipe bring, on fresh seeds."""
    parts = {
        "HERO / push_forward": ("hero", "push_forward"),
        "SOAP / AdamW": ("control", "push_forward"),
        "invariants": ("recipe", "control"),
    }
    rows = [Row([task], [Ratio(*pair, task) for pair in parts.values()]) for task in ONE_D]
    return ratio_table(found, ["task", *parts], rows, FRESH_SEEDS)


def optimizers_table(found: Found) -> str:
    """Push-forward training with each optimizer at each learning rate, over the paper's."""
    others = {name: arm for name, arm in OPTIMIZER_ARMS.items() if arm != "push_forward"}
    rows = [
        Row([task], [Ratio(arm, "push_forward", task) for arm in others.values()], ("push_forward",)) for task in ONE_D
    ]
    return ratio_table(found, ["task", "AdamW 1e-3", *(f"{name}, ratio" for name in others)], rows, FRESH_SEEDS)


def measures_table(found: Found) -> str:
    """The recipe over its control by every measure: they can disagree."""
    rows = [Row([task], [Ratio("recipe", "control", task, FULL, name) for name in MEASURES]) for task in ONE_D]
    return ratio_table(found, ["task", *MEASURES.values()], rows, FRESH_SEEDS)


def places_table(found: Found, arms: Mapping[str, tuple[str, str]]) -> str:
    """Ratios of nRMSE@100 in two and three dimensions; of the full length where there are runs of it."""
    usual = next(iter(arms.values()))[1]
    full = [
        (task, FULL)
        for task in TWO_D
        if all(found.cell(arm, task, FULL, FRESH_SEEDS) for arm in next(iter(arms.values())))
    ]
    places = [*full, *((task, SHORT) for task in TWO_D), *((task, SHORTEST) for task in THREE_D)]
    rows = [
        Row([task, f"{updates:,}"], [Ratio(*pair, task, updates, "nrmse@100") for pair in arms.values()], (usual,))
        for task, updates in places
    ]
    return ratio_table(found, ["task", "updates", usual, *arms], rows, range(50))


def paper_table(found: Found, tasks: Sequence[str], updates: int) -> str:
    """The paper's strategies at its protocol, mean ± std, next to its own numbers."""
    shown = ("gm100", "nrmse@1", "nrmse@100", "nrmse@200", "stable_step")
    heading = ["task", "strategy", "GM100", "nRMSE@1", "nRMSE@100", "nRMSE@200", "stable step", "paper's nRMSE@100"]
    rows = []
    for task in tasks:
        for arm in PAPER:
            cells = [spread_text(found.cell(arm, task, updates, PAPER_SEEDS, measure)) for measure in shown]
            published = (published_row("complete", task, "fno", arm) or {}).get("nrmse@100")
            said = format_published(published.mean, published.std) if published else "–"
            rows.append([task, f"`{arm}`", *(cells if cells[0] != NOT_RUN else [NOT_RUN, *[""] * 4]), said])
    return table(heading, rows)


def variants_table(found: Found) -> str:
    """HERO with other candidates, start steps and refresh intervals, each against push_forward on the same seeds."""
    rows = []
    for name, arm in {"as published": "hero", **{name: f"hero, {name}" for name in HERO_VARIANTS}}.items():
        study, label = PUBLISHED_VARIANTS[name]
        ours, usual = (published_row(study, "decaying_turbulence", "fno", row) for row in (label, "FNO-PF"))
        published = format_number(ours["nrmse@100"].mean / usual["nrmse@100"].mean) if ours and usual else "–"
        for task in STUDIED:
            rows.append(Row([name, published, task], [Ratio(arm, "push_forward", task, FULL, "nrmse@100")]))
    return ratio_table(found, ["HERO", "the paper's, decaying turbulence", "task", "ratio"], rows, range(2))


def gain_table(found: Found) -> str:
    """Arms with one change each as a ratio to the control."""
    rows = [
        Row([words, task], [Ratio(arm, "control", task, FULL, "nrmse@100")])
        for arm, words in GAIN_ARMS.items()
        for task in STUDIED
    ]
    return ratio_table(found, ["arm", "task", "ratio"], rows, OWN_SEEDS[:3])


def transolver_table(found: Found) -> str:
    """HERO against push_forward, and the balanced loss against its control, for the other backbone."""
    rows = []
    for kind, updates in {"Transolver": 300, "Transolver, batch 4": SHORT}.items():
        for arm, other in (("hero", "push_forward"), ("balanced", "control")):
            ratio = Ratio(f"{arm}, {kind}", f"{other}, {kind}", "burgers", updates, "nrmse@100")
            rows.append(Row([kind, f"{updates:,}", f"{arm} / {other}"], [ratio], (ratio.other, ratio.arm)))
    return ratio_table(found, ["backbone", "updates", "arms", "second", "first", "ratio"], rows, range(100))


def equal_time_table(found: Found) -> str:
    """The balanced loss against a control with more updates, which cost more than its weights do."""
    rows = []
    for task in STUDIED:
        longer, balanced = (found.cell(*arm, OWN_SEEDS, "nrmse@100") for arm in
                            (("control", task, LONGER), ("balanced", task, FULL)))  # fmt: skip
        rows.append([task, mean_text(longer), mean_text(balanced), ratio_text(compare(balanced, longer))])
    return table(["task", f"control, {LONGER:,} updates", f"balanced, {FULL:,}", "balanced / longer"], rows)


def repeats_table(found: Found) -> str:
    """The same command on other settings of the processor."""
    rows = [
        [spread.task, spread.optimizer, ", ".join(map(format_number, spread.values)), f"{spread.factor:.2f}"]
        for spread in spreads(found.results)
    ]
    return table(["task", "optimizer", "GM100 of the run and its repeats", "two differ by a factor up to"], rows)


def predictability_table(found: Found) -> str:
    """Growth of small differences between true states, and how long a rollout can follow one of them."""
    heading = ["task", "growth per step", "a difference of 1 % becomes, in 100 steps", "two unrelated states differ by"]
    rows = []
    for path in sorted((found.results / "predictability").glob("*.json")):
        task = Predictability.read(path)
        name = ", ".join([task.task, *(f"{key} {value:g}" for key, value in task.settings.items())])
        grown = min(0.01 * task.growth**100, task.unrelated)
        rows.append([name, f"{task.growth:.4f}", f"{100 * grown:.3g} %", format_number(task.unrelated)])
    return table(heading, rows)


def study_text(found: Found, name: str) -> str:
    """The tables of a study as `hero study` writes them, without its statistics."""
    path = found.results / "studies" / f"{name}.json"
    if not path.is_file():
        return NOT_RUN
    result = StudyResult.read(path)
    return "\n\n".join(f"{table.title}:\n\n{table.to_markdown().rstrip()}" for table in study_tables(result))


def probes_table(found: Found) -> str:
    """Whether HERO's weights go to the windows that help, and how much that changes the descent."""
    heading = ["run", "updates", "α, mean ± std over windows", "correlation of α and usefulness", "changes descent by"]
    rows = []
    for path in sorted((found.results / "probes").glob("*.json")):
        for point in Probe.read(path).checkpoints:
            low, high = point.correlation_interval
            alpha = f"{point.alpha_mean:.3f} ±{point.alpha_std:.2g}"
            correlation = f"{point.correlation:+.2f} [{low:+.2f}, {high:+.2f}]"
            rows.append([path.stem, f"{point.step:,}", alpha, correlation, f"{100 * point.effect:+.2g} %"])
    return table(heading, rows)


def curves_figure(found: Found) -> Figure:
    """The paper's first figure: error along the rollout, geometric mean over seeds as a line, all seeds as a band."""
    places = [("burgers", FULL), ("kuramoto_sivashinsky", FULL), ("decaying_turbulence", SHORT)]
    colours = colours_of(PAPER)
    figure = new_figure(3.4 * len(places), 3.2)
    panels = figure.subplots(1, len(places), squeeze=False)[0]
    for axes, (task, updates) in zip(panels, places, strict=True):
        for arm in PAPER:
            runs = [run.nrmse for run in found.runs_of(arm, task, updates, PAPER_SEEDS).values()]
            if runs:
                errors = np.minimum(np.array(runs), 1e2)
                steps = np.arange(1, errors.shape[1] + 1)
                axes.plot(steps, np.exp(np.log(errors).mean(0)), label=arm, color=colours[arm])
                axes.fill_between(steps, errors.min(0), errors.max(0), color=colours[arm], alpha=0.12, linewidth=0)
        axes.set_yscale("log")
        axes.set_title(f"{task}, {updates:,} updates", fontsize=10)
        axes.set_xlabel("rollout step")
    panels[0].set_ylabel("nRMSE, mean over test trajectories")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(PAPER), fontsize=9)
    return figure


def forest_figure(found: Found) -> Figure:
    """Every arm over the push-forward training that it changes: ratio, interval, seeds, what repeats differ by."""
    seeds = [*PAPER_SEEDS, *FRESH_SEEDS]
    tasks = [task for task in (*ONE_D, *TWO_D, *THREE_D) if found.cell("push_forward", task, FULL, seeds)]
    figure = new_figure(9.5, 0.25 * len(FOREST) * len(tasks) + 1.6)
    panels = figure.subplots(len(tasks), 1, sharex=True)
    for axes, task in zip(panels, tasks, strict=True):
        factor = repeat_factor(spreads(found.results), "adamw", task)
        if factor:
            axes.axvspan(1 / factor, factor, color="0.9", linewidth=0)
        axes.axvline(1, color="0.5", linewidth=0.8)
        for y, (arm, other) in enumerate(FOREST.values()):
            ours, theirs = (found.cell(name, task, FULL, seeds) for name in (arm, other))
            pairs = compare(ours, theirs)
            if pairs is None or pairs.ratio is None:
                axes.annotate(NOT_RUN, (1, y), xytext=(6, -3), textcoords="offset points", fontsize=6, color="0.5")
                continue
            points = [min(ours[seed], GONE) / min(theirs[seed], GONE) for seed in ours.keys() & theirs.keys()]
            if pairs.interval:
                axes.plot(pairs.interval, [y, y], "-", color="0.45", linewidth=4, alpha=0.4)
            axes.plot(points, [y] * len(points), "o", color="0.3", markersize=2.5)
            axes.plot([pairs.ratio], [y], "|", color="black", markersize=9, markeredgewidth=2)
        claims = [published_value(task, arm) for arm in ("hero", "push_forward")]
        if claims[0] and claims[1]:
            axes.plot([claims[0] / claims[1]], [0], "x", color="#d55e00", markersize=6, markeredgewidth=2)
        axes.set_yticks(range(len(FOREST)), list(FOREST), fontsize=7)
        axes.set_ylim(len(FOREST) - 0.4, -0.6)
        axes.set_title(task, fontsize=9, loc="left")
        axes.set_xscale("log")
    panels[-1].set_xlabel("ratio of test GM100 to push-forward training with AdamW and the same loss")
    return figure


def text_of(name: str) -> Callable[[Found], str]:
    """The writer of a study's tables."""
    return lambda found: study_text(found, name)


PAGE_TABLES: dict[str, Callable[[Found], str]] = {
    "headline": headline_table,
    "recipe": recipe_table,
    "hero": hero_table,
    "parts": parts_table,
}
"""Tables between marks."""
HERO_RATIOS = {"HERO / push_forward": ("hero", "push_forward"), "constant": ("fixed_weight", "push_forward")}
OWN_RATIOS = {"balanced / control": ("balanced", "control"), "foresight / control": ("foresight", "control")}
SECTIONS: dict[str, Callable[[Found], str]] = {
    "Recipe over control by every measure": measures_table,
    "Learning rates and optimizers apart": optimizers_table,
    "The spread of repeating": repeats_table,
    "One change at a time, nRMSE@100 over the control": gain_table,
    "At equal time": equal_time_table,
    "All strategies": lambda found: paper_table(found, ONE_D, FULL),
    "All strategies in two dimensions": lambda found: paper_table(found, TWO_D[:3], SHORT),
    "Parts of HERO, nRMSE@100 over push_forward": variants_table,
    "HERO in two and three dimensions": lambda found: places_table(found, HERO_RATIOS),
    "The balanced loss in two and three dimensions": lambda found: places_table(found, OWN_RATIOS),
    "Transolver": transolver_table,
    "What the probe measures": probes_table,
    "The ablation of the paper on decaying turbulence": text_of("ablation"),
    "Shifts": text_of("ood"),
    "Costs of training and inference": text_of("cost"),
    "Checkpoints along training": text_of("landscape"),
    "Growth of differences": predictability_table,
}
"""The sections of results/tables.md."""
PAGES = ("README.md", "docs/results.md")
TABLES_PAGE = "results/tables.md"


def filled(text: str, found: Found) -> str:
    """The page with its tables as the kept runs give them."""

    def made(match: re.Match[str]) -> str:
        if match[1] not in PAGE_TABLES:
            raise HeroError(f"there is no table {match[1]!r}; choose one of: {', '.join(PAGE_TABLES)}.")
        return f"<!-- begin {match[1]} -->\n{PAGE_TABLES[match[1]](found)}\n<!-- end {match[1]} -->"

    return re.sub(r"<!-- begin ([\w ]+) -->\n.*?<!-- end \1 -->", made, text, flags=re.DOTALL)


def pages(found: Found, root: Path) -> dict[str, str]:
    """Every page as the kept runs give it."""
    first = "# Tables\n\nThe complete tables behind [results](../docs/results.md), written by `make results`.\n"
    sections = [f"\n## {heading}\n\n{write(found)}\n" for heading, write in SECTIONS.items()]
    marked = {name: filled((root / name).read_text(encoding="utf-8"), found) for name in PAGES}
    return {**marked, TABLES_PAGE: "".join([first, *sections])}


def build(results: Path, root: Path) -> list[Path]:
    """Write the tables into the pages, and the figures; returns what was written."""
    found = Found.read(results)
    written = [write_atomic(root / name, text.encode()) for name, text in pages(found, root).items()]
    figures = {"results_forest": forest_figure(found), "results_strategies": curves_figure(found)}
    for path in sorted((results / "landscapes").glob("*.json")):
        shown = Landscape.read(path)
        figures[f"results_landscape_{shown.run.partition('-')[0]}"] = landscape_figure(shown, shown.run)
    if (results / "before_after.npz").is_file():
        figures["before_after"] = before_after_figure(results / "before_after.npz")
    return written + [save(figure, root / "docs/figures" / f"{name}.png") for name, figure in figures.items()]


def outdated(results: Path, root: Path) -> list[str]:
    """A: the pages that are not what the kept runs say."""
    made = pages(Found.read(results), root)
    return [name for name, text in made.items() if (root / name).read_text(encoding="utf-8") != text]
