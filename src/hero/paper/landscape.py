"""Kept checkpoints along the rollout, relative to the final model: the paper's second figure and `hero landscape`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from pydantic import Field, computed_field

from hero.errors import HeroError
from hero.evaluation.measure import Trained
from hero.method.distance import EPS
from hero.records import Record
from hero.report.figures.style import BLACK, GREY, new_figure
from hero.report.inputs import Analysis
from hero.report.tables import format_number
from hero.runs.checkpoint import load_kept
from hero.runs.folder import Run
from hero.study.collect import Places, PlannedGroup, RunNumbers, group_of, read_row
from hero.study.records import Group, MetricColumn, StudyResult

MARKED_STEPS = (40, 100, 160)  # the dashed lines of the paper's figure
COLOUR_LIMITS = (0.1, 2.0)
"""Least and largest |log10 ratio| at the ends of the colour bar: an exploded checkpoint must not wash out others."""
DIVERGED = "#4d4d4d"


class Landscape(Record):
    """Mean test errors E_s(t) of the kept checkpoints and of the final model, per rollout step."""

    remedy: ClassVar[str] = "`hero landscape` writes it again."

    run: str
    final_step: int
    steps: tuple[int, ...] = Field(min_length=1)  # updates after which the checkpoints were kept
    errors: tuple[tuple[float, ...], ...]  # one row per kept checkpoint
    final_errors: tuple[float, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def log10_ratio(self) -> list[list[float]]:
        """Δ_s(t) = log10((E_s(t) + ε) / (E_final(t) + ε)), one row per kept checkpoint; NaN where both have diverged.

        +∞ where the checkpoint has diverged and the final model has not, -∞ the other way round.
        """
        with np.errstate(invalid="ignore"):  # ∞ - ∞ is NaN on purpose
            ratio = np.log10(np.add(self.errors, EPS)) - np.log10(np.add(self.final_errors, EPS))
        rows: list[list[float]] = ratio.tolist()
        return rows


def measure_landscape(run: Path, data_dir: Path) -> Landscape:
    """Measure all kept checkpoints and the final model on the test split; writes `landscape.json`.

    The paper's second figure. "Final" means the weights that are deployed, the best by validation.
    """
    trained, steps = Trained(run, data_dir), Run(run).kept_steps
    if not steps:
        raise HeroError(
            f"run {run.name} kept no checkpoints; train it again with train.keep_every=N, "
            f"for example N={max(1, trained.config.train.steps // 5)}."
        )
    test = trained.data("test")
    rows: dict[int, tuple[float, ...]] = {}
    for step in (0, *steps):
        if step:
            load_kept(Run(run).kept_file(step), trained.model)
        title = f"checkpoint {step}" if step else "final model"
        errors = trained.measure(test, trained.fresh_step(), title=title).score
        # E_s(t) = (1/N) Σ_i ‖û_t - u_t‖₂ / (‖u_t‖₂ + ε): infinite from where any of the rollouts diverges
        rows[step] = tuple(errors.mean(dim=0).tolist())
    result = Landscape(
        run=run.name,
        final_step=trained.run.best_step,
        final_errors=rows.pop(0),
        steps=tuple(rows),
        errors=tuple(rows.values()),
    )
    result.write(run / "landscape.json")
    return result


def landscape_sentence(found: Landscape) -> str:
    """The worst and the best moment of the kept checkpoints against the final model."""
    ratio = np.array(found.log10_ratio, dtype=np.float64)
    diverged = [step for step, row in zip(found.steps, found.errors, strict=True) if not np.isfinite(row[-1])]
    note = f" Rollouts diverged at checkpoint {', '.join(map(str, diverged))}." if diverged else ""
    if not np.isfinite(ratio).any():
        return "No checkpoint can be compared with the final model: rollouts diverged everywhere." + note
    parts = []
    for word, pick in (("worse", np.max), ("better", np.min)):
        extreme = pick(ratio[np.isfinite(ratio)])
        row, column = np.argwhere(ratio == extreme)[0]
        if (extreme > 0) == (word == "worse") and extreme != 0:
            factor = format_number(10 ** abs(extreme))
            parts.append(f"at most {factor} times {word} (checkpoint {found.steps[row]}, rollout step {column + 1})")
    verdict = "; ".join(parts) if parts else "equal everywhere"
    return f"Against the final model of step {found.final_step}, kept checkpoints are {verdict}.{note}"


def landscape_figure(found: Landscape, subject: str) -> Figure:
    """Δ_s(t) (checkpoint, rollout step) as a heat map, the earliest checkpoint on top, the final model below."""
    ratio = np.array(found.log10_ratio, dtype=np.float64)
    count, length = ratio.shape
    shown = np.vstack([ratio, np.zeros(length)])
    finite = np.abs(shown[np.isfinite(shown)])
    limit = float(np.clip(finite.max(initial=0), *COLOUR_LIMITS))
    figure = new_figure(8.4, 2.0 + 0.5 * (count + 1))
    axes = figure.subplots()
    # Infinite and undefined cells are left out of the map: there the dark ground of the axes is seen.
    axes.set_facecolor(DIVERGED)
    image = axes.imshow(np.ma.masked_invalid(shown), aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit,
                        interpolation="nearest", extent=(0.5, length + 0.5, count + 0.5, -0.5))  # fmt: skip
    cases = {"the checkpoint": shown == np.inf, "the final model": shown == -np.inf, "both": np.isnan(shown)}
    if lost := [name for name, where in cases.items() if where.any()]:
        label = f"a rollout of {' or of '.join(lost)} diverged"
        figure.legend(handles=[Patch(color=DIVERGED, label=label)], loc="outside lower center")
    for step in MARKED_STEPS:
        if step <= length:
            axes.axvline(step, color=BLACK, linewidth=1.1, linestyle="--")
    for row in range(count):
        axes.axhline(row + 0.5, color=GREY, linewidth=0.8)
    axes.set_yticks(range(count + 1), [*map(str, found.steps), f"final ({found.final_step})"])
    every = 20 if length >= 40 else max(1, length // 4)
    axes.set_xticks(sorted({1, *range(every, length + 1, every)}))
    axes.set(xlabel="rollout step", ylabel="checkpoint (updates)")
    axes.set_title(f"{subject}: error of kept checkpoints over the error of the final model", fontsize=10)
    beyond = bool((finite > limit).any())
    bar = figure.colorbar(image, ax=axes, extend="both" if beyond else "neither", pad=0.02)
    bar.set_label("log10 of the error ratio\nred: worse than final", fontsize=9)
    return figure


def read_landscape(group: PlannedGroup, columns: Sequence[MetricColumn], places: Places) -> Iterator[Group]:
    """A row for each kept checkpoint and one for the final model: E_s(t) of `hero landscape`."""
    rows = []
    for row in group.rows:
        train = row.configs[0].train
        for step in (*range(train.keep_every, train.steps + 1, train.keep_every), None):

            def read(run: Run, step: int | None = step) -> RunNumbers:
                found = stored_landscape(run.path, places.data)
                errors: dict[int | None, tuple[float, ...]] = {None: found.final_errors}
                errors |= zip(found.steps, found.errors, strict=True)
                of_step = errors.get(step, ())  # none where a run stopped early
                return RunNumbers({places.scoring.at(t): error for t, error in enumerate(of_step, start=1)})

            found = read_row(row, columns, places, read, ({}, ()))
            end = "final" if step is None else f"step {step}"
            rows.append(found.model_copy(update={"label": f"{row.label}, {end}", "note": ""}))
    yield group_of(group, rows)


def stored_landscape(run: Path, data_dir: Path) -> Landscape:
    """`landscape.json` of a run, measured if it is not there or not of the checkpoints that are."""
    with contextlib.suppress(HeroError):
        found = Landscape.read(run / "landscape.json")
        if list(found.steps) == Run(run).kept_steps:
            return found
    return measure_landscape(run, data_dir)


def landscape_figures(result: StudyResult, group: Group, name: str, runs_dir: Path) -> Iterator[tuple[str, Figure]]:
    """The figure of `hero landscape` for each run of a group, whose rows share them."""
    for name, entry in {run.run: run for row in group.rows for run in row.finished}.items():
        found = Landscape.read(runs_dir / name / "landscape.json")
        yield f"landscape-{name}", landscape_figure(found, f"{group.title}, seed {entry.seed}")


LANDSCAPE = Analysis(
    Landscape,
    "Checkpoint landscape",
    "Mean test error of checkpoints kept during training, divided by the error of the final model (the weights with "
    "the best validation score) at the same rollout step, as a logarithm. Red: worse than the final model; blue: "
    "better; the bottom row is zero by definition.",
    lambda found, config: landscape_figure(found, config.source.title),
    lambda found: [landscape_sentence(found)],
)
