"""Arrays by name become a recording: here, for every kind of file, it is decided which of them are what.

States are called `u` or the like, or `train`, `val` and `test`; arrays on the same axes are channels under their own
names. `x`, `y`, `t` and `dt` are coordinates. One number for each trajectory, or `mu`, is conditioning, and so is an
array on the grid without time. `frames` (trajectory,) counts the states of trajectories that are padded to one length.
A point cloud has `coords` (points, dimension), perhaps `weights` (points,). What else depends on time may be forcing;
the rest is listed as not used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hero.data.files.recording import SPELLINGS, Channel, Recording, Trajectory, shortened
from hero.data.formats.arrays import (
    COMPONENTS,
    SPACE,
    FileArray,
    Slab,
    States,
    axes_of,
    channels_of,
    describe,
    layout_of,
    length_of,
    space_of,
    time_step,
    whole,
    with_scalars,
)
from hero.data.formats.series import FORCING, base_and_split, with_series
from hero.data.formats.views import in_cells, real_parts, unfolded
from hero.errors import HeroError

STATES = ("u", "data", "solution", "tensor", "states", "prediction", "usol", "uu", "U", "sol", "y", "arr_0", "")
"""Names under which people store the states; "" is the array of a file without names."""
UNNAMED = ("data", "prediction", "arr_0", "")
"""Names that say nothing; the channel is called u."""
CONDITIONS = ("mu", "params", "parameters")
COORDINATES = {
    "t": ("t", "tt", "time", "times"),
    "x": ("x", "xx", "X", "lon", "longitude", "r"),
    "y": ("y", "yy", "Y", "lat", "latitude", "theta"),
    "z": ("z", "zz", "Z", "depth"),
}
COUNTERS = ("seed", "seeds", "id", "ids", "index", "idx")
"""Numbers of trajectories that tell nothing about them."""
LARGEST_SMALL = 1 << 22
"""Numbers of a coordinate or table that is read at once."""
MOST_NUMBERS = 16
"""Conditioning numbers of a trajectory in one array."""


def read_npy(path: Path, array: FileArray, layout: str) -> Recording:
    """A bare array: (trajectory, time, channel, *space), or as the layout says."""
    return read_named(path, {"": array}, layout, form="npy")


def read_named(path: Path, arrays: Mapping[str, FileArray], layout: str, *, form: str = "npz") -> Recording:
    """The trajectories in arrays by name."""
    numeric = {name: array for name, array in arrays.items() if np.dtype(array.dtype).kind in "fiubc"}
    layout, numbers = unfolded(path, layout, numeric)
    numbers, centred = in_cells(numbers)
    coordinates = coordinates_of(numbers)
    cloud = _small(numbers, "coords") if "coords" in numbers else None
    states, axes = _states(path, numbers, arrays, layout, coordinates, cloud)
    main = next(iter(states.values()))
    shape = numbers[main].shape
    letters = {name: _letters(numbers[name].shape, axes, shape) for name in numbers if _is_free(name, numbers)}
    letters = {name: word for name, word in letters.items() if word} | dict.fromkeys(states.values(), axes)
    runs, channels, notes = _runs(path, numbers, states, letters)
    known = {*letters, *_coordinate_names(numbers), "dt", "coords", "weights"}
    runs, used = _conditioned(path, {n: a for n, a in numbers.items() if n not in known}, runs, axes, shape)
    rest = {name: array for name, array in arrays.items() if name not in known | used}
    dt, times = time_step(coordinates.get("t"))
    space = space_of(axes, shape)
    weights = _small(numbers, "weights") if cloud is not None and "weights" in numbers else None
    _check_cloud(path, cloud, weights, tuple(space.values()))
    shown = " ".join([", ".join(states.values()), str(tuple(shape))]).strip()
    recording = Recording(
        format=form,
        files=(path,),
        channels=channels,
        axes=axes_of(space, coordinates),
        dt=float(_small(numbers, "dt").item()) if "dt" in numbers and math.prod(numbers["dt"].shape) == 1 else dt,
        times=times,
        trajectories=runs,
        field_names=tuple(name for n, word in letters.items() if "t" not in word for name in _parts(n, word, numbers)),
        points=cloud,
        weights=weights,
        notes=(f"The axes of {shown} are read as {axes}.", *centred, *notes),
    )
    return with_series(recording, rest)


def _states(
    path: Path,
    numbers: Mapping[str, FileArray],
    arrays: Mapping[str, FileArray],
    layout: str,
    coordinates: Mapping[str, np.ndarray],
    cloud: np.ndarray | None,
) -> tuple[dict[str, str], str]:
    """The array of states of each split, "" where the file has none, and its axes."""
    splits = {SPELLINGS[name]: name for name in numbers if name in SPELLINGS and len(numbers[name].shape) > 1}
    lengths = {letter: len(values) for letter, values in coordinates.items()}
    if cloud is not None:
        lengths = {"p": len(cloud), **({"t": lengths["t"]} if "t" in lengths else {})}
    if splits:
        shapes = [tuple(numbers[name].shape) for name in splits.values()]
        word = _word(layout, shapes[0], cloud)
        axes = layout_of(word, shapes[0], lengths, name=next(iter(splits.values())), path=path)
        grids = {tuple(n for letter, n in zip(axes, shape, strict=False) if letter not in "bt") for shape in shapes}
        if len(grids) > 1 or any(len(shape) != len(axes) for shape in shapes):
            told = describe({name: numbers[name] for name in splits.values()})
            raise HeroError(f"{path}: {told} differ in channels or grid; save the splits on one grid.")
        return splits, axes
    refusal = None
    for name in _candidates(numbers, layout, coordinates):
        try:
            word = _word(layout, numbers[name].shape, cloud)
            return {"": name}, layout_of(
                word, numbers[name].shape, lengths, name=numbers[name].name or "the array", path=path
            )
        except HeroError as error:
            refusal = refusal or error
    if refusal is not None:
        raise refusal
    pickled = [name for name in arrays if np.dtype(arrays[name].dtype).hasobject]
    closed = f" (and {', '.join(pickled)}: Python objects, a pickle, not opened)" if pickled else ""
    raise HeroError(
        f"{path} holds {describe(numbers) or 'no array of numbers'}{closed}; name the array of states u, or the "
        "splits train, val and test."
    )


def _word(layout: str, shape: Sequence[int], cloud: np.ndarray | None) -> str:
    of_points = cloud is not None and not layout and len(shape) == 4 and shape[3] == len(cloud)
    return "btcp" if of_points else layout


def _candidates(numbers: Mapping[str, FileArray], layout: str, coordinates: Mapping[str, np.ndarray]) -> list[str]:
    """Arrays that may be the states, the likeliest first: known names, then the one with most axes, the largest."""
    least = 2 if layout or coordinates else 3
    ranks = {name: sum(n > 1 for n in array.shape) for name, array in numbers.items()}
    known = [name for name in STATES if ranks.get(name, 0) > 1]
    fitting = [name for name in numbers if _is_free(name, numbers) and len(numbers[name].shape) == len(layout)]
    likely = [name for name in numbers if ranks[name] >= least and _is_free(name, numbers) and name not in known]
    likely.sort(key=lambda name: (len(numbers[name].shape), math.prod(numbers[name].shape)), reverse=True)
    found = [*known, *likely]
    return [name for name in found if name in fitting] or found if layout else found


def _is_free(name: str, numbers: Mapping[str, FileArray]) -> bool:
    """Whether an array has no meaning by its name alone."""
    reserved = {*CONDITIONS, *SPELLINGS, "coords", "weights", "dt", *_coordinate_names(numbers)}
    return name not in reserved and base_and_split(name)[0] != FORCING and len(numbers[name].shape) > 1


def _letters(shape: Sequence[int], axes: str, states: Sequence[int]) -> str:
    """The axes of an array beside the states: with time a channel, without it a fixed field; "" where it is neither."""
    lengths = dict(zip(axes, states, strict=True))
    words = [axes.replace("c", "")]
    words += [words[0].replace("t", ""), words[0].replace("t", "").replace("b", "")]

    def fits(word: str) -> bool:
        return len(word) == len(shape) and all(c == "c" or lengths[c] == n for c, n in zip(word, shape, strict=True))

    plain = next((word for word in words if fits(word)), "")
    if plain:
        return plain
    for word in words:
        places = [place for place in range(len(word) + 1) if fits(word[:place] + "c" + word[place:])]
        places = [place for place in places if "t" in word or shape[place] <= len(SPACE)]
        own = [place for place in places if word[:place] + "c" + word[place:] == axes]
        if len(places) == 1 or own:
            place = (own or places)[0]
            return word[:place] + "c" + word[place:]
    return ""


def _runs(
    path: Path, numbers: Mapping[str, FileArray], states: Mapping[str, str], letters: Mapping[str, str]
) -> tuple[list[Trajectory], tuple[Channel, ...], list[str]]:
    """The trajectories of every split, their channels, and notes on complex numbers."""
    shared = [name for name, word in letters.items() if "t" in word and name not in states.values()]
    fields = [name for name, word in letters.items() if "t" not in word]
    runs: list[Trajectory] = []
    channels: list[Channel] = []
    notes: list[str] = []
    for split, name in states.items():
        axes, shape = letters[name], numbers[name].shape
        space, slabs, channels = space_of(axes, shape), list[Slab](), []
        for one in sorted((name, *(shared if not split else ())), key=list(numbers).index):
            parts, said = real_parts(one, numbers[one])
            notes += [note for note in said if note not in notes]
            slabs += [Slab(part, letters[one], space) for part in parts.values()]
            alone = len(parts) == 1 and not shared
            shown = ["u" if split or part in UNNAMED else part for part in parts]
            counts = [slab.components for slab in slabs[-len(parts) :]]
            channels += [c for part, n in zip(shown, counts, strict=True) for c in _channels(part, n, alone)]
        fixed = [Slab(numbers[field], letters[field], space) for field in fields]
        runs += [
            Trajectory(
                length_of("t", axes, shape),
                States(slabs, row),
                fields=States(fixed, row).fields if fixed else None,
                split=split,
            )
            for row in range(length_of("b", axes, shape))
        ]
    return runs, tuple(channels), notes


def _channels(name: str, count: int, alone: bool) -> tuple[Channel, ...]:
    """`u`, or `u0`, `u1`, ... of the only array; of several, `wind_0`, `wind_1`, which data.fields=wind chooses."""
    return channels_of(name if alone or count == 1 else f"{name}_", count)


def _parts(name: str, axes: str, numbers: Mapping[str, FileArray]) -> list[str]:
    return [channel.name for channel in _channels(name, length_of("c", axes, numbers[name].shape), alone=False)]


def _coordinate_names(numbers: Mapping[str, FileArray]) -> set[str]:
    return {name for names in COORDINATES.values() for name in names if name in numbers and _is_line(numbers[name])}


def _is_line(array: FileArray) -> bool:
    """Whether an array has one long axis; a (1, points) or (points, 1) array is how MATLAB keeps a vector."""
    return 1 < max(array.shape, default=0) == math.prod(array.shape)


def coordinates_of(arrays: Mapping[str, FileArray]) -> dict[str, np.ndarray]:
    """Arrays with one long axis that are named as a coordinate, as (points,) float64."""
    found = {}
    for letter, names in COORDINATES.items():
        for name in names:
            if name in arrays and _is_line(arrays[name]) and letter not in found:
                found[letter] = np.asarray(_small(arrays, name), dtype=np.float64).ravel()
    return found


def _small(arrays: Mapping[str, FileArray], name: str) -> np.ndarray:
    if math.prod(arrays[name].shape) > LARGEST_SMALL:
        raise HeroError(f"{name} {tuple(arrays[name].shape)} is too large for a coordinate or a table; rename it.")
    return whole(arrays[name])


def _conditioned(
    path: Path, numbers: Mapping[str, FileArray], runs: Sequence[Trajectory], axes: str, shape: Sequence[int]
) -> tuple[list[Trajectory], set[str]]:
    """The trajectories with their conditioning numbers, mu_train or reynolds_train of the split train, and the arrays
    that hold them."""
    found: list[Trajectory] = []
    used: set[str] = set()
    meanings = {name: base_and_split(name) for name in numbers}
    for split in dict.fromkeys(run.split for run in runs):
        chosen = [run for run in runs if run.split == split]
        own = {base for base, of in meanings.values() if of == split}
        for name, (base, of) in meanings.items():
            meant = of == split or (not of and base not in own)
            if meant and base == "frames":
                chosen, used = _shortened(path, chosen, name, _small(numbers, name)), used | {name}
            elif meant and _is_condition(base, numbers[name], len(chosen), axes, shape):
                chosen, used = with_scalars(chosen, base, _small(numbers, name), path), used | {name}
        found += chosen
    return found, used


def _shortened(path: Path, runs: Sequence[Trajectory], name: str, frames: np.ndarray) -> list[Trajectory]:
    """The trajectories, cut to the states that they have."""
    lengths = np.asarray(frames, dtype=np.int64).ravel()
    if lengths.shape != (len(runs),) or lengths.min() < 1 or lengths.max() > runs[0].frames:
        raise HeroError(f"{path}: {name} are not the states of {len(runs)} trajectories; save one for each.")
    return [shortened(one, int(length)) for one, length in zip(runs, lengths, strict=True)]


def _is_condition(name: str, array: FileArray, count: int, axes: str, shape: Sequence[int]) -> bool:
    """Whether an array has one number, or a few, for each trajectory, and no other meaning."""
    if name in CONDITIONS:
        return True
    if name.lower() in COUNTERS or array.dtype.kind not in "fiu":
        return False
    long = [n for n in array.shape if n > 1]
    if not long:
        return True
    others = [n for letter, n in zip(axes, shape, strict=True) if letter not in ("b", *COMPONENTS)]
    rows = array.shape[0] == count or (len(long) == 1 and long[0] == count)
    return rows and count > 1 and not set(long) & set(others) and math.prod(long) <= count * MOST_NUMBERS


def _check_cloud(path: Path, cloud: np.ndarray | None, weights: np.ndarray | None, space: tuple[int, ...]) -> None:
    shapes = [part.shape for part in (cloud, weights) if part is not None]
    if any(shape[:1] != space or len(shape) != 2 - place for place, shape in enumerate(shapes)):
        told = f"coords and weights {shapes} do not fit {math.prod(space)} points"
        raise HeroError(f"{path}: {told}; save coords (points, dimension), weights (points,).")
