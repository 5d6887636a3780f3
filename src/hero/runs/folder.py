"""A run folder, opened once: `Run(path)` has its configuration, log, metrics, errors, rollout and trained operator."""

from __future__ import annotations

import importlib.metadata
import platform
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from hero.data import load_trajectories
from hero.data.trajectories import Trajectories
from hero.errors import DISTRIBUTION, HeroError
from hero.method.norm import Norm
from hero.method.rollout import Stepper
from hero.models.wrappers import Masked
from hero.ranks import RANKS
from hero.runs.checkpoint import last_state, read_weights
from hero.runs.config import RunConfig, stored_config
from hero.runs.records import FIRST_ROLLOUT_FILE, Rollout, read_arrays, read_rollout, write_arrays
from hero.runs.stored import StoredRun
from hero.strategies.base import norm_of


class Run(StoredRun):
    """The folder of a run. Files are read when they are asked for."""

    @cached_property
    def config(self) -> RunConfig:
        if not self.config_file.is_file():
            raise HeroError(f"{self.path} is not a run folder (it has no config.toml); `hero runs` lists the runs.")
        return stored_config(self.config_file)

    @property
    def rollout(self) -> Rollout | None:
        """The rollout that pictures show; None if the run has not been evaluated."""
        return read_rollout(self.path)

    @property
    def first_rollout(self) -> Rollout | None:
        """The rollout of the first test trajectory; None if the run has not been evaluated."""
        return read_rollout(self.path, FIRST_ROLLOUT_FILE)

    @property
    def resumes_at(self) -> int | None:
        """The update of the last checkpoint, where training would continue; None without a readable one."""
        try:
            state = last_state(self.state_file)[0]
        except HeroError:  # no hindrance to anything but resuming, which says so
            return None
        return int(state["step"]) if state else None

    @property
    def best_step(self) -> int:
        return int(read_weights(self.weights_file)[1]["step"])

    def operator(self, device: torch.device | str | None = None) -> nn.Module:
        """G_θ with the best weights, in evaluation mode, on `device` or the one that the configuration names."""
        if not self.config.backbone.is_found:
            raise HeroError(f"run {self.name} has not begun to train; repeat the command that started it.")
        model = self.config.trained_operator(self.weights_file)
        return model.to(device or choose_device(self.config.train.device)).eval()

    def norm(self, data_dir: Path, baselines: bool = False) -> Norm:
        """The norm of the run, with the mean state of its training data for `baselines`.

        Version 0.2 stored no statistics: they are computed from the training data where they are needed. The paper's
        norm has none.
        """
        source = self.config.source
        norm = norm_of(source, self.config.train)
        if not (baselines or norm.by_channel or source.masked):
            return norm
        try:
            norm.load(read_arrays(self.statistics_file))
        except (ValueError, KeyError):
            norm.fit(load_data(self.config, "train", data_dir, choose_device(self.config.train.device)))
            with suppress(OSError):  # a folder that may only be read
                write_arrays(self.statistics_file, norm.arrays())
        return norm

    @property
    def band(self) -> tuple[tuple[float, float], ...]:
        """The smallest and the largest value of each channel in its training data; empty in version 0.2."""
        try:
            stored = read_arrays(self.statistics_file)
            return tuple(zip(stored["low"].tolist(), stored["high"].tolist(), strict=True))
        except (ValueError, KeyError):
            return ()

    @property
    def mask(self) -> Tensor:
        """The mask of its data, (channel, *space), as the operator holds it."""
        return next(part.mask for part in self.operator("cpu").modules() if isinstance(part, Masked))

    def stepper(self, model: nn.Module) -> Stepper:
        return self.config.untrained_strategy.stepper(model)


def load_data(config: RunConfig, name: str, data_dir: Path, device: torch.device | str) -> Trajectories:
    """The split `train`, `val` or `test` of a run, on the CPU; a benchmark that is not stored is solved on `device`."""
    return load_trajectories(config.source, config.split(name), data_dir, with_float64(device))


def choose_device(name: str) -> torch.device:
    """The device called `name`; `auto` takes an accelerator (CUDA, Apple's MPS, Intel's XPU) if there is one.

    Of several processes on CUDA, each gets the one with its number on its machine.
    """
    try:
        if name == "auto":
            found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
            device = found or torch.device("cpu")
        elif (device := torch.device(name)).type == "meta" or float(torch.zeros(1, device=device)):  # without numbers
            raise RuntimeError
    except (RuntimeError, AssertionError, NotImplementedError, ValueError, ImportError):
        raise HeroError(f"train.device={name!r} is not available here; use auto or cpu.") from None
    if RANKS.count == 1 or device.type == "cpu":
        return device
    there = torch.cuda.device_count() if device.type == "cuda" and device.index is None else 0
    if RANKS.local >= there:
        raise HeroError(
            f"{RANKS.count} processes need CPUs or a CUDA device each, and {device} gives {there}; start fewer, or set "
            "train.device=cpu or cuda."
        )
    return torch.device("cuda", RANKS.local)


def with_float64(device: torch.device | str) -> torch.device:
    """`device`, or the CPU in the place of Apple's, which has no float64: solvers and spectra need it."""
    return torch.device("cpu") if torch.device(device).type == "mps" else torch.device(device)


def versions() -> dict[str, str]:
    names = {"hero": DISTRIBUTION, "torch": "torch", "numpy": "numpy"}
    packages = {name: importlib.metadata.version(package) for name, package in names.items()}
    return packages | {"python": platform.python_version(), "platform": platform.platform()}
