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
from dataclasses import replace
from pathlib import Path

import numpy as np

from hero.data.files.recording import SPELLINGS, Channel, Recording, shortened
from hero.data.formats import slabs as of
from hero.data.formats.arrays import FileArray, describe, in_cells, real_parts, unfolded
from hero.data.formats.slabs import COMPONENTS, SPACE, Slab, fits, length_of, space_of
from hero.errors import HeroError

FORCING = "forcing"  # the name of an array ([trajectory,] time, number[, *space])
STATES = ("u", "data", "solution", "tensor", "states", "prediction", "usol", "uu", "U", "sol", "y", "arr_0", "")
"""Names under which people store the states; "" is the array of a file without names."""
UNNAMED = ("data", "prediction", "arr_0", "")  # names that say nothing; the channel is called u
CONDITIONS = ("mu", "params", "parameters")
COORDINATES = {
    "t": ("t", "tt", "time", "times"),
    "x": ("x", "xx", "X", "lon", "longitude", "r"),
    "y": ("y", "yy", "Y", "lat", "latitude", "theta"),
    "z": ("z", "zz", "Z", "depth"),
}
COUNTERS = ("seed", "seeds", "id", "ids", "index", "idx")  # numbers of trajectories that tell nothing about them
LARGEST_SMALL = 1 << 22  # numbers of a coordinate or table that is read at once
MOST_NUMBERS = 16  # conditioning numbers of a trajectory in one array


def read_named(path: Path, arrays: Mapping[str, FileArray], layout: str, *, form: str = "npz") -> Recording:
    """The trajectories in arrays by name; "" is the array of a file without names."""
    numbers = {name: array for name, array in arrays.items() if np.dtype(array.dtype).kind in "fiubc"}
    layout, numbers = unfolded(path, layout, numbers)
    numbers, centred = in_cells(numbers)
    coordinates = coordinates_of(numbers)
    cloud = _small(numbers, "coords") if "coords" in numbers else None
    states, axes = _states(path, numbers, layout, coordinates, cloud)
    shape = numbers[next(iter(states.values()))].shape
    letters = {name: _letters(numbers[name].shape, axes, shape) for name in numbers if _is_free(name, numbers)}
    letters = {name: word for name, word in letters.items() if word} | dict.fromkeys(states.values(), axes)
    known = {*letters, *_coordinate_names(numbers), "dt", "coords", "weights"}
    others = {name: array for name, array in numbers.items() if name not in known}
    space, parts = space_of(axes, shape), list[Recording]()
    shown = f"{', '.join(states.values())} {shape}".strip()
    notes = [f"The axes of {shown} are read as {axes}.", *centred]
    used, forcing = set[str](), set[str]()
    for split, name in states.items():
        slabs, said = _slabs(numbers, states, letters, split, space)
        notes += [note for note in said if note not in notes]
        bare = of.recording_of(form, (path,), slabs, of.axes_of(space, coordinates), clock=coordinates.get("t"))
        part, conditions, series = _with_others(bare, others, split, axes, numbers[name].shape)
        parts.append(part)
        used |= conditions
        forcing |= series
    rest = {name: array for name, array in arrays.items() if name not in known | used}
    if rest:
        only = f"; {', '.join(sorted(forcing))} only as forcing, where data.forcing names it" if forcing else ""
        notes.append(f"Not used: {describe(rest)}{only}.")
    has_dt = "dt" in numbers and math.prod(numbers["dt"].shape) == 1
    return replace(
        parts[0],
        dt=float(_small(numbers, "dt").item()) if has_dt else parts[0].dt,
        trajectories=[one for part in parts for one in part.trajectories],
        points=cloud,
        weights=None if cloud is None else _weights(path, numbers, cloud, math.prod(space.values())),
        notes=tuple(notes),
    )


def _weights(path: Path, numbers: Mapping[str, FileArray], cloud: np.ndarray, points: int) -> np.ndarray | None:
    weights = _small(numbers, "weights") if "weights" in numbers else None
    shapes = [part.shape for part in (cloud, weights) if part is not None]
    if any(shape[:1] != (points,) or len(shape) != 2 - place for place, shape in enumerate(shapes)):
        told = f"coords and weights {shapes} do not fit {points} points"
        raise HeroError(f"{path}: {told}; save coords (points, dimension), weights (points,).")
    return weights


def _states(
    path: Path,
    numbers: Mapping[str, FileArray],
    layout: str,
    coordinates: Mapping[str, np.ndarray],
    cloud: np.ndarray | None,
) -> tuple[dict[str, str], str]:
    """The array of states of each split, "" where the file has none, and its axes."""
    lengths = {letter: len(values) for letter, values in coordinates.items() if cloud is None or letter == "t"}
    lengths |= {} if cloud is None else {"p": len(cloud)}
    splits = {SPELLINGS[name]: name for name in numbers if name in SPELLINGS and len(numbers[name].shape) > 1}
    refusal = None
    for name in list(splits.values())[:1] or _candidates(numbers, layout, coordinates):
        shape = numbers[name].shape
        of_points = cloud is not None and len(shape) == 4 and shape[3] == len(cloud)
        word = layout or ("btcp" if of_points else "")
        try:
            axes = of.layout_of(word, shape, lengths, name=numbers[name].name or "the array", path=path)
        except HeroError as error:
            refusal = refusal or error
            continue
        shapes = [numbers[one].shape for one in splits.values()]
        grids = {tuple(n for letter, n in zip(axes, shape, strict=False) if letter not in "bt") for shape in shapes}
        if len(grids) > 1 or any(len(shape) != len(axes) for shape in shapes):
            told = describe({name: numbers[name] for name in splits.values()})
            raise HeroError(f"{path}: {told} differ in channels or grid; save the splits on one grid.")
        return splits or {"": name}, axes
    raise refusal or HeroError(
        f"{path} holds {describe(numbers) or 'no array of numbers'}; name the array of states u, or the splits train, "
        "val and test."
    )


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
    lengths = {letter: n for letter, n in zip(axes, states, strict=True) if letter != "c"}
    words = [axes.replace("c", "")]
    words += [words[0].replace("t", ""), words[0].replace("t", "").replace("b", "")]
    plain = next((word for word in words if len(word) == len(shape) and fits(word, shape, lengths)), "")
    if plain:
        return plain
    for word in words:
        slots = range(len(word) + 1) if len(word) + 1 == len(shape) else ()
        places = [place for place in slots if fits(word[:place] + "c" + word[place:], shape, lengths)]
        places = [place for place in places if "t" in word or shape[place] <= len(SPACE)]
        own = [place for place in places if word[:place] + "c" + word[place:] == axes]
        if len(places) == 1 or own:
            place = (own or places)[0]
            return word[:place] + "c" + word[place:]
    return ""


def _slabs(
    numbers: Mapping[str, FileArray],
    states: Mapping[str, str],
    letters: Mapping[str, str],
    split: str,
    space: Mapping[str, int],
) -> tuple[list[Slab], list[str]]:
    """The states of a split and the fields beside them, in the order of the file, and notes on complex numbers."""
    shared = [name for name, word in letters.items() if "t" in word and name not in states.values()]
    slabs: list[Slab] = []
    notes: list[str] = []
    for name in sorted((states[split], *(shared if not split else ())), key=list(numbers).index):
        parts, said = real_parts(name, numbers[name])
        notes += said
        for part, array in parts.items():
            count = length_of(COMPONENTS, letters[name], array.shape)
            label = "u" if split or part in UNNAMED else part
            channels = _channels(label, count, alone=len(parts) == 1 and not shared)
            slabs.append(Slab(array, letters[name], space, channels))
    for name, word in letters.items():
        if "t" not in word:
            channels = _channels(name, length_of("c", word, numbers[name].shape), alone=False)
            slabs.append(Slab(numbers[name], word, space, channels))
    return slabs, notes


def _channels(name: str, count: int, alone: bool) -> tuple[Channel, ...]:
    """`u`, or `u0`, `u1`, ... of the only array; of several, `wind_0`, `wind_1`, which data.fields=wind chooses."""
    return of.channels_of(name if alone or count == 1 else f"{name}_", count)


def _coordinate_names(arrays: Mapping[str, FileArray]) -> dict[str, str]:
    """Letters of the arrays that are named as a coordinate and have one long axis: MATLAB keeps a vector as (1, n)."""
    named = {name: letter for letter, names in COORDINATES.items() for name in names if name in arrays}
    shapes = {name: arrays[name].shape for name in named}
    return {n: named[n] for n, shape in shapes.items() if 1 < max(shape, default=0) == math.prod(shape)}


def coordinates_of(arrays: Mapping[str, FileArray]) -> dict[str, np.ndarray]:
    """Coordinates (points,) in float64 by their letter; of several, the first name in `COORDINATES`."""
    found: dict[str, np.ndarray] = {}
    for name, letter in _coordinate_names(arrays).items():
        if letter not in found:
            found[letter] = np.asarray(_small(arrays, name), np.float64).ravel()
    return found


def _small(arrays: Mapping[str, FileArray], name: str) -> np.ndarray:
    if math.prod(arrays[name].shape) > LARGEST_SMALL:
        raise HeroError(f"{name} {arrays[name].shape} is too large for a coordinate or a table; rename it.")
    return np.asarray(arrays[name][(slice(None),) * len(arrays[name].shape)])


def _with_others(
    recording: Recording, others: Mapping[str, FileArray], split: str, axes: str, shape: tuple[int, ...]
) -> tuple[Recording, set[str], set[str]]:
    """The trajectories of a split with what belongs to them: numbers, lengths and series, which may serve as forcing.

    In train, reynolds_train is called reynolds, and so is reynolds where train has none of its own. Returns the names
    of the arrays that condition, and of the series, as well.
    """
    path, count = recording.files[0], len(recording.trajectories)
    meanings = [(name, *base_and_split(name)) for name in others]
    names = {base: name for wanted in ("", split) for name, base, owner in meanings if owner == wanted}
    used, forcing = set[str](), set[str]()
    table: dict[str, list[float]] = {}
    slabs, lengths = list[Slab](), [one.frames for one in recording.trajectories]
    for base, name in names.items():
        if base == "frames":
            used.add(name)
            counts = np.asarray(_small(others, name), dtype=np.int64).ravel()
            if counts.shape != (count,) or counts.min() < 1 or counts.max() > lengths[0]:
                raise HeroError(f"{path}: {name} are not the states of {count} trajectories; save one for each.")
            lengths = counts.tolist()  # trajectories were padded to one
        elif _is_condition(base, others[name], count, axes, shape):
            used.add(name)
            table |= of.columns_of(base, _small(others, name), count, path)
        elif slab := _series(base, others[name], axes, shape):
            forcing.add(name)
            slabs.append(slab)
    runs = [
        replace(
            shortened(one, length),
            scalars={name: values[row] for name, values in table.items()},
            series=of.series_of(slabs, row),
            split=split,
        )
        for row, (one, length) in enumerate(zip(recording.trajectories, lengths, strict=True))
    ]
    return replace(recording, trajectories=runs), used, forcing


def base_and_split(name: str) -> tuple[str, str]:
    """(reynolds, train) for reynolds_train and train_reynolds."""
    for word, split in SPELLINGS.items():
        base = name.removesuffix(f"_{word}").removeprefix(f"{word}_")
        if base != name:
            return base, split
    return name, ""


def _series(name: str, array: FileArray, axes: str, shape: Sequence[int]) -> Slab | None:
    """An array ([trajectory,] time[, number][, *space]); None where it is another."""
    space = space_of(axes, shape)
    lengths, grid = {**space, **{letter: length_of(letter, axes, shape) for letter in "bt"}}, "".join(space)
    for word in (f"{lead}{number}{places}" for lead in ("bt", "t") for number in ("", "c") for places in ("", grid)):
        fitting = len(word) == len(array.shape) and fits(word, array.shape, lengths) and array.dtype.kind in "fiu"
        if fitting and (name != FORCING or "c" in word):
            count = length_of("c", word, array.shape)
            labels = [f"{name}_{i}" for i in range(count)] if "c" in word else [name]
            return Slab(array, word, space_of(word, array.shape), tuple(map(Channel, labels)))
    return None


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
