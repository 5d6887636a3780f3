"""Scores of what hero did not train: a file of predictions against a file of truth, or anybody's function on data.

score_files(Path("mine.h5"), Path("truth.h5")).score.metrics["gm100"]
score_model("my.module:step", {"data.path": "flow.h5"}, Path("data"))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from hero.config.registry import import_part, trust
from hero.console import progress_bar
from hero.data.files.recording import Recording, Trajectory
from hero.data.files.selection import matched_channels
from hero.data.formats import open_recording
from hero.errors import HeroError, reason_of
from hero.evaluation.measure import RolloutErrors, StreamedErrors, check_split, measure
from hero.method.norm import Norm
from hero.method.rollout import Stepper, as_stepper
from hero.records import Record
from hero.runs.config import make_config
from hero.runs.folder import choose_device, load_data
from hero.strategies.base import norm_of

BLOCK_VALUES = 2**22
"""Numbers of a trajectory that are read at once."""
SAME = 1e-6
"""Relative difference of a state that was given and stored in another precision."""


class Score(Record):
    """How good a prediction is: the numbers of `metrics.summarise` over the steps that there are."""

    prediction: str
    """The file, or the model."""
    truth: str
    """The file, or the data."""
    trajectories: int
    steps: int
    horizon: int
    metrics: dict[str, float]
    score: tuple[float, ...]
    """The measure of the metrics, mean over trajectories at each step."""
    channels: dict[str, dict[str, float]] = Field(default_factory=dict)
    baselines: dict[str, dict[str, float]] = Field(default_factory=dict)


@dataclass(frozen=True)
class Scored:
    """A score, and the values (trajectory, step) of each measure."""

    score: Score
    errors: dict[str, Tensor]

    @classmethod
    def of(cls, prediction: str, truth: str, found: RolloutErrors, names: Sequence[str]) -> Scored:
        """The score of what was measured."""
        trajectories, steps = found.score.shape
        score = Score(
            prediction=prediction,
            truth=truth,
            trajectories=trajectories,
            steps=steps,
            horizon=found.scoring.steps,
            metrics=found.summary,
            score=tuple(found.score.mean(dim=0).tolist()),
            channels=found.channels(names),
            baselines=found.baselines,
        )
        return cls(score, found.errors)


def score_files(prediction: Path, truth: Path, offset: int | None = None, layout: str = "") -> Scored:
    """Score one recording against another on the same grid; channels by name where both have names.

    `offset` is the place in the truth of the first predicted state. By default a prediction that has one state less
    than the truth begins at step 1; one of the same length has its first state left out if it is the given one.
    `layout` names the axes of bare arrays.
    """
    made, true = open_recording(prediction, layout), open_recording(truth, layout)
    if made.space != true.space:
        sizes = (" x ".join(map(str, recording.space)) for recording in (made, true))
        raise _differ("{} has states on {} points and {} on {}; resample one of them.", made, true, *sizes)
    if len(made.trajectories) != len(true.trajectories):
        counts = len(made.trajectories), len(true.trajectories)
        raise _differ("{} has {} trajectories and {} has {}; give the same ones.", made, true, *counts)
    names = [channel.name for channel in true.channels]
    order = matched_channels(made, names, made.files[0], str(true.files[0]))
    channels = [[channel.name for channel in made.channels].index(name) for name in order]
    pairs = list(zip(made.trajectories, true.trajectories, strict=True))
    skipped, offset = _alignment(made, true, offset, channels)
    steps = min(min(a.frames - skipped, b.frames - offset) for a, b in pairs)
    rows, still = [], []
    with progress_bar("scoring", len(pairs)) as advance:
        for one, other in pairs:
            rows.append(_errors(one, other, channels, skipped, offset, steps))
            if offset:  # the state before the first prediction, kept
                still.append(
                    _errors(_standing(other, offset - 1, steps), other, range(len(channels)), 0, offset, steps)
                )
            advance()
    errors = {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
    idle = {"persistence": {name: torch.cat([row[name] for row in still]) for name in still[0]}} if still else {}
    return Scored.of(str(prediction), str(truth), RolloutErrors.of(errors, idle), names)


def _standing(trajectory: Trajectory, frame: int, steps: int) -> Trajectory:
    """The trajectory that stays at one of its states."""

    def read(frames: slice, channels: Sequence[int]) -> np.ndarray:
        state = trajectory.read(slice(frame, frame + 1), channels)
        return np.repeat(state, len(range(*frames.indices(steps))), axis=0)

    return Trajectory(steps, read)


def _differ(sentence: str, made: Recording, true: Recording, ours: object, theirs: object) -> HeroError:
    return HeroError(sentence.format(made.files[0], ours, true.files[0], theirs))


def _alignment(made: Recording, true: Recording, offset: int | None, channels: list[int]) -> tuple[int, int]:
    """(states of the prediction that are left out, states of the truth before its first one that counts)."""
    lengths = {(a.frames, b.frames) for a, b in zip(made.trajectories, true.trajectories, strict=True)}
    if offset is not None:
        if not 0 <= offset < min(b for _, b in lengths):
            raise HeroError(f"`offset` {offset} is not a state of {true.files[0]}; count them from 0.")
        return 0, offset
    if all(b - a == 1 for a, b in lengths):
        return 0, 1
    if not all(a == b for a, b in lengths):
        a, b = next((a, b) for a, b in lengths if a != b)
        raise HeroError(
            f"{made.files[0]} has {a} states and {true.files[0]} has {b}; say with `offset` which state of the truth "
            "the first prediction is."
        )
    given = all(
        _is_same(a.read(slice(0, 1), channels), b.read(slice(0, 1), range(len(channels))))
        for a, b in zip(made.trajectories, true.trajectories, strict=True)
    )
    if given and min(a for a, _ in lengths) < 2:
        raise HeroError(f"{made.files[0]} holds the given state alone; there is nothing to score.")
    return int(given), int(given)


def _is_same(a: np.ndarray, b: np.ndarray) -> bool:
    first, second = a.astype(np.float64), b.astype(np.float64)
    return bool(np.allclose(first, second, rtol=0, atol=SAME * float(np.nanmax(np.abs(second))), equal_nan=True))


def _errors(
    made: Trajectory, true: Trajectory, channels: Sequence[int], skipped: int, offset: int, steps: int
) -> dict[str, Tensor]:
    """The measures (1, steps) of one trajectory, read in blocks.

    Points that are NaN in the truth from the start are a mask and count in neither.
    """
    every = range(len(channels))
    outside = np.isnan(true.read(slice(offset, offset + 1), every)[0])
    errors = StreamedErrors(Norm(mask=torch.from_numpy(~outside) if outside.any() else None, by_channel=True))
    block = max(1, BLOCK_VALUES // outside.size)
    for first in range(0, steps, block):
        stop = min(first + block, steps)
        parts = (
            made.read(slice(skipped + first, skipped + stop), channels),
            true.read(slice(offset + first, offset + stop), every),
        )
        errors.add(*(torch.from_numpy(part.astype(np.float64))[None] for part in parts))
    return errors.values


def score_model(
    name: str,
    data: Mapping[str, Any],
    data_dir: Path,
    steps: int | None = None,
    history: int = 1,
    split: str = "test",
) -> Scored:
    """Score `package.module:name` on a split of `data`, settings such as {"data.path": "flow.h5"} or task.name.

    The name is a function or a class of nn.Module without arguments; it maps (batch, history * channel + p, *space),
    the conditioning last, to the next state (batch, channel, *space). Naming it runs its code.
    """
    check_split(split)
    step, device = named_model(name)
    settings = {"strategy": "one_step", "train.unroll": 1, "train.history": history, **data}
    config = make_config(overrides=settings)
    truth = load_data(config, split, data_dir, device)
    norm, source = norm_of(config.source, config.train), config.source
    norm.fit(load_data(config, "train", data_dir, device))
    longest = truth.shape[1] - history
    if steps is not None and not 1 <= steps <= longest:
        raise HeroError(f"`steps` {steps} is not within the {longest} that the split {split} has; use 1 to {longest}.")
    step = explained(step, name)
    found = measure(step, truth, norm, device, history, steps=steps, title=f"scoring {name}")
    return Scored.of(name, source.title, found, source.channel_names)


def named_model(name: str) -> tuple[Stepper, torch.device]:
    """The function or module that the user typed; modules are moved to an accelerator if there is one."""
    if ":" not in name:
        raise HeroError(f"`model` {name!r} is not a function; write it as package.module:name.")
    trust(name)
    found = import_part("model", name)
    if isinstance(found, type):
        try:
            found = found()
        except Exception as error:  # whatever a constructor raises
            raise HeroError(
                f"{name} cannot be made without arguments ({reason_of(error)}); name a function that makes one step."
            ) from error
    if isinstance(found, nn.Module):
        device = choose_device("auto")
        return as_stepper(found.to(device).eval()), device
    if not callable(found):
        raise HeroError(f"{name} is {type(found).__name__}, which cannot be called; name a function or an nn.Module.")
    return lambda context: found(context.inputs()), torch.device("cpu")


def explained(step: Stepper, name: str) -> Stepper:
    """`step` whose errors and wrong outputs are told in one sentence."""

    def checked(context: Any) -> Tensor:
        shape = tuple(context.inputs().shape)
        wanted = (len(context.states), *context.states.shape[2:])
        try:
            made = step(context)
        except Exception as error:  # whatever the function raises
            raise HeroError(
                f"{name} fails on states of shape {shape} ({reason_of(error)}); it maps them to {wanted}."
            ) from error
        if not isinstance(made, Tensor) or tuple(made.shape) != wanted:
            found = tuple(made.shape) if isinstance(made, Tensor) else type(made).__name__
            raise HeroError(f"{name} maps states of shape {shape} to {found}, not to {wanted}; return the next state.")
        return made

    return checked
