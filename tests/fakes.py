"""Records and folders of runs and studies that were never run, and readers of what is made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from hero.deploy.card import ModelCard
from hero.errors import DISTRIBUTION
from hero.files import write_atomic
from hero.method.measures import nrmse
from hero.report.figures.style import save
from hero.runs.checkpoint import save_weights
from hero.runs.config import RunConfig
from hero.runs.records import Errors, Metrics, TrainingCost, radial_spectra, write_rollout
from hero.study.records import (
    ROLLOUT_COLUMNS,
    Group,
    MethodRow,
    MetricColumn,
    PairedTest,
    Published,
    RunEntry,
    SeedCell,
    Status,
    StudyResult,
    Summary,
)

ERROR = (MetricColumn.of("nrmse@100"),)
TITLE = "Burgers, FNO"
GRIDS = {"burgers": (32,), "decaying_turbulence": (16, 16), "swift_hohenberg": (8, 8, 8)}


def fake_rollout(task: str = "burgers", steps: int = 200, diverged_at: int | None = None) -> list[torch.Tensor]:
    """Truth and prediction (time, channel, *space) with the first state: waves sin(x + y + ... − c t) of two speeds.

    A prediction that diverges is large before it is lost.
    """
    axes = torch.meshgrid(*(2 * torch.pi * torch.arange(n) / n for n in GRIDS[task]), indexing="ij")
    phase, times = torch.stack(axes).sum(dim=0), range(steps + 1)
    truth, prediction = (torch.stack([torch.sin(phase - c * t)[None] for t in times]) for c in (0.1, 0.11))
    if diverged_at is not None:
        prediction[diverged_at - 1] *= 1e30
        prediction[diverged_at:] = torch.nan
    return [truth, prediction]


def fake_errors(errors: np.ndarray) -> Errors:
    """The errors (trajectory, step) as an evaluation stores them."""
    return Errors({"nrmse": errors, "correlation": 1 / (1 + errors), "apebench_nrmse": errors}, errors)


def fake_run(
    folder: Path, config: RunConfig, truth: torch.Tensor, prediction: torch.Tensor, errors: np.ndarray | None = None
) -> Path:
    """A run folder with what an evaluation leaves for pictures; `errors` (trajectory, step) are of this rollout."""
    run = folder / config.run_id()
    write_atomic(run / "config.toml", config.to_toml().encode())
    found = nrmse(prediction[None, 1:], truth[None, 1:]).numpy() if errors is None else errors
    fake_errors(found).write(run / "errors.npz")
    write_rollout(run, truth[0], truth[1:], prediction[1:], trajectory=len(found) // 2)
    return run


def untrained(config: RunConfig, folder: Path) -> Path:
    """The folder of a run as training leaves it, with the initial weights."""
    run = folder / config.run_id()
    write_atomic(run / "config.toml", config.to_toml().encode())
    save_weights(run / "model.safetensors", config.build_operator().state_dict(), {"step": 0, "val_gm100": "inf"})
    return run


def value_and_gradient(loss: Callable[[torch.Tensor], torch.Tensor], tau: torch.Tensor) -> list[torch.Tensor]:
    tau = tau.clone().requires_grad_()
    value = loss(tau)
    return [value.detach(), torch.autograd.grad(value, tau)[0]]


def assert_same_function(
    model: torch.nn.Module, twin: Callable[[torch.Tensor], torch.Tensor], u: torch.Tensor, rtol: float
) -> None:
    """A network and its twin give the same values, and the same gradients by input and parameters."""
    cotangent, results = torch.randn_like(u), []
    for function in (model, twin):
        x = u.clone().requires_grad_()
        y = function(x)
        results.append([y, *torch.autograd.grad((y * cotangent).sum(), [x, *model.parameters()])])
    (ours, *our_gradients), (theirs, *their_gradients) = results
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(our_gradients, their_gradients, rtol=rtol, atol=1e-10)


def spectrum_of(state: np.ndarray) -> np.ndarray:
    """The spectrum of a state without channels and masks."""
    return radial_spectra(state[None, None], np.ones((1, *state.shape), dtype=bool))[0, 0]


def assert_drawn(figure: Figure, folder: Path) -> None:
    """A figure can be drawn and written: a PNG that is not empty, and nothing beside it."""
    path = save(figure, folder / "drawn" / "figure.png", dpi=50)
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert path.stat().st_size > 2000
    assert [file.name for file in path.parent.iterdir()] == [path.name]


class Parsed(HTMLParser):
    """HTML whose tags must be closed in order: its tags, resources, visible text, and the rows of its tables.

    Rows are without small print and headings of sections.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.resources: list[str] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.in_section = False
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "img", "br", "link", "input"):
            self.open.append(tag)
        self.resources += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag == "tr":
            self.in_section = ("class", "section") in attrs
            self.rows += [] if self.in_section else [[]]
        elif tag in ("td", "th") and not self.in_section:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if {"td", "th"} & set(self.open) and "small" not in self.open and not self.in_section:
            self.rows[-1][-1] += data.strip()


def fake_metrics(run: str, values: dict[str, Any], **facts: Any) -> Metrics:
    """The metrics of a run of HERO on Burgers with the same values on both splits; `facts` replace fields."""
    training = TrainingCost(steps=10_000, seconds=93.4, steps_per_second=107.1, compiled=True, device="cpu", threads=2)
    identity = {"task": "burgers", "backbone": "fno", "strategy": "hero", "seed": 0}
    numbers = {"parameters": 44801, "best_step": 9500, "trajectories": 30, "val": values, "test": values}
    return Metrics(**{"run": run, **identity, "training": training, "versions": {"torch": "2.9.0"}, **numbers, **facts})


def fake_card(config: RunConfig, run: str = "x", step: int = 0, **facts: Any) -> ModelCard:
    """The card of an operator of a benchmark; `facts` replace fields."""
    source, train = config.source, config.train
    shapes = {"grid": source.space, "dt": source.dt, "history": train.history, "channels": 1, "bundle": train.bundle}
    known = {"task": source.name, "settings": source.settings(), "channel_names": ("u",), "hero": version(DISTRIBUTION)}
    return ModelCard(**{"run": run, "step": step, "test": vars(config.split("test")), **shapes, **known, **facts})


def fake_row(
    label: str,
    values: Sequence[float] = (),
    columns: Sequence[MetricColumn] = ROLLOUT_COLUMNS,
    paper: Published | None = None,
    statuses: Sequence[Status] = (),
    runs: Sequence[str] = (),
    **facts: Any,
) -> MethodRow:
    """A row with these values, those of its finished runs, in every column."""
    found = statuses or ["finished"] * len(values)
    names = runs or [f"{label}-s{seed}" for seed in range(len(found))]
    entries = [
        RunEntry(seed=seed, run=name, status=status, reason="no memory" if status == "failed" else None)
        for seed, (name, status) in enumerate(zip(names, found, strict=True))
    ]
    cells = {column.key: SeedCell.of(values, paper) if values else None for column in columns}
    lost = sum(map(math.isinf, values))
    known = {"method": label, "strategy": label, "cells": cells, "runs": tuple(entries), "diverged": lost}
    return MethodRow(**{"label": label, **known, "rollouts": 30 if values else 0, **facts})


def fake_group(*rows: MethodRow, title: str = TITLE, **facts: Any) -> Group:
    return Group(**{"title": title, "task": "burgers", "backbone": "fno", "rows": rows, **facts})


def fake_test(label: str, baseline: str, group: str = TITLE, **facts: Any) -> PairedTest:
    """A paired test that leaves the question open."""
    found = {"method": label, "seeds": (0, 1), "ratio": 0.97531, "interval": (0.81234, 1.1), "diverged": 0,
             "baseline_diverged": 0, "t_p": 0.0321, "sign_flip_p": 0.5, "is_better": False, "p_holm": 0.5,
             "verdict": "open"}  # fmt: skip
    return PairedTest(**{"group": group, "label": label, "baseline": baseline, **found, **facts})


def fake_study(*groups: Group, tests: Sequence[PairedTest] = (), **facts: Any) -> StudyResult:
    """The result of a study; each of the `tests` is a summary of its own."""
    summaries = (Summary(metric="nrmse@100", baseline=one.baseline, direction="lower", tests=(one,)) for one in tests)
    known = {"study": "main", "title": "Main results", "folder": "study-main-1", "columns": ROLLOUT_COLUMNS}
    return StudyResult(**{**known, "groups": groups, "statistics": tuple(summaries), **facts})
