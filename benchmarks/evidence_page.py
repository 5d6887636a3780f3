"""Tables and figures of docs/results.md, made from `results/` alone.

Between `<!-- begin NAME -->` and `<!-- end NAME -->` a page holds what is written here; the rest is written by people.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.before_after import before_after_figure
from benchmarks.evidence import HERO_VARIANTS, PAPER, Evidence, landscape_folder, read_evidence, study_path
from benchmarks.predictability import Predictability
from hero.errors import HeroError
from hero.evaluation.evaluate import Landscape
from hero.evaluation.theory import Probe
from hero.files import write_atomic
from hero.report.content import study_tables
from hero.report.figures.analysis import landscape_figure
from hero.report.figures.style import colours_of, new_figure, save
from hero.report.tables import format_number, format_published, format_std
from hero.study.published import published_row
from hero.study.records import Pairs, StudyResult
from hero.study.statistics import compare_pairs

ONE_D = ("burgers", "kuramoto_sivashinsky", "kdv", "dispersion", "kdv_difficulty")
TWO_D = ("decaying_turbulence", "anisotropic_diffusion", "kolmogorov_flow", "kolmogorov_flow, drag 0.2")
THREE_D = ("swift_hohenberg", "unbalanced_advection")
STUDIED = ("burgers", "kuramoto_sivashinsky")
"""Tasks of the studies with many arms."""
PAPER_SEEDS, OWN_SEEDS, FRESH_SEEDS = range(5), range(10, 15), range(40, 50)
"""Seeds of the paper's protocol, of our own arms, which were tuned with seeds 0 to 2, and of the recipe of today."""
MEASURE = "nrmse@100"
NOT_RUN = "not run"
GONE = 10.0
"""Larger errors count as this one: by how much a rollout that blew up is wrong says nothing."""
LABELS = {"control": "control", "recipe": "balanced", "foresight": "foresight"}
"""Names of our arms on the page; the paper's are their strategies."""
SHARES = {("recipe", "control"): "balanced / control", ("foresight", "recipe"): "history's share"}
"""The ratios that matter: of the balanced loss, which was the recipe then, and of what history adds to it."""
TRANSOLVER_PAIRS = (("hero", "push_forward"), ("recipe", "control"))
PAIRS = (("hero", "push_forward"), ("fixed_weight", "push_forward"), ("hero", "fixed_weight"))
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
    "AdamW": "AdamW, balanced loss",
    "control": "SOAP, relative loss (the control)",
    "h1": "SOAP, H1 loss",
    "spectrum of the data": "SOAP, weights by the spectrum of the data",
    "recipe": "SOAP, weights by the spectrum of the error (balanced)",
    "clip=20": "balanced, weights up to 20 instead of 100",
    "clip=1000": "balanced, up to 1000",
    "foresight": "balanced, times the lagged operator's adjoint (foresight)",
    "foresight, power=0.5": "foresight, exponent 0.5 instead of 1",
    "foresight, horizon=10": "foresight, horizon 10 instead of 50",
    "foresight, horizon=100": "foresight, horizon 100",
    "foresight, refresh=2000": "foresight, refresh every 2,000 updates instead of 500",
    "foresight, random phases": "foresight, adjoint at states with random phases",
    "foresight, solver's adjoint": "foresight, the solver's adjoint",
}
"""Where the gain comes from: one change at a time."""
RATIOS_SHOWN = (1 / 30, 30)
"""Where the axis of ratios ends: one task whose runs differ by a factor of ten thousand must not hide the others."""
MEASURES = {"nrmse@1": "nRMSE@1", "gm100": "GM100", "nrmse@100": "nRMSE@100", "nrmse@200": "nRMSE@200"}
SHOWN_COLUMNS = ("gm100", "nrmse@1", "nrmse@100", "nrmse@200", "stable_step")


@dataclass(frozen=True)
class Found:
    """The kept runs, by arm, task and updates, and the folder that they are kept in."""

    runs: Sequence[Evidence]
    results: Path = Path("results")

    @classmethod
    def read(cls, results: Path) -> Found:
        return cls(read_evidence(results), results)

    def of_seeds(self, seeds: Collection[int]) -> Found:
        """The runs with these seeds."""
        return Found([run for run in self.runs if run.seed in seeds], self.results)

    def cell(self, arm: str, task: str, updates: int, measure: str = MEASURE, split: str = "test") -> dict[int, float]:
        """Seed -> value; infinite where a trajectory left the finite range."""
        return {
            run.seed: getattr(run.metrics, split)[measure]
            for run in self.runs
            if (run.arm, run.task, run.updates) == (arm, task, updates)
        }

    def pairs(self, arm: str, other: str, task: str, updates: int) -> Pairs | None:
        """The arm against the other one on the seeds that both have."""
        return compare(self.cell(arm, task, updates), self.cell(other, task, updates))

    def pooled(self, arm: str, other: str, tasks: Sequence[str], updates: int) -> Pairs | None:
        """One value for each task, the geometric mean over its pairs: tasks are the sample, seeds repeat it."""
        found = [self.pairs(arm, other, task, updates) for task in tasks]
        ratios = [pair.ratio for pair in found if pair and pair.ratio is not None]
        return compared(ratios, [1.0] * len(ratios)) if ratios else None

    def averaged(self, arm: str, other: str, tasks: Sequence[str], updates: int) -> Pairs | None:
        """The arm against the other one: geometric mean over tasks for each seed, seeds are the sample."""
        cells = [[self.cell(name, task, updates) for task in tasks] for name in (arm, other)]
        seeds = set.intersection(*(set(cell) for row in cells for cell in row))
        means = [
            {seed: float(np.exp(np.mean([np.log(min(cell[seed], GONE)) for cell in row]))) for seed in seeds}
            for row in cells
        ]
        return compare(*means)


def compare(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Pairs | None:
    """Two cells on the seeds that both have."""
    seeds = sorted(ours.keys() & theirs.keys())
    paired = [[min(cell[seed], GONE) for seed in seeds] for cell in (ours, theirs)]
    return compared(paired[0], paired[1]) if seeds else None


def compared(ours: Sequence[float], theirs: Sequence[float]) -> Pairs:
    """The ratio, with its interval from three pairs on: of two it spans orders of magnitude."""
    pairs = compare_pairs(ours, theirs)
    return pairs if len(ours) > 2 else pairs.model_copy(update={"interval": None})


def seeds_text(values: Mapping[int, float]) -> str:
    """The seeds of a cell."""
    seeds = sorted(values)
    if not seeds:
        return "–"
    return f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"{seeds[0]}"


def mean_text(values: Mapping[int, float]) -> str:
    """The geometric mean over seeds, and how many of them blew up."""
    if not values:
        return NOT_RUN
    found = np.minimum(list(values.values()), GONE)
    return format_number(float(np.exp(np.log(found).mean()))) + failures_text(values)


def failures_text(values: Mapping[int, float]) -> str:
    """How many of the seeds blew up, if any did."""
    gone = sum(value >= GONE for value in values.values())
    return f" ({gone} of {len(values)} blew up)" if gone else ""


def spread_text(values: Mapping[int, float]) -> str:
    """Mean ± std over seeds, as in the paper."""
    found = np.array(list(values.values()))
    if not found.size:
        return NOT_RUN
    std = float(found.std(ddof=1)) if found.size > 1 and np.isfinite(found).all() else None
    return format_number(float(found.mean())) + format_std(std)


def ratio_text(pairs: Pairs | None) -> str:
    """Ratio and its 95 % interval."""
    if pairs is None:
        return NOT_RUN
    text = format_number(pairs.ratio)
    return text + (f" [{', '.join(map(format_number, pairs.interval))}]" if pairs.interval else "")


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def recipe_table(found: Found, tasks: Sequence[str], updates: int) -> str:
    """The recipe, its control and the recipe with history, task by task and over all of them."""
    heading = ["task", *LABELS.values(), *SHARES.values(), "seeds"]
    rows = []
    for task in tasks:
        cells = [found.cell(arm, task, updates) for arm in LABELS]
        share = [ratio_text(found.pairs(*pair, task, updates)) for pair in SHARES]
        rows.append([task, *map(mean_text, cells), *share, seeds_text(cells[1])])
    over = [ratio_text(found.pooled(*pair, tasks, updates)) for pair in SHARES]
    return table(heading, [*rows, ["**all of these**", "", "", "", *over, ""]])


def measures_table(found: Found, places: Sequence[tuple[str, int]]) -> str:
    """The recipe against its control by every measure: they can disagree."""
    heading = ["task", "updates", *MEASURES.values(), "runs with a diverged rollout: balanced, control"]
    rows = []
    for task, updates in places:
        cells = [[found.cell(arm, task, updates, name) for arm in ("recipe", "control")] for name in MEASURES]
        if all(cells[0]):
            gone = [found.cell(arm, task, updates, "diverged").values() for arm in ("recipe", "control")]
            said = ", ".join(f"{sum(count > 0 for count in counts)} of {len(counts)}" for counts in gone)
            rows.append([task, f"{updates:,}", *(ratio_text(compare(*cell)) for cell in cells), said])
    return table(heading, rows)


def history_table(found: Found, places: Sequence[tuple[str, int]]) -> str:
    """What history adds to the recipe, on the data that decide about it and on those that do not."""
    measures = [("val", "nrmse@100"), ("val", "gm100"), ("test", "nrmse@100"), ("test", "gm100"), ("test", "nrmse@1")]
    words = {"val": "validation", "test": "test"}
    heading = ["task", "updates", *(f"{MEASURES[name]}, {words[split]}" for split, name in measures)]
    rows, ratios = [], []
    for task, updates in places:
        pairs = [
            compare(*(found.cell(arm, task, updates, name, split) for arm in ("foresight", "recipe")))
            for split, name in measures
        ]
        if all(pairs):
            rows.append([task, f"{updates:,}", *map(ratio_text, pairs)])
            ratios.append([pair.ratio for pair in pairs if pair and pair.ratio is not None])
    over = [ratio_text(compared(column, [1.0] * len(column))) for column in zip(*ratios, strict=True)]
    return table(heading, [*rows, ["**all of these**", "", *over]])


def headline_table(found: Found, tasks: Sequence[str], updates: int) -> str:
    """The first table of the README: HERO as published, and the recipe next to its control."""
    heading = ["task", "HERO as published", "`push_forward`, optimizer of the recipe", "recipe", "ratio of the two"]
    paper, fresh = found.of_seeds(PAPER_SEEDS), found.of_seeds(FRESH_SEEDS)
    rows = [
        [
            task,
            mean_text(paper.cell("hero", task, updates)),
            *(mean_text(fresh.cell(arm, task, updates)) for arm in ("control", "invariants")),
            ratio_text(fresh.pairs("invariants", "control", task, updates)),
        ]
        for task in tasks
    ]
    return table(heading, rows)


def paper_table(found: Found, tasks: Sequence[str], updates: int) -> str:
    """The paper's strategies at its protocol, mean ± std, next to its own numbers."""
    heading = ["task", "strategy", "GM100", "nRMSE@1", "nRMSE@100", "nRMSE@200", "stable step", "paper's nRMSE@100"]
    rows = []
    for task in tasks:
        for arm in PAPER:
            cells = [spread_text(found.cell(arm, task, updates, measure)) for measure in SHOWN_COLUMNS]
            published = (published_row("complete", task, "fno", arm) or {}).get(MEASURE)
            said = format_published(published.mean, published.std) if published else "–"
            rows.append([task, f"`{arm}`", *(cells if cells[0] != NOT_RUN else [NOT_RUN, *[""] * 4]), said])
    return table(heading, rows)


def hero_pairs_table(found: Found, tasks: Sequence[str], updates: int, kind: str = "") -> str:
    """HERO and its control against push_forward, pair by pair; `kind` ends the names of the arms."""
    compared = [(f"{arm}{kind}", f"{other}{kind}") for arm, other in PAIRS]
    heading = ["task", "push_forward", *(f"{arm} / {other}" for arm, other in PAIRS), "seeds"]
    rows = []
    for task in tasks:
        usual = found.cell(compared[0][1], task, updates)
        ratios = [ratio_text(found.pairs(*pair, task, updates)) for pair in compared]
        rows.append([task, mean_text(usual), *ratios, seeds_text(usual)])
    over = [ratio_text(found.pooled(*pair, tasks, updates)) for pair in compared]
    return table(heading, [*rows, ["**all of these**", "", *over, ""]])


def variants_table(found: Found, tasks: Sequence[str], updates: int) -> str:
    """HERO with other candidates, start steps and refresh intervals, each against push_forward on the same seeds."""
    heading = ["HERO", *(f"{task}, ratio to push_forward" for task in tasks), "the paper's, decaying turbulence"]
    arms = {name: f"hero, {name}" for name in HERO_VARIANTS}
    trained = found.of_seeds({run.seed for run in found.runs if run.arm in arms.values()})
    rows = []
    for name, arm in {"as published": "hero", **arms}.items():
        ratios = [trained.pairs(arm, "push_forward", task, updates) for task in tasks]
        rows.append([name, *map(ratio_text, ratios), published_ratio(name)])
    return table(heading, rows)


def published_ratio(name: str) -> str:
    """The paper's nRMSE@100 of a variant, divided by the one of push_forward in the same table."""
    study, label = PUBLISHED_VARIANTS[name]
    ours, usual = (published_row(study, "decaying_turbulence", "fno", row) for row in (label, "FNO-PF"))
    return format_number(ours[MEASURE].mean / usual[MEASURE].mean) if ours and usual else "–"


def transolver_table(found: Found, tasks: Sequence[str], schedules: Mapping[str, int]) -> str:
    """HERO against push_forward, and the recipe against its control, for the other backbone."""
    heading = ["task", "backbone", "updates"]
    for arm, other in TRANSOLVER_PAIRS:
        name = LABELS.get(arm, arm)
        heading += [other, name, f"{name} / {other}", "seeds"]
    rows = []
    for task in tasks:
        for kind, updates in schedules.items():
            row = [task, kind, f"{updates:,}"]
            for arm, other in TRANSOLVER_PAIRS:
                ours, usual = (found.cell(f"{name}, {kind}", task, updates) for name in (arm, other))
                row += [mean_text(usual), mean_text(ours), ratio_text(compare(ours, usual)), seeds_text(ours)]
            rows.append(row)
    return table(heading, rows)


def equal_time_table(found: Found, tasks: Sequence[str], updates: int, more: int) -> str:
    """The recipe against a control with more updates."""
    heading = [
        "task",
        f"control, {updates:,} updates",
        f"control, {more:,}",
        f"balanced, {updates:,}",
        "balanced / longer",
    ]
    rows = []
    for task in tasks:
        usual, longer, recipe = (
            found.cell("control", task, updates),
            found.cell("control", task, more),
            found.cell("recipe", task, updates),
        )
        pairs = compare(recipe, longer)
        rows.append([task, *map(mean_text, (usual, longer, recipe)), ratio_text(pairs)])
    return table(heading, rows)


def ablation_table(found: Found, tasks: Sequence[str], updates: int) -> str:
    """Arms with one change each as a ratio to the control, and over all of these tasks to the recipe."""
    rows = []
    for arm, changed in GAIN_ARMS.items():
        cells = [found.cell(arm, task, updates) for task in tasks]
        texts = [
            ratio_text(compare(cell, found.cell("control", task, updates))) + failures_text(cell)
            for task, cell in zip(tasks, cells, strict=True)
        ]
        over = ratio_text(found.averaged(arm, "recipe", tasks, updates))
        rows.append([changed, *texts, over, seeds_text(cells[0])])
    return table(
        ["arm", *(f"{task}, ratio to the control" for task in tasks), "both, ratio to balanced", "seeds"], rows
    )


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
    path = study_path(found.results, name)
    if not path.is_file():
        return NOT_RUN
    result = StudyResult.read(path)
    return "\n\n".join(f"{table.title}:\n\n{table.to_markdown().rstrip()}" for table in study_tables(result))


def probes_table(found: Found) -> str:
    """Whether HERO's weights go to the windows that help, and how much that changes the descent."""
    heading = [
        "run",
        "updates",
        "α, mean ± std over windows",
        "correlation of α and usefulness",
        "changes the descent by",
    ]
    rows = []
    for path in sorted((found.results / "probes").glob("*.json")):
        for point in Probe.read(path).checkpoints:
            low, high = point.correlation_interval
            alpha = f"{point.alpha_mean:.3f} ±{point.alpha_std:.2g}"
            correlation = f"{point.correlation:+.2f} [{low:+.2f}, {high:+.2f}]"
            rows.append([path.stem, f"{point.step:,}", alpha, correlation, f"{100 * point.effect:+.2g} %"])
    return table(heading, rows)


def curves_figure(found: Found, places: Sequence[tuple[str, int]], arms: Mapping[str, str]) -> Figure:
    """Error against rollout step: geometric mean over seeds as a line, the seeds as a band."""
    colours = colours_of(arms)
    figure = new_figure(3.4 * len(places), 3.2)
    panels = figure.subplots(1, len(places), squeeze=False)[0]
    for axes, (task, updates) in zip(panels, places, strict=True):
        for arm, label in arms.items():
            chosen = found.of_seeds(PAPER_SEEDS if arm in PAPER else OWN_SEEDS).runs
            runs = [run.nrmse for run in chosen if (run.arm, run.task, run.updates) == (arm, task, updates)]
            if runs:
                errors = np.minimum(np.array(runs), 1e2)
                steps = np.arange(1, errors.shape[1] + 1)
                axes.plot(steps, np.exp(np.log(errors).mean(0)), label=label, color=colours[arm])
                axes.fill_between(steps, errors.min(0), errors.max(0), color=colours[arm], alpha=0.12, linewidth=0)
        axes.set_yscale("log")
        axes.set_title(f"{task}, {updates:,} updates", fontsize=10)
        axes.set_xlabel("rollout step")
    panels[0].set_ylabel("nRMSE, mean over test trajectories")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(arms), fontsize=9)
    return figure


def ratios_figure(found: Found, places: Sequence[tuple[str, int]]) -> Figure:
    """The recipe against its control, and history's share in it: ratio, interval, pairs; at the edge: beyond it."""
    places = [place for place in places if found.pairs("recipe", "control", *place)]
    figure = new_figure(8.5, 0.42 * len(places) + 1.4)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (ours, theirs), title in zip(panels, SHARES, SHARES.values(), strict=True):
        for y, (task, updates) in enumerate(places):
            pairs = found.pairs(ours, theirs, task, updates)
            if pairs is None or pairs.ratio is None:
                continue
            cells = found.cell(ours, task, updates), found.cell(theirs, task, updates)
            both = cells[0].keys() & cells[1].keys()
            points = [min(cells[0][seed], GONE) / min(cells[1][seed], GONE) for seed in both]
            if pairs.interval:
                axes.plot(np.clip(pairs.interval, *RATIOS_SHOWN), [y, y], "-", color="0.45", linewidth=5, alpha=0.4)
            axes.plot(np.clip(points, *RATIOS_SHOWN), [y] * len(points), "o", color="0.3", markersize=3, clip_on=False)
            axes.plot([pairs.ratio], [y], "|", color="black", markersize=14, markeredgewidth=2)
        axes.axvline(1, color="0.5", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_xlim(*RATIOS_SHOWN)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("ratio of nRMSE@100")
    panels[0].set_yticks(range(len(places)), [f"{task}, {updates:,}" for task, updates in places])
    panels[0].invert_yaxis()
    return figure


BEFORE_AFTER = "before_after.npz"
FULL, SHORT, SHORTEST, LONGER = 10_000, 2_000, 500, 12_000
"""Updates of the paper's protocol, in two dimensions, in three, and of a control with more time than the recipe."""
SCHEDULES = {"Transolver": 300, "Transolver, batch 4": SHORT}
"""Updates of the other backbone: about as long as each other."""
PLACES = [*((t, FULL) for t in ONE_D), *((t, SHORT) for t in TWO_D), *((t, SHORTEST) for t in THREE_D)]
"""Every task, with the updates that it was trained for."""
MOTIVATION = [("burgers", FULL), ("kuramoto_sivashinsky", FULL), ("decaying_turbulence", SHORT)]
"""The paper's figure of errors along the rollout: its own task, and two at full length."""
OURS_AND_PAPER = {"push_forward": "push_forward, paper", "hero": "HERO, paper", **LABELS}
TABLES: dict[str, Callable[[Found], str]] = {
    "headline": lambda found: headline_table(found, ONE_D, FULL),
    "recipe": lambda found: recipe_table(found, ONE_D, FULL),
    "measures": lambda found: measures_table(found, PLACES),
    "history": lambda found: history_table(found, PLACES),
    "recipe 2D": lambda found: recipe_table(found, TWO_D, SHORT),
    "recipe 3D": lambda found: recipe_table(found, THREE_D, SHORTEST),
    "paper": lambda found: paper_table(found.of_seeds(PAPER_SEEDS), ONE_D, FULL),
    "paper 2D": lambda found: paper_table(found.of_seeds(PAPER_SEEDS), TWO_D[:3], SHORT),
    "pairs": lambda found: hero_pairs_table(found.of_seeds(PAPER_SEEDS), ONE_D, FULL),
    "pairs mse": lambda found: hero_pairs_table(found, STUDIED, FULL, ", mse"),
    "pairs 2D": lambda found: hero_pairs_table(found, TWO_D[:3], SHORT),
    "pairs 3D": lambda found: hero_pairs_table(found, THREE_D, SHORTEST),
    "transolver": lambda found: transolver_table(found, STUDIED[:1], SCHEDULES),
    "variants": lambda found: variants_table(found, STUDIED, FULL),
    "predictability": predictability_table,
    "ablation": lambda found: ablation_table(found.of_seeds(OWN_SEEDS), STUDIED, FULL),
    **{f"study {name}": partial(study_text, name=name) for name in ("ablation", "ood", "cost", "landscape")},
    "probes": probes_table,
    "equal time": lambda found: equal_time_table(found, STUDIED, FULL, LONGER),
}
PAGES = ("README.md", "docs/results.md", "results/tables.md")


def filled(text: str, found: Found) -> str:
    """The page with its tables as the kept runs give them."""

    def made(match: re.Match[str]) -> str:
        if match[1] not in TABLES:
            raise HeroError(f"there is no table {match[1]!r}; choose one of: {', '.join(TABLES)}.")
        runs = found if match[1] == "headline" else found.of_seeds(range(FRESH_SEEDS.start))
        return f"<!-- begin {match[1]} -->\n{TABLES[match[1]](runs)}\n<!-- end {match[1]} -->"

    return re.sub(r"<!-- begin ([\w ]+) -->\n.*?<!-- end \1 -->", made, text, flags=re.DOTALL)


def build(results: Path, root: Path) -> list[Path]:
    """Write the tables into the pages, and the figures; returns what was written."""
    found = Found.read(results)
    written = []
    for name in PAGES:
        text = (root / name).read_text(encoding="utf-8")
        written.append(write_atomic(root / name, filled(text, found).encode()))
    figures = {
        "results_curves": curves_figure(found, PLACES[: len(ONE_D)], OURS_AND_PAPER),
        "results_strategies": curves_figure(found, MOTIVATION, {arm: arm for arm in PAPER}),
        "results_ratios": ratios_figure(found, PLACES),
    }
    for path in sorted(landscape_folder(results).glob("*.json")):
        shown = Landscape.read(path)
        figures[f"results_landscape_{shown.run.partition('-')[0]}"] = landscape_figure(shown, shown.run)
    if (results / BEFORE_AFTER).is_file():
        figures["before_after"] = before_after_figure(results / BEFORE_AFTER)
    return written + [save(figure, root / "docs/figures" / f"{name}.png") for name, figure in figures.items()]


def outdated(results: Path, root: Path) -> list[str]:
    """A: the pages whose tables are not what the kept runs say."""
    found = Found.read(results)
    pages = {name: (root / name).read_text(encoding="utf-8") for name in PAGES}
    return [name for name, text in pages.items() if filled(text, found) != text]
