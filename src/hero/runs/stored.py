"""A run folder without torch: its log, metrics, errors and state. `hero runs` reads a thousand of them in a moment.

`hero.runs.folder.Run` adds the configuration and the trained operator.
"""

from __future__ import annotations

from pathlib import Path

from hero.config.parse import read_toml
from hero.errors import HeroError
from hero.files import file_hash, is_whole
from hero.runs.log import Log
from hero.runs.records import Before, Errors, Metrics

CONFIG = "config.toml"  # the file that makes a folder the folder of a run


class StoredRun:
    """The files of a run, which are read when they are asked for; no other module spells their names."""

    def __init__(self, path: Path) -> None:
        self.path = path = Path(path)
        self.name = path.name  # the id
        self.config_file = path / CONFIG
        self.log_file = path / "log.jsonl"
        self.weights_file = path / "model.safetensors"
        self.state_file = path / "last" / "state.pt"
        self.statistics_file = path / "statistics.npz"
        self.metrics_file = path / "metrics.json"
        self.errors_file = path / "errors.npz"
        self.before_file = path / "before.json"
        self.before_errors_file = path / "before_errors.npz"

    @property
    def updates(self) -> int:
        """The updates that its configuration asks for."""
        found = read_toml(self.config_file).get("train.steps")
        if not is_whole(self.config_file):  # damaged or edited: its id tells, which takes torch
            from hero.runs.config import stored_config

            return stored_config(self.config_file).train.steps
        if type(found) is not int:
            raise HeroError(f"{self.config_file} is damaged (it has no train.steps); train the run again.")
        return found

    def kept_file(self, step: int) -> Path:
        """The checkpoint of `train.keep_every` after `step` updates."""
        return self.path / "checkpoints" / f"step-{step:06d}.safetensors"

    @property
    def kept_steps(self) -> list[int]:
        names = (path.stem.removeprefix("step-") for path in (self.path / "checkpoints").glob("step-*.safetensors"))
        return sorted(int(name) for name in names if name.isdecimal())

    @property
    def log(self) -> Log:
        return Log.read(self.log_file)

    @property
    def stored_metrics(self) -> Metrics | None:
        """Metrics of the run, perhaps measured before its training ended or on other weights; None without any."""
        return Metrics.read(self.metrics_file) if self.metrics_file.is_file() else None

    @property
    def metrics(self) -> Metrics | None:
        """The metrics of the finished run and of the weights that it has now, None before."""
        found = self.stored_metrics
        return found if found and self.outdated(found) is None else None

    def outdated(self, metrics: Metrics) -> str | None:
        """Why `metrics` are not the results of the finished run; None if they are."""
        training, updates = metrics.training, self.updates
        if training.steps != updates and not training.stopped_early:
            return f"run {self.name} was measured at step {training.steps} of {updates}"
        weights = self.weights_file
        if not weights.is_file() or metrics.weights == file_hash(weights):  # without weights nothing contradicts them
            return None
        return f"run {self.name} was measured with other weights than it has now"

    @property
    def before(self) -> Before | None:
        """The checkpoint that it was fine-tuned from, as it was measured; None for other runs."""
        return Before.read(self.before_file) if self.before_file.is_file() else None

    @property
    def before_errors(self) -> Errors:
        return Errors.read(self.before_errors_file, f"delete {self.before_file} and repeat `hero finetune`.")

    @property
    def errors(self) -> Errors:
        return Errors.read(self.errors_file)

    @property
    def status(self) -> str:
        """ "finished", "not evaluated", or how far training is."""
        if not self.config_file.is_file():
            return "not run"
        if self.metrics is not None:
            return "finished"
        log, updates = self.log, self.updates
        # The last update is validated before it is saved: without that, it will be repeated.
        trained = log.stopped_early or any(record.step >= updates for record in log.validation)
        return "not evaluated" if trained else f"at step {log.steps} of {updates}"


def is_run(path: Path) -> bool:
    return (path / CONFIG).is_file()


def find_run(name: str, runs_dir: Path) -> Path:
    """A run folder by path, by id, or by an unambiguous part of its id."""
    for path in (Path(name), runs_dir / name):
        if is_run(path):
            return path
    runs = list_runs(runs_dir)
    matches = [path for path in runs if name in path.name]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise HeroError(
            f"{name!r} fits {len(matches)} runs ({', '.join(p.name for p in matches[:4])}); use more of the id."
        )
    raise HeroError(f"there is no run {name!r} in {runs_dir}; `hero runs` lists the runs.")


def list_runs(runs_dir: Path) -> list[Path]:
    """All run folders, oldest first."""
    found = [path.parent for path in runs_dir.glob(f"*/{CONFIG}")]
    return sorted(found, key=lambda path: ((path / CONFIG).stat().st_mtime, path.name))
