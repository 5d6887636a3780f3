"""Results of the Python API: numbers as attributes, arrays, a figure, and a small table where a notebook shows them."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hero.deploy.model_folder import UNLICENSED, Operator, open_model
from hero.deploy.outputs import as_dataset
from hero.deploy.starts import described
from hero.report.tables import Table
from hero.runs.config import RunConfig
from hero.runs.folder import Run
from hero.study.records import StudyResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = ("stable_step", "skilful_step", "correlation_time", "anomaly_correlation_time", "diverged")
"""Metrics of a notebook's table in addition to those over the horizon."""


class Scores(dict[str, float]):
    """Numbers by name, also as attributes; `@` is written as an underscore: scores.nrmse_100."""

    def __getattr__(self, name: str) -> float:
        for key, value in self.items():
            if name in (key, key.replace("@", "_")):
                return value
        raise AttributeError(f"there is no number {name!r}; there are {', '.join(self)}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(key.replace("@", "_") for key in self)]


class Evaluation:
    """A model on somebody's data: `test` (numbers by name), `errors`, its score (trajectory, step), and `baselines`."""

    def __init__(self, test: dict[str, float], errors: np.ndarray, baselines: dict[str, dict[str, float]]) -> None:
        self.test, self.errors, self.baselines = Scores(test), errors, baselines

    def __repr__(self) -> str:
        return f"<hero evaluation of {len(self.errors)} trajectories: {numbers_text(self.test)}>"

    def _repr_html_(self) -> str:
        return beside_baselines(self.test, self.baselines, list(self.test))


class Result:
    """A trained and evaluated run."""

    def __init__(self, path: Path, data_dir: Path) -> None:
        self.path, self.data_dir = Path(path), Path(data_dir)
        self.run = Run(self.path)

    @property
    def config(self) -> RunConfig:
        """Every setting."""
        return self.run.config

    @property
    def notes(self) -> tuple[str, ...]:
        """Decisions taken in reading the data: what was dropped, cut, joined or guessed; of a benchmark none."""
        files = self.config.source.files
        return files.recording.notes if files is not None else ()

    @cached_property
    def metrics(self) -> Scores:
        """The numbers of the test set."""
        found = self.run.stored_metrics
        return Scores(found.test if found else {})

    @cached_property
    def errors(self) -> np.ndarray:
        """The score of the test rollouts, nRMSE of benchmarks and VRMSE of files, (trajectory, step)."""
        return self.run.errors.score

    @cached_property
    def model(self) -> Operator:
        """The trained operator with its best weights, in evaluation mode, on the CPU."""
        return open_model(self.path, trust_code=True)  # the session that trained it named its code

    def predict(self, states: Any, steps: int, mu: Any = None, forcing: Any = None, *, as_xarray: bool = False) -> Any:
        """The rollout (batch, steps, channel, *space) from `states`: arrays in, arrays out, or an xarray.Dataset."""
        made = self.model.rollout(states, steps, mu, forcing)
        if not as_xarray:
            return made
        conditioning = self.model.context(states, mu, forcing).mu
        return as_dataset(np.asarray(made), described(self.model.card, conditioning))

    def save(self, folder: str | Path, license: str = UNLICENSED) -> Path:
        """Write the model folder, to hand on."""
        self.model.license = license
        self.model.save_pretrained(folder)
        return Path(folder)

    def plot(self) -> Figure:
        """The error along the rollout, and one predicted state next to the truth."""
        from hero.report.figures.runs import errors_chart, result_figure

        source, errors, rollout = self.config.source, self.run.errors, self.run.rollout
        drawn = {"prediction": (rollout, errors)} if rollout else {}
        return result_figure(errors_chart(source.title, errors), drawn, source, self.config.scoring)

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"<hero result {self.path}: {numbers_text(self.metrics)}>"

    def _repr_html_(self) -> str:
        scoring = self.config.scoring
        names = [name for name in self.metrics if name in (*SHOWN, scoring.gm, scoring.at(1), scoring.last)]
        found = self.run.stored_metrics
        idle = {name: baseline.test for name, baseline in found.baselines.items()} if found else {}
        return beside_baselines(self.metrics, idle, names, str(self.path)) + html_image(self.plot())


class Comparison:
    """Strategies trained with the same seeds."""

    def __init__(self, study: StudyResult, runs: Path) -> None:
        self.study, self.runs = study, runs
        self.path = runs / study.folder

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row per strategy: mean and std over the seeds of each number, and how many seeds finished."""
        rows = []
        for row in self.study.rows:
            line: dict[str, Any] = {"strategy": row.strategy, "seeds": len(row.finished)}
            for column in self.study.columns:
                cell = row.cells.get(column.key)
                line[column.key], line[f"{column.key}_std"] = (cell.mean, cell.std) if cell else (None, None)
            rows.append(line)
        return rows

    def to_markdown(self) -> str:
        """Tables, notes and paired tests."""
        from hero.report.content import study_markdown

        return study_markdown(self.study)

    def plot(self) -> Figure:
        """The error of each strategy along the rollout, with every seed."""
        from hero.report.figures.charts import curves_figure, error_chart
        from hero.report.figures.runs import group_curves

        (group,) = self.study.groups
        return curves_figure(error_chart(group.title, group_curves(group, self.runs)))

    def __repr__(self) -> str:
        return f"<hero comparison of {', '.join(row.strategy for row in self.study.rows)} in {self.path}>"

    def _repr_html_(self) -> str:
        table = self.table
        rows = [tuple(map(cell_text, row.values())) for row in table]
        return Table.of_words(str(self.path), tuple(table[0]), rows).to_html() + html_image(self.plot())


def beside_baselines(
    numbers: Mapping[str, float], baselines: Mapping[str, Mapping[str, float]], names: Sequence[str], title: str = ""
) -> str:
    """A table in HTML: each metric, and what doing nothing gives."""
    columns = [numbers, *baselines.values()]
    rows = [(name, *(cell_text(column.get(name)) for column in columns)) for name in names]
    return Table.of_words(title, ("metric", "test", *baselines), rows).to_html()


def numbers_text(scores: Scores) -> str:
    """The first few numbers in one line."""
    return ", ".join(f"{name} {value:.3g}" for name, value in list(scores.items())[:3]) or "not evaluated"


def cell_text(value: Any) -> str:
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def html_image(figure: Figure) -> str:
    """A figure inside of the page."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=80)
    return f'<img alt="" src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}">'
