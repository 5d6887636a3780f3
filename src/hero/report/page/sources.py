"""What a report is made from: run folders, studies and comparisons, read from disk and checked.

A file that only one picture needs may be missing or damaged: the report then says so. A run that was named must be
there and finished.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hero.errors import HeroError
from hero.report.figures.style import Log
from hero.runs.config import RunConfig
from hero.runs.folder import find_run, list_runs
from hero.runs.old import load_run, read_errors, read_log, read_metrics
from hero.runs.rollouts import Rollout
from hero.study.records import FILE, StudyResult


@dataclass(frozen=True)
class StoredRun:
    """A finished run; `errors` are the arrays (trajectory, step) of `read_errors`, empty if they cannot be read."""

    folder: Path
    config: RunConfig
    metrics: Mapping[str, Any]
    errors: Mapping[str, np.ndarray]
    log: Log
    probe: Mapping[str, Any] | None
    landscape: Mapping[str, Any] | None
    notices: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.folder.name

    def errors_of(self, rollout: Rollout) -> np.ndarray | None:
        """nRMSE of the stored rollout at each step; None if the two files are not of one evaluation."""
        errors = self.errors.get("nrmse")
        if errors is None or rollout.trajectory >= len(errors) or errors.shape[1] != len(rollout.truth):
            return None
        found: np.ndarray = errors[rollout.trajectory]
        return found


@dataclass(frozen=True)
class Document:
    """The result of a study or a comparison, and the folder with its figures."""

    folder: Path
    result: StudyResult


@dataclass
class Sources:
    """All that one report shows; `notices` say what could not be read."""

    runs: list[StoredRun] = field(default_factory=list)
    studies: list[Document] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    """Runs that were asked for by themselves, not through a study or comparison."""

    def run(self, name: str) -> StoredRun | None:
        return next((run for run in self.runs if run.name == name), None)

    def add(self, folder: Path, metrics: Mapping[str, Any] | None = None) -> None:
        """One more run; HeroError if it is not finished."""
        if self.run(folder.name) is None:
            self.runs.append(read_run(folder, metrics))
            self.notices += self.runs[-1].notices

    def try_add(self, folder: Path) -> bool:
        """One more run, or one more notice."""
        try:
            self.add(folder)
        except HeroError as error:
            self.notices.append(str(error))
            return False
        return True


def gather(names: Sequence[str], runs_dir: Path) -> Sources:
    """Runs, studies and comparisons by folder, id or part of an id; all finished runs if nothing is named."""
    sources = Sources()
    for name in names:
        document = find_document(name, runs_dir)
        if document is None:
            run = find_run(name, runs_dir)
            sources.add(run)
            sources.named.add(run.name)
        else:
            add_document(sources, document, runs_dir)
    for run in list_runs(runs_dir) if not names else ():
        if sources.try_add(run):
            sources.named.add(run.name)
    if not (sources.runs or sources.studies):
        first = f" ({sources.notices[0]})" if sources.notices else ""
        raise HeroError(f"there are no finished runs in {runs_dir}; start one with `hero train burgers`{first}.")
    return sources


def find_document(name: str, runs_dir: Path) -> Path | None:
    """`study.json` of the folder that `name` means, or None if it means a run."""
    similar = [path for path in sorted(runs_dir.iterdir()) if name in path.name] if runs_dir.is_dir() else []
    folders = [Path(name), runs_dir / name, *similar]
    found = [folder / FILE for folder in folders if (folder / FILE).is_file()]
    exact = [path for path in found if path.parent in folders[:2]]
    if exact or len(found) == 1:
        return (exact or found)[0]
    if found and not any(name in run.name for run in list_runs(runs_dir)):
        raise HeroError(
            f"{name!r} fits {len(found)} folders ({', '.join(path.parent.name for path in found[:4])}); "
            "give more of the name."
        )
    return None


def add_document(sources: Sources, path: Path, runs_dir: Path) -> None:
    """A study or comparison with the finished runs that it names; a run that is gone gives a notice."""
    result = StudyResult.read(path)
    sources.studies.append(Document(path.parent, result))
    for name, run in result.runs.items():
        folders = [folder / name for folder in (path.parent.parent, runs_dir) if (folder / name).is_dir()]
        if run.status != "finished":
            continue
        if folders:
            sources.try_add(folders[0])
        else:
            sources.notices.append(f"run {name} of {path.parent.name} is not in {runs_dir}; its curves are left out.")


def read_run(folder: Path, metrics: Mapping[str, Any] | None = None) -> StoredRun:
    """A run folder; `metrics` replace metrics.json while it is evaluated, which may be before its training ends."""
    config = load_run(folder)
    notices: list[str] = []
    stored = metrics or read_metrics(folder)
    if not stored:
        raise HeroError(f"run {folder.name} is not finished; `hero train --resume {folder.name}` goes on with it.")
    if stored["training"]["steps"] != config.train.steps:
        early = (
            f"run {folder.name} was measured at step {stored['training']['steps']} of {config.train.steps}; "
            f"`hero train --resume {folder.name}` goes on with it."
        )
        if metrics is None:
            raise HeroError(early)
        notices.append(early)
    metrics = stored
    whole = {"task", "backbone", "strategy", "seed"} <= metrics.keys()
    if not whole or not all(isinstance(metrics.get(key), dict) for key in ("val", "test")):
        raise HeroError(f"{folder / 'metrics.json'} is damaged; `hero evaluate {folder.name}` writes it anew.")
    errors: Mapping[str, np.ndarray] = {}
    try:
        errors = read_errors(folder)
    except HeroError as error:
        notices.append(str(error))
    analyses = {}
    for name in ("probe", "landscape"):
        analyses[name], problem = read_analysis(folder, name)
        notices += [problem] if problem else []
    return StoredRun(
        folder, config, metrics, errors, read_log(folder), analyses["probe"], analyses["landscape"], tuple(notices)
    )


def read_analysis(run: Path, name: str) -> tuple[dict[str, Any] | None, str | None]:
    """`probe.json` or `landscape.json` if there is one, else what is wrong with it."""
    path = run / f"{name}.json"
    if not path.is_file():
        return None, None
    needed = "checkpoints" if name == "probe" else "log10_ratio"
    try:
        content = _with_floats(json.loads(path.read_text(encoding="utf-8")))
        if not content[needed]:
            raise ValueError
    except (OSError, ValueError, LookupError, TypeError):
        return None, f"{path} is damaged; `hero {name} {run.name}` writes it anew."
    return content, None


def _with_floats(value: Any) -> Any:
    """What `write_json` wrote, with its infinities and NaN as numbers again."""
    if isinstance(value, dict):
        return {key: _with_floats(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_with_floats(v) for v in value]
    return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}.get(value, value) if isinstance(value, str) else value
