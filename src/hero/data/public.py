"""The sources of data by name, and what the rest of hero needs of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from hero.config.registry import Registry
from hero.data.files.settings import FOUND, FileSettings
from hero.data.files.trajectories import Files
from hero.data.source import Source
from hero.data.tasks.store import SCORED, SPLITS, DataSettings, Split, data_summary, generate, load_split, split_path
from hero.data.tasks.task import Task
from hero.data.trajectories import Trajectories
from hero.parts import TASKS as ALL_TASKS

__all__ = [
    "FOUND",
    "SCORED",
    "SPLITS",
    "TASKS",
    "DataSettings",
    "FileSettings",
    "Files",
    "Source",
    "Split",
    "Task",
    "data_summary",
    "generate",
    "get_task",
    "load_split",
    "load_trajectories",
    "split_path",
]

TASKS: Registry[Task] = ALL_TASKS
"""Every task with its default settings."""


def get_task(name: str, overrides: Mapping[str, object] | None = None) -> Task:
    """The task of that name, with some of its settings changed."""
    return TASKS[name].with_settings(overrides or {})


def load_trajectories(
    source: Source, split: Split, directory: Path, device: torch.device | str = "cpu"
) -> Trajectories:
    """A split of any source: read from its files, or solved on `device` and stored in `directory` if it is missing."""
    if source.files is not None:
        return source.files.load(split.name)
    assert source.task is not None
    mu = source.task.coefficients(split.trajectories, split.seed)
    return Trajectories(load_split(source.task, split, directory, device), None if mu is None else mu.float())
