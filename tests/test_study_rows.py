"""Conformance of the studies: every row of every registered study makes updates, before and after the start of HERO.

A new study is tested by being registered; what the command makes of a study is in test_studies.py.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from conftest import TINY, tiny
from hero.strategies.hero import HeroSettings
from hero.study.cost.measure import DryRun
from hero.study.plans import STUDIES, plan


@pytest.mark.parametrize("name", STUDIES)
def test_every_row_trains(name: str, tmp_path: Path) -> None:
    study = STUDIES[name]
    # A row that burgers does not have is one of the turbulence.
    task = "burgers" if all(row.applies(tiny()) for row in study.rows) else "decaying_turbulence"
    chosen = {"tasks": [task], "backbones": ["fno"], "seeds": [0]}
    axes = {axis: value for axis, value in chosen.items() if axis in study.axes}
    planned = plan(name, overrides={**TINY, "task.warmup": 0}, **axes)
    rows = [row for group in planned.groups for row in group.rows]
    assert len(rows) == len(planned.groups) * len(study.rows)
    for row in rows:
        (config,) = row.configs
        dry_run = DryRun(config, tmp_path, torch.device("cpu"))
        dry_run.update(0, 0)
        dry_run.update(0, config.train.steps - 1)
        batch = dataclasses.replace(dry_run.windows(0), step=config.train.steps - 1)
        loss = dry_run.trainee.strategy.loss(dry_run.model, batch)
        assert torch.isfinite(loss.value), row.label
        # The relative term is logged wherever the strategy has one.
        relative = isinstance(config.method, HeroSettings) and config.method.lambda_max > 0
        assert ("alpha" in loss.statistics) == relative, row.label
