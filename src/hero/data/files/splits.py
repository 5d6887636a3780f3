"""Which states of which trajectories are trained on, validated on and tested on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hero.data.files.checks import SPLIT_FRAMES, UnfitError, too_short
from hero.data.files.recording import Recording
from hero.data.tasks.store import SCORED, SPLITS
from hero.errors import HeroError

if TYPE_CHECKING:
    from hero.data.files.settings import FileSettings

LONGEST_ROLLOUT = 200
"""Steps of validation and test rollouts unless set; longer trajectories give several of them."""


@dataclass(frozen=True)
class Part:
    """Consecutive states of one trajectory; frames are counted after the stride."""

    trajectory: int
    first: int
    frames: int


def divided(recording: Recording, settings: FileSettings) -> dict[str, list[Part]]:
    """The parts of each split: the file's own splits where it has them, whole trajectories by share otherwise.

    Fewer than three trajectories are split in time. Validation and test trajectories are cut into rollouts.
    """
    frames = -(-min(t.frames for t in recording.trajectories) // settings.stride)
    for problem in too_short(recording, settings.stride):
        raise problem
    if settings.train_share + settings.val_share >= 1:
        raise HeroError(
            f"data.train_share={settings.train_share:g} and data.val_share={settings.val_share:g} leave nothing for "
            "the test set; lower one."
        )
    whole = whole_parts(recording, settings, frames)
    if settings.train_trajectories:
        whole["train"] = whole["train"][: settings.train_trajectories]
    shortest = min(part.frames for name in SCORED for part in whole[name]) - 1
    steps = settings.rollout or settings.test_steps or min(shortest, LONGEST_ROLLOUT)
    if steps > shortest:
        raise HeroError(f"data.rollout={steps} is longer than the {shortest} steps that there are; lower it.")
    return whole | {name: list(rollouts(whole[name], steps)) for name in SCORED}


def whole_parts(recording: Recording, settings: FileSettings, frames: int) -> dict[str, list[Part]]:
    """The trajectories, or parts in time, of each split."""
    labels = [trajectory.split for trajectory in recording.trajectories]
    count = len(labels)
    if count < 3 and not {"train", "test"} <= set(labels):
        cuts = [0, round(frames * settings.train_share)]
        cuts += [cuts[1] + round(frames * settings.val_share), frames]
        if min(np.diff(cuts)) < 2:
            states = (
                f"{count} {'trajectory' if count == 1 else 'trajectories'} of {frames} states, too few to split in time"
            )
            longer = "lower data.stride" if settings.stride > 1 else "name a file with more"
            remedy = f"at least {SPLIT_FRAMES} states or 3 trajectories are needed, so {longer}"
            raise UnfitError("split", settings.path, states, remedy)
        bounds = zip(SPLITS, cuts[:-1], cuts[1:], strict=True)
        return {name: [Part(i, a, b - a) for i in range(count)] for name, a, b in bounds}
    order = np.random.default_rng(settings.split_seed).permutation(count)
    groups: dict[str, list[int]] = {name: [i for i in range(count) if labels[i] == name] for name in SPLITS}
    free = [int(i) for i in order if labels[i] not in SPLITS]
    if not groups["train"]:
        groups["train"], free = free, []
    for name, share in (("test", 1 - settings.train_share - settings.val_share), ("val", settings.val_share)):
        if not groups[name]:
            taken = max(1, round(share * count))
            left = set(groups["train"])
            pool = [int(i) for i in order if i in left]
            groups[name], groups["train"] = sorted(pool[:taken]), sorted(pool[taken:])
    if not groups["train"]:
        labels_of = ", ".join(f"{labels.count(name)} for {name or 'any split'}" for name in dict.fromkeys(labels))
        text = f"{count} trajectories ({labels_of}) leave none to train on"
        raise UnfitError("split", settings.path, text, "add trajectories, or raise data.train_share")
    kept = [-(-trajectory.frames // settings.stride) for trajectory in recording.trajectories]
    shortest = {name: min(kept[i] for i in groups[name]) for name in SPLITS}
    return {name: [Part(i, 0, shortest[name]) for i in groups[name]] for name in SPLITS}


def rollouts(parts: Sequence[Part], steps: int) -> Iterator[Part]:
    """Each part cut into stretches of `steps` steps; the last state of one is the first of the next."""
    for part in parts:
        for start in range(0, part.frames - steps, steps):
            yield Part(part.trajectory, part.first + start, steps + 1)
