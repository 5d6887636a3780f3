"""What the training data decide of the operator: invariants that it keeps, and whether it predicts the change.

`backbone.keep=auto` and `backbone.residual=auto` are resolved here when training begins; the configuration then holds
what was found, so that the operator is built alike everywhere.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from hero.console import say
from hero.data import generate, split_path
from hero.data.files.checks import spread
from hero.data.invariants import Survey, survey
from hero.data.trajectories import Trajectories
from hero.models import BACKBONES
from hero.models.settings import asked_for
from hero.runs.config import RunConfig
from hero.runs.folder import load_data
from hero.strategies.base import norm_of

SURVEYED = 2**28  # bytes of trajectories that are read to find invariants; larger splits are sampled
FEW = 4  # trajectories that are solved to look at a benchmark whose data are not there yet


def find_structure(config: RunConfig, data: Trajectories) -> Survey:
    """Survey the training split, as much of it as `SURVEYED` allows."""
    norm = norm_of(config.source, config.train)
    norm.mask = data.mask
    weights = norm.point_weights(torch.ones(1, *data.shape[2:], dtype=torch.float64))
    count = min(len(data), max(8, SURVEYED // max(1, 4 * int(np.prod(data.shape[1:])))))
    trajectories = (data[row : row + 1].states[0].cpu().numpy() for row in spread(len(data), count))
    points = None if weights is None else weights.expand(data.shape[2:]).numpy()
    return survey(trajectories, config.source.channel_names, points)


def sample_data(config: RunConfig, data_dir: Path) -> Trajectories:
    """Training trajectories to look at: the split where it is stored or in files, else a few short ones solved now."""
    task, split = config.source.task, config.split("train")
    if task and not split_path(task, split, data_dir).is_file():
        few = replace(split, trajectories=min(FEW, split.trajectories))
        return Trajectories(generate(task, few))
    return load_data(config, "train", data_dir, "cpu")


def with_structure(config: RunConfig, data: Trajectories) -> RunConfig:
    """The configuration with everything decided that is left to the training data, which is said in a sentence each."""
    backbone = config.backbone
    if backbone.is_found:
        return config
    found = find_structure(config, data)
    kept = asked_for(backbone.keep) + (found.kept if "auto" in backbone.keep else ())
    if "limit" in backbone.keep:
        kept += found.limits(kept)
    auto = backbone.residual == "auto" and backbone.name in BACKBONES  # a module of the user's may add its input itself
    change = found.predicts_change if auto else backbone.predicts_change
    if "auto" in backbone.keep:
        say(*(f"keeps: {one.title} ({one.why})" for one in found.invariants if one.word in kept))
    if auto:
        target = "the change of the state" if change else "the state"
        say(f"predicts {target}: it changes by {100 * found.step_change:.2g} % per step")
    return replace(config, backbone=backbone.model_copy(update={"kept": kept, "predicts_change": change}))
