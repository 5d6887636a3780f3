"""Scores of what hero did not train: a file of predictions against a file of truth, or anybody's function on data.

score, errors = score_files(Path("mine.h5"), Path("truth.h5"))
score, errors = score_model("my.module:step", {"data.path": "flow.h5"}, Path("data"))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from hero.config.registry import import_part, trust
from hero.console import progress_bar
from hero.data import Source
from hero.data.files.checks import sample, without_stand_ins
from hero.data.files.recording import Recording, Trajectory
from hero.data.files.selection import matched_channels, selected
from hero.data.files.settings import FileSettings
from hero.data.formats import open_recording
from hero.data.trajectories import Context, Trajectories
from hero.errors import HeroError, reason_of, shown
from hero.evaluation.check import evaluating
from hero.evaluation.measure import RolloutErrors, StreamedErrors, check_split, measure
from hero.method.norm import Norm
from hero.method.rollout import Stepper
from hero.records import Record
from hero.runs.config import make_config
from hero.runs.folder import choose_device, load_data
from hero.strategies.base import norm_of

BLOCK_VALUES = 2**22  # numbers of a trajectory that are read at once
SAME = 1e-6  # relative difference of a state that was given and stored in another precision


class Score(Record):
    """How good a prediction is: the numbers of `metrics.summarise` over the steps that there are."""

    prediction: str  # the file, or the model
    truth: str  # the file, or the data
    trajectories: int
    steps: int
    horizon: int
    metrics: dict[str, float]
    score: tuple[float, ...]  # the measure of the metrics, mean over trajectories at each step
    channels: dict[str, dict[str, float]] = Field(default_factory=dict)
    baselines: dict[str, dict[str, float]] = Field(default_factory=dict)


Scored = tuple[Score, dict[str, Tensor]]  # a score, and the values (trajectory, step) of each measure


def scored(prediction: str, truth: str, found: RolloutErrors, names: Sequence[str]) -> Scored:
    """The score of what was measured."""
    curve = tuple(found.score.mean(dim=0).tolist())
    channels = found.channels(names)
    return Score(prediction=prediction, truth=truth, score=curve, channels=channels, **found.numbers), found.errors


def score_files(prediction: Path, truth: Path, offset: int | None = None, layout: str = "") -> Scored:
    """Score one recording against another on the same grid; channels by name where both have names.

    `offset` is the place in the truth of the first predicted state. By default a prediction that has one state less
    than the truth begins at step 1; one of the same length has its first state left out if it is the given one.
    `layout` names the axes of bare arrays.
    """
    made, true = (
        without_stand_ins(found, [part.values for part in sample(found)])[0]
        for found in (open_recording(prediction, layout), open_recording(truth, layout))
    )
    for what, ours, theirs, remedy in (
        ("points", made.space, true.space, "resample one of them"),
        ("trajectories", (len(made.trajectories),), (len(true.trajectories),), "give the same ones"),
    ):
        if ours != theirs:
            sizes = (f"{path} has {' x '.join(map(str, n))}" for path, n in ((prediction, ours), (truth, theirs)))
            raise HeroError(f"{' and '.join(sizes)} {what}; {remedy}.")
    names = [channel.name for channel in true.channels]
    fields = matched_channels(made, names, prediction, str(truth))
    made = selected(made, FileSettings(path=str(prediction), fields=fields))
    pairs = list(zip(made.trajectories, true.trajectories, strict=True))
    skipped, offset = _alignment(made, true, offset)
    steps = min(min(a.frames - skipped, b.frames - offset) for a, b in pairs)
    rows = []
    with progress_bar("scoring", len(pairs)) as advance:
        for one, other in pairs:
            rows.append(_errors(one, other, range(len(names)), skipped, offset, steps))
            advance()
    columns = zip(*rows, strict=True)
    errors, idle = ({name: torch.cat([one[name] for one in some]) for name in some[0]} for some in columns)
    return scored(str(prediction), str(truth), RolloutErrors.of(errors, {"persistence": idle} if offset else {}), names)


def _alignment(made: Recording, true: Recording, offset: int | None) -> tuple[int, int]:
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
    channels = range(len(true.channels))

    def is_given(one: Trajectory, other: Trajectory) -> bool:
        first, second = (part.read(slice(0, 1), channels).astype(np.float64) for part in (one, other))
        return np.allclose(first, second, rtol=0, atol=SAME * float(np.nanmax(np.abs(second))), equal_nan=True)

    given = all(map(is_given, made.trajectories, true.trajectories))
    if given and min(a for a, _ in lengths) < 2:
        raise HeroError(f"{made.files[0]} holds the given state alone; there is nothing to score.")
    return int(given), int(given)


def _errors(
    made: Trajectory, true: Trajectory, channels: Sequence[int], skipped: int, offset: int, steps: int
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The measures (1, steps) of one trajectory, read in blocks, and of the state before it, kept, if there is one.

    Points that are NaN in the truth from the start are a mask and count in neither.
    """

    def read(one: Trajectory, first: int, stop: int) -> Tensor:
        return torch.from_numpy(one.read(slice(first, stop), channels).astype(np.float64))[None]

    inside = ~read(true, offset, offset + 1)[0, 0].isnan()
    norm = Norm(mask=None if bool(inside.all()) else inside, by_channel=True)
    errors, idle = StreamedErrors(norm), StreamedErrors(norm)
    block = max(1, BLOCK_VALUES // inside.numel())
    for first in range(0, steps, block):
        stop = min(first + block, steps)
        truth = read(true, offset + first, offset + stop)
        errors.add(read(made, skipped + first, skipped + stop), truth)
        if offset:
            idle.add(read(true, offset - 1, offset).expand_as(truth), truth)
    return errors.values, idle.values


def opened_data(
    data: Mapping[str, Any], split: str, data_dir: Path, device: torch.device | str = "cpu", history: int = 1
) -> tuple[Trajectories, Norm, Source]:
    """A split of files or of a benchmark, its norm with the statistics of the training split, and what is known."""
    settings = {"strategy": "one_step", "train.unroll": 1, "train.history": history, **data}
    config = make_config(overrides=settings)
    norm = norm_of(config.source, config.train)
    norm.fit(load_data(config, "train", data_dir, device))
    return load_data(config, split, data_dir, device), norm, config.source


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
    model = named_model(name)
    with evaluating(model) as device:
        truth, norm, source = opened_data(data, split, data_dir, device, history)
        longest = truth.shape[1] - history
        if steps is not None and not 1 <= steps <= longest:
            raise HeroError(f"`steps` {steps} is not within the {longest} of the split {split}; use 1 to {longest}.")
        found = measure(step_of(model, name), truth, norm, device, history, steps=steps, title=f"scoring {name}")
    return scored(name, source.title, found, source.channel_names)


def named_model(name: str) -> Callable[[Tensor], Any]:
    """The function or module that the user typed; modules are moved to an accelerator if there is one."""
    trust(name)
    found = import_part("model", name)
    if isinstance(found, type):
        try:
            found = found()
        except Exception as error:  # whatever a constructor raises
            raise HeroError(
                f"{name} cannot be made without arguments ({reason_of(error)}); name a function that makes one step."
            ) from error
    return found.to(choose_device("auto")) if isinstance(found, nn.Module) else found


def step_of(model: Callable[[Tensor], Any], name: str) -> Stepper:
    """Somebody's function as a step; where it fails or returns no state, that is told in one sentence."""

    def step(context: Context) -> Tensor:
        inputs = context.inputs()
        wanted = (len(inputs), *context.states.shape[2:])
        try:
            made = model(inputs)
        except Exception as error:  # whatever the function raises
            raise HeroError(
                f"{name} fails on states of shape {tuple(inputs.shape)} ({reason_of(error)}); it maps them to {wanted}."
            ) from error
        if not isinstance(made, Tensor) or made.shape[2:] != inputs.shape[2:]:
            raise HeroError(f"{name} returns {shown(made)} and not the next state, a tensor of shape {wanted}.")
        return made

    return step
