"""The configuration of a run that fine-tunes a checkpoint: what it inherits, and defaults for a short training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hero.config import read_toml
from hero.config.settings import flagged, words
from hero.errors import HeroError
from hero.optimizers import get_optimizer
from hero.parts import PRESETS
from hero.runs.config import RunConfig, build, merge_settings
from hero.runs.stored import StoredRun, is_run
from hero.strategies.settings import TrainSettings, stage_lengths

STEPS = 2000
WARMUP = 0.05  # share of the updates
LR_SHARE = 0.1  # share of the optimizer's default learning rate: large updates would undo what the weights know


def finetune_config(
    checkpoint: Path,
    overrides: Mapping[str, Any] | Iterable[str] = (),
    preset: str = "paper",
    file: Path | None = None,
) -> RunConfig:
    """Settings as in `make_config`, then settings of the run `checkpoint`, then the defaults of fine-tuning.

    A run hands on its data, backbone and seed. The data and the backbone of a file of weights must be named; its
    module is taken to map states as they are, so normalisation and residual prediction are off unless they are set.
    """
    of_preset = {key: value for key, value in PRESETS[preset].items() if not key.startswith("backbone.")}
    given = {**of_preset, **merge_settings("paper", file, overrides)}
    if is_run(checkpoint):
        run = read_toml(StoredRun(checkpoint).config_file)
        size = given.get("backbone.size")
        if size is not None and size != run.get("backbone.size"):
            raise HeroError(
                f"backbone.size={size} is for new networks, and these weights have their shape; leave it out."
            )
        sections = set() if given.keys() & {"data.path", "task.name"} else {"task", "data"}
        if given.get("backbone.name", run.get("backbone.name")) == run.get("backbone.name"):
            sections.add("backbone")
        kept = {"seed", *(f"train.{name}" for name in flagged(TrainSettings, "inherited"))}
        inherited = {key: value for key, value in run.items() if key in kept or key.partition(".")[0] in sections}
    else:
        if "backbone.name" not in given:
            raise HeroError(
                f"{checkpoint} holds weights without their module; name it with `backbone`, as package.module:Class."
            )
        if not given.keys() & {"data.path", "task.name"}:
            raise HeroError(f"{checkpoint} holds weights without data; name a benchmark or a file with `data`.")
        inherited = {"train.normalise": False}
    return build({**defaults(given), **inherited, **given, "train.init": str(checkpoint), "train.init_hash": ""})


def defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """A short schedule with a low learning rate, as far as `given` does not say otherwise."""
    stages = stage_lengths(words(given.get("train.stages", ())))
    steps = sum(updates for _, updates in stages) or given.get("train.steps", STEPS)
    found: dict[str, Any] = {} if stages else {"train.steps": steps}
    if isinstance(steps, int | float):
        found["train.warmup"] = max(1, round(WARMUP * steps))
    return {**found, "train.lr": LR_SHARE * get_optimizer(str(given.get("train.optimizer", "adamw"))).lr}
