"""A run folder, opened once: `Run(path)` has its configuration, log, metrics, errors, rollout and trained operator."""

from __future__ import annotations

import importlib.metadata
import platform
from functools import cached_property
from pathlib import Path

import torch
from torch import nn

from hero.data import Task, load_trajectories, split_path
from hero.data.windows import Trajectories
from hero.errors import HeroError
from hero.method.rollout import Stepper
from hero.runs.checkpoint import file_hash, load_state, load_weights, read_weights
from hero.runs.config import RunConfig, make_config
from hero.runs.records import Before, Errors, Log, Metrics
from hero.runs.rollouts import Rollout, read_rollout


class Run:
    """The folder of a run. Files are read when they are asked for."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    @property
    def name(self) -> str:
        """The id, which is the name of the folder."""
        return self.path.name

    @cached_property
    def config(self) -> RunConfig:
        """Its configuration."""
        path = self.path / "config.toml"
        if not path.is_file():
            raise HeroError(f"{self.path} is not a run folder (it has no config.toml); `hero runs` lists the runs.")
        return make_config(file=path)

    @property
    def log(self) -> Log:
        """Its log so far."""
        return Log.read(self.path / "log.jsonl")

    @property
    def stored_metrics(self) -> Metrics | None:
        """Its metrics, perhaps measured before the training ended or on other weights; None if there are none."""
        path = self.path / "metrics.json"
        return Metrics.read(path) if path.is_file() else None

    @property
    def metrics(self) -> Metrics | None:
        """The metrics of the finished run and of the weights that it has now, None before."""
        found = self.stored_metrics
        return found if found and self.outdated(found) is None else None

    def outdated(self, metrics: Metrics) -> str | None:
        """Why `metrics` are not the results of the finished run; None if they are."""
        training, updates = metrics.training, self.config.train.steps
        if training.steps != updates and not training.stopped_early:
            return f"run {self.name} was measured at step {training.steps} of {updates}"
        weights = self.path / "model.safetensors"
        if not weights.is_file():  # results without weights: nothing contradicts them
            return None
        if metrics.weights is None:  # as earlier versions wrote it
            measured = (self.path / "metrics.json").stat().st_mtime_ns >= weights.stat().st_mtime_ns
        else:
            measured = metrics.weights == file_hash(weights)
        return None if measured else f"run {self.name} was measured with other weights than it has now"

    @property
    def before(self) -> Before | None:
        """The checkpoint that it was fine-tuned from, as it was measured; None for other runs."""
        path = self.path / "before.json"
        return Before.read(path) if path.is_file() else None

    @property
    def before_errors(self) -> Errors:
        """Errors of that checkpoint."""
        try:
            return Errors.read(self.path / "before_errors.npz")
        except HeroError:
            path = self.path / "before.json"
            raise HeroError(f"the errors next to {path} are damaged; delete it and repeat `hero finetune`.") from None

    @property
    def errors(self) -> Errors:
        """Errors per test trajectory and step."""
        return Errors.read(self.path / "errors.npz")

    @property
    def rollout(self) -> Rollout | None:
        """The rollout that pictures show; None if the run has not been evaluated."""
        return read_rollout(self.path)

    @property
    def status(self) -> str:
        """ "finished", "not evaluated", or how far training is."""
        if not (self.path / "config.toml").is_file():
            return "not run"
        if self.metrics is not None:
            return "finished"
        log, updates = self.log, self.config.train.steps
        # The last update is validated before it is saved: without that, it will be repeated.
        trained = log.stopped_early or any(record.step >= updates for record in log.validation)
        return "not evaluated" if trained else f"at step {log.steps} of {updates}"

    @property
    def resumes_at(self) -> int | None:
        """The update of the last checkpoint, where training would continue; None without a readable one."""
        path = self.path / "last" / "state.pt"
        try:
            return int(load_state(path)["step"]) if path.is_file() else None
        except HeroError:  # no hindrance to anything but resuming, which says so
            return None

    @property
    def best_step(self) -> int:
        """The update of the best weights."""
        return int(read_weights(self.path / "model.safetensors")[1]["step"])

    def operator(self, device: torch.device | str | None = None) -> nn.Module:
        """G_θ with the best weights, in evaluation mode, on `device` or the one that the configuration names."""
        model = self.config.build_operator()
        load_weights(self.path / "model.safetensors", model)
        return model.to(device or choose_device(self.config.train.device)).eval()

    def stepper(self, model: nn.Module) -> Stepper:
        """How the trained operator `model` makes one step."""
        return self.config.make_strategy().stepper(model)


def find_run(name: str, runs_dir: Path) -> Path:
    """A run folder by path, by id, or by an unambiguous part of its id."""
    for path in (Path(name), runs_dir / name):
        if (path / "config.toml").is_file():
            return path
    matches = [path for path in list_runs(runs_dir) if name in path.name]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise HeroError(
            f"{name!r} fits {len(matches)} runs ({', '.join(p.name for p in matches[:4])}); use more of the id."
        )
    raise HeroError(f"there is no run {name!r} in {runs_dir}; `hero runs` lists the runs.")


def list_runs(runs_dir: Path) -> list[Path]:
    """All run folders, oldest first."""
    found = [path.parent for path in runs_dir.glob("*/config.toml")]
    return sorted(found, key=lambda path: (path / "config.toml").stat().st_mtime)


def load_data(config: RunConfig, name: str, data_dir: Path, device: torch.device | str) -> Trajectories:
    """The split `train`, `val` or `test` of a run, on the CPU; HeroError if it holds NaN or infinity.

    Data from files are checked as they are read.
    """
    source, split = config.make_source(), config.split(name)
    solve_on = "cpu" if torch.device(device).type == "mps" else device  # the solver needs float64
    data = load_trajectories(source, split, data_dir, solve_on)
    if isinstance(source, Task):
        for number, part in enumerate(data.parts(1)):
            bad = ~part.states.isfinite().flatten(2).all(dim=2)
            if bool(bad.any()):
                raise HeroError(
                    f"{split_path(source, split, data_dir)} has NaN or infinite values (first in trajectory {number}, "
                    f"step {int(bad.nonzero()[0, 1])}); delete it and repeat the command to solve it again."
                )
    return data


def choose_device(name: str) -> torch.device:
    """The device called `name`; `auto` takes an accelerator (CUDA, Apple's MPS, Intel's XPU) if there is one."""
    if name == "auto":
        return torch.device(next((kind for kind in ("cuda", "mps", "xpu") if is_available(kind)), "cpu"))
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise HeroError(f"train.device={name!r} is not available here; use auto or cpu.") from None
    return device


def is_available(kind: str) -> bool:
    """Whether this machine has an accelerator of that kind."""
    module = torch.backends.mps if kind == "mps" else getattr(torch, kind, None)
    return module is not None and bool(module.is_available())


def versions() -> dict[str, str]:
    """The software that produced a result."""
    packages = {name: importlib.metadata.version(name) for name in ("hero", "torch", "numpy")}
    return packages | {"python": platform.python_version(), "platform": platform.platform()}
