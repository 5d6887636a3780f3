"""Checks after reading, on fields whose boundary is known."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hero.data.files import checks
from hero.data.files.checks import UnfitError, tidy
from hero.data.files.recording import Axis, Channel, Recording, Trajectory
from hero.data.files.selection import selected
from hero.data.files.settings import FileSettings
from hero.errors import HeroError

ALL = slice(None)


def recording_of(
    trajectories: Sequence[np.ndarray],
    axes: Sequence[Axis] = (),
    splits: Sequence[str] = (),
    fields: np.ndarray | None = None,
) -> Recording:
    """Trajectories, each (time, channel, *space)."""

    def reader(array: np.ndarray) -> Callable[[slice, Sequence[int]], np.ndarray]:
        return lambda frames, channels: array[frames][:, list(channels)]

    space = trajectories[0].shape[2:]
    return Recording(
        format="test",
        files=(Path("file"),),
        channels=tuple(Channel(f"u{i}") for i in range(trajectories[0].shape[1])),
        axes=tuple(axes) or tuple(Axis("xyz"[i], np.arange(n, dtype=float)) for i, n in enumerate(space)),
        dt=1.0,
        trajectories=[
            Trajectory(
                len(array),
                reader(array),
                split=splits[i] if splits else "",
                fields=None if fields is None else lambda: fields,
            )
            for i, array in enumerate(trajectories)
        ],
    )


def periodic_field(x: np.ndarray, frames: int, modes: int, seed: int) -> np.ndarray:
    """(frames, 1, points): random waves of period 1 that travel, sampled at x."""
    random = np.random.default_rng(seed)
    k = np.arange(1, modes + 1)
    amplitude, phase, speed = random.standard_normal((3, modes))
    angles = 2 * np.pi * k * x[:, None] + phase + np.arange(frames)[:, None, None] * speed
    return (amplitude * np.sin(angles)).sum(-1)[:, None]


def walled_field(x: np.ndarray, frames: int, modes: int, seed: int) -> np.ndarray:
    """(frames, 1, points): random standing waves that are zero at 0 and 1."""
    random = np.random.default_rng(seed)
    k = np.arange(1, modes + 1)
    amplitude, phase, speed = random.standard_normal((3, modes))
    swing = np.cos(phase + np.arange(frames)[:, None, None] * speed)
    return (amplitude * swing * np.sin(np.pi * k * x[:, None])).sum(-1)[:, None]


def free_field(x: np.ndarray, frames: int, modes: int, seed: int) -> np.ndarray:
    """(frames, 1, points): random waves of period 2.7 that leave the domain."""
    return periodic_field(x / 2.7, frames, modes, seed)


def decided(arrays: Sequence[np.ndarray]) -> bool | None:
    return tidy(recording_of(arrays)).axes[0].periodic


@pytest.mark.parametrize("points", [32, 257])
@pytest.mark.parametrize("trajectories", [1, 5])
@pytest.mark.parametrize("modes", [1, 4])
def test_boundaries_of_known_fields(points: int, trajectories: int, modes: int) -> None:
    once, both = np.arange(points) / points, np.linspace(0, 1, points)
    for seed in range(0, 50, 10):
        seeds = range(seed, seed + trajectories)
        # a doubled end point is dropped, and what is left is untouched
        arrays = [periodic_field(both, 20, modes, s) for s in seeds]
        result = tidy(recording_of(arrays))
        assert result.axes[0].periodic
        assert result.space == (points - 1,)
        assert np.array_equal(result.trajectories[0].read(slice(2, 5), [0]), arrays[0][2:5, :, :-1])
        # periodic without it
        result = tidy(recording_of([periodic_field(once, 20, modes, s) for s in seeds]))
        assert result.axes[0].periodic
        assert result.space == (points,)


@pytest.mark.parametrize("points", [64, 257])
@pytest.mark.parametrize("modes", [3, 6])
def test_walls_are_not_periodic(points: int, modes: int) -> None:
    centres, both = (np.arange(points) + 0.5) / points, np.linspace(0, 1, points)
    for seed in range(0, 50, 10):
        for x, kind in [(both, walled_field), (centres, walled_field), (both, free_field), (centres, free_field)]:
            result = tidy(recording_of([kind(x, 20, modes, s) for s in range(seed, seed + 5)]))
            assert result.axes[0].periodic is False, (kind.__name__, seed)
            assert result.space == (points,)


def test_fixed_equal_ends_are_not_doubled() -> None:
    x = np.linspace(-1, 1, 256)
    moving = np.tanh(np.linspace(5, 50, 30)[:, None, None] * x) * (1 - x**2)  # a front that steepens inside
    assert decided([moving]) is False
    share = np.linspace(0, 1, 30)[:, None, None]  # an odd shock forms between walls, whose slopes are equal and change
    shock = -(1 - share) * np.sin(np.pi * x) + share * (x - np.tanh(x / 0.02))
    assert decided([shock]) is False
    plateau = np.exp(-(((x - 0.02 * np.arange(30)[:, None, None]) / 0.1) ** 2)) - 1  # both ends stay at -1
    assert decided([plateau]) is False


def test_symmetric_ends_with_moving_slopes_are_doubled() -> None:
    """As in Kuramoto-Sivashinsky from a sine: zero at both ends by symmetry, while the slope there changes."""
    x = np.linspace(-1, 1, 129)
    swing = np.cos(np.arange(30) / 3)[:, None, None]
    u = swing * np.sin(np.pi * x) + 0.3 * np.sin(3 * np.pi * x)
    result = tidy(recording_of([u]))
    assert result.axes[0].periodic
    assert result.space == (128,)


def test_axes_are_judged_one_by_one() -> None:
    """A channel: periodic along x, walls along y; a field of coefficients is shortened with the states."""
    x, y = np.linspace(0, 1, 33), np.linspace(0, 1, 41)
    arrays = [
        periodic_field(x, 12, 3, seed)[:, :, :, None] * walled_field(y, 12, 4, seed + 9)[:, :, None]
        for seed in range(4)
    ]
    coefficients = np.random.default_rng(0).standard_normal((2, 33, 41))
    result = tidy(recording_of(arrays, fields=coefficients))
    assert [axis.periodic for axis in result.axes] == [True, False]
    assert result.space == (32, 41)
    assert np.array_equal(result.trajectories[1].read(ALL, [0]), arrays[1][:, :, :-1])
    fields = result.trajectories[1].fields
    assert np.array_equal(fields(), coefficients[:, :-1])


def test_the_file_has_the_last_word() -> None:
    x = np.linspace(0, 1, 64)
    u = periodic_field(x, 10, 3, 0)
    declared = tidy(recording_of([u], [Axis("x", x, periodic=False)]))
    assert declared.axes[0].periodic is False
    assert declared.space == (64,)
    assert not declared.notes
    # declared periodic, with both ends, which do not move: still doubled
    still = np.sin(2 * np.pi * x) * np.linspace(1, 1.001, 10)[:, None, None]
    result = tidy(recording_of([still], [Axis("x", x, periodic=True)]))
    assert result.space == (63,)
    # a doubled end point needs a uniform axis
    result = tidy(recording_of([u], [Axis("x", x**2, periodic=True)]))
    assert result.space == (64,)
    once = periodic_field(np.arange(64) / 64, 10, 3, 0)
    assert tidy(recording_of([once], [Axis("x", x**1.5)])).axes[0].periodic is False


def test_lengths_are_cut_within_a_split() -> None:
    arrays = [np.random.default_rng(n).standard_normal((n, 1, 16)) for n in (7, 5, 20, 30)]
    result = tidy(recording_of(arrays, splits=["train", "train", "test", "test"]))
    assert [trajectory.frames for trajectory in result.trajectories] == [5, 5, 20, 20]
    assert np.array_equal(result.trajectories[0].read(ALL, [0]), arrays[0][:5])
    assert np.array_equal(result.trajectories[3].read(slice(-3, None), [0]), arrays[3][17:20])
    assert sum("are cut to" in note for note in result.notes) == 2


def problems(recording: Recording, **settings: Any) -> list[UnfitError]:
    chosen = FileSettings(**settings)
    return list(checks.problems(selected(recording, chosen), chosen))


def found_in(arrays: Sequence[np.ndarray], **more: Any) -> list[UnfitError]:
    """The problems of trajectories."""
    return problems(replace(tidy(recording_of(arrays)), **more))


def test_masks_are_filled() -> None:
    u = np.random.default_rng(0).standard_normal((9, 2, 12, 10)) + 5
    u[:, 1, 2:4, 3] = np.nan
    result = tidy(recording_of([u, u]))
    assert np.array_equal(result.mask, ~np.isnan(u[0]))
    read = result.trajectories[1].read(ALL, [1, 0])
    assert np.array_equal(read[:, :, result.mask[1]], u[:, [1, 0]][:, :, result.mask[1]])
    fill = np.unique(read[:, 0, ~result.mask[1]])
    assert fill == pytest.approx(np.nanmean(u[[0, 1, 2, 3, 5, 6, 7, 8]][:, 1]))  # eight sampled frames
    assert not problems(result)
    for dtype in ("f4", "f8"):
        assert tidy(recording_of([u.astype(dtype)])).trajectories[0].read(ALL, [1]).dtype == dtype


def damaged(place: tuple[Any, ...], value: float, masked: bool) -> list[np.ndarray]:
    """Three trajectories of random states, perhaps with a mask in the second channel, and one value in the last."""
    u = np.random.default_rng(0).standard_normal((3, 40, 2, 16))
    if masked:
        u[:, :, 1, 3:7] = np.nan
    u[2][place] = value
    return list(u)


@pytest.mark.parametrize(
    ("place", "value", "masked", "kind", "frame", "channel"),
    [
        ((8, 0, 5), np.nan, False, "finite", 8, "u0"),
        ((17, 0, 5), np.inf, False, "finite", 17, "u0"),
        ((17, 1, 5), 1e39, False, "finite", 17, "u1"),  # beyond float32, in which training reads
        ((17, 0, 5), np.nan, True, "finite", 17, "u0"),
        ((23, 1, 9), np.nan, True, "mask", 23, "u1"),
        ((23, 1, 4), 1.0, True, "mask", 23, "u1"),  # a value where there is none elsewhere
    ],
)
def test_values_that_are_not_finite_are_named_wherever_they_are(
    place: tuple[int, ...], value: float, masked: bool, kind: str, frame: int, channel: str
) -> None:
    (found,) = found_in(damaged(place, value, masked))
    assert found.kind == kind
    assert all(words in found.text for words in ("trajectory 2", f"frame {frame}", channel))


def test_what_is_not_chosen_may_be_damaged() -> None:
    result = tidy(recording_of(damaged((8, 0, 5), np.nan, False)))
    assert [one.kind for one in problems(result)] == ["finite"]
    assert not problems(result, fields=("u1",))
    assert not problems(result, crop=("6:16",))


def test_refusals() -> None:
    random = np.random.default_rng(0)
    with pytest.raises(HeroError, match="correct the coordinates"):
        tidy(recording_of([random.standard_normal((9, 1, 16))], [Axis("x", np.arange(17.0))]))
    assert [one.kind for one in found_in([random.standard_normal((1, 1, 16))])] == ["length"]
    (strided,) = problems(tidy(recording_of([random.standard_normal((9, 1, 16))])), stride=5)
    assert strided.kind == "length"
    assert [one.kind for one in found_in([random.standard_normal((1, 1, 16)).repeat(6, axis=0)])] == ["steady"]
    constant = np.full((6, 1, 16), 300.0) + 1e-9 * random.standard_normal((6, 1, 16))  # equal in float32
    assert [one.kind for one in found_in([constant])] == ["steady"]
    assert not found_in([np.ones((6, 1, 16)), random.standard_normal((6, 1, 16))])
    assert [one.kind for one in found_in([random.standard_normal((6, 1, 1))])] == ["grid"]


STEPS: dict[str, tuple[Any, dict[str, str]]] = {
    "even": (np.arange(40) * 0.1, {}),
    "rounded": (np.round(np.arange(40) / 3, 3), {}),
    "one start each": (np.arange(40) + np.array([[0.0], [7.5]]), {}),
    "alternating": (np.cumsum([0.0, *[0.1, 0.2] * 19, 0.1]), {"data.stride": "2"}),
    "every third late": (np.arange(40) + 0.3 * (np.arange(40) % 3 == 1), {"data.stride": "3"}),
    "a gap": (np.where(np.arange(40) < 20, np.arange(40.0), np.arange(40.0) + 6), {"data.dt": "1"}),
    "random": (np.cumsum(np.random.default_rng(0).uniform(0.5, 1.5, 40)), {"data.dt": ""}),
    "one dt each": (np.arange(40) * np.array([[0.1], [0.2]]), {"data.dt": ""}),
    "zeros": (np.zeros(40), {"data.dt": "1"}),
    "backwards": (-np.arange(40.0), {"data.dt": "1"}),
}


@pytest.mark.parametrize("case", STEPS)
def test_time_steps_that_differ_are_a_problem_with_a_remedy_that_works(case: str) -> None:
    times, settings = STEPS[case]
    arrays = list(np.random.default_rng(0).standard_normal((3, 40, 1, 16)))
    recording = replace(tidy(recording_of(arrays)), times=(times,))
    found = problems(recording)
    assert [one.kind for one in found] == ["time step"] * bool(settings)
    for one in found:
        assert one.settings.keys() == settings.keys()
        assert not settings.get("data.stride") or one.settings == settings
        stride, dt = int(one.settings.get("data.stride", 1)), float(one.settings.get("data.dt", 0))
        assert dt > 0 or stride > 1
        assert not problems(recording, stride=stride, dt=dt)


def test_a_problem_is_a_sentence_that_survives_another_process() -> None:
    one = UnfitError("time step", "a.npz", "the steps differ", "take one in 2", {"data.stride": "2"})
    again = pickle.loads(pickle.dumps(one))
    assert str(again) == str(one) == "a.npz: the steps differ; take one in 2 (data.stride=2)."
    assert (again.kind, again.settings) == (one.kind, one.settings)


def test_reading_is_bounded() -> None:
    """Of a thousand trajectories of a thousand states, a few are read."""
    reads: list[int] = []

    def read(frames: slice, channels: Sequence[int]) -> np.ndarray:
        reads.append(len(range(1000)[frames]))
        return np.random.default_rng(len(reads)).standard_normal((reads[-1], len(channels), 16))

    x = Axis("x", np.arange(16.0))
    many = Recording("test", (Path("file"),), (Channel("u"),), (x,), 1.0, [Trajectory(1000, read)] * 1000)
    assert not problems(tidy(many))
    assert sum(reads) <= 3 * 4 * 8
    assert checks.SAMPLED_VALUES < 1000 * 1000 * 16
