"""Where rollouts begin: the first H states of any recording, of an array of states, or of the operator's test data.

Whatever follows these states is the truth of the rollout. Recordings stay in their files.
"""

from __future__ import annotations

import math
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from hero.config import Facts
from hero.data import FileSettings, Source, get_task, load_trajectories
from hero.data.files.checks import are_equal_steps, tidy, time_steps
from hero.data.files.selection import Part, chosen_conditioning, matched_channels, resampled, selected
from hero.data.files.trajectories import FileTrajectories
from hero.data.formats import open_recording
from hero.data.trajectories import Trajectories
from hero.deploy.card import ModelCard
from hero.deploy.outputs import RolloutHeader
from hero.errors import HeroError, reason_of


def starting_states(
    card: ModelCard, data_dir: Path, path: Path | None = None, trajectories: int | None = None
) -> tuple[Trajectories, list[str]]:
    """The first `trajectories` of a file, by default of the operator's test data, which are solved if they are missing.

    The file is an array of states (batch, H, channel, *space), or a recording. With them come sentences for the user.
    """
    notes: list[str] = []
    if path is None:
        source = source_of(card)
        data, name = load_trajectories(source, card.test, data_dir), source.title
    else:
        bare = array_of_states(path, card) if path.suffix in (".npy", ".npz") and path.is_file() else None
        (data, notes), name = (bare, notes) if bare is not None else from_recording(path, card), str(path)
    if trajectories is not None:
        if not 1 <= trajectories <= len(data):
            raise HeroError(
                f"`trajectories` {trajectories} is not within the {len(data)} of {name}; use 1 to {len(data)}."
            )
        part = slice(trajectories)
        data = data.only(part) if isinstance(data, FileTrajectories) else data[part]  # a file keeps them
    bad = ~card.measured().without_masked(data.frames(slice(card.history))).isfinite().flatten(1).all(dim=1)
    if bool(bad.any()):
        raise HeroError(f"{name} has NaN or infinite values (first in sample {int(bad.nonzero()[0])}); remove them.")
    return data, notes


def source_of(card: ModelCard) -> Source:
    """The data that the operator was trained on."""
    if "fingerprint" in card.settings:
        return FileSettings.from_values("data", card.settings, Facts()).source()
    return get_task(card.task, card.settings).source()


def described(card: ModelCard, mu: Tensor | None) -> RolloutHeader:
    """The description of a rollout in its file; `mu` is its conditioning."""
    source = source_of(card)
    there = source.files is None or Path(source.files.path).exists()
    points = source.points() if there else None
    axes = source.exact_axes() if there else source.axes
    return RolloutHeader(
        run=card.run,
        channels=card.channel_names,
        axes=tuple(
            replace(axis, coordinates=np.arange(axis.points)) if np.isnan(axis.coordinates).any() else axis
            for axis in axes
        ),
        dt=card.dt,
        history=card.history,
        conditioning=card.conditioning,
        mu=mu.cpu().numpy() if mu is not None and mu.ndim == 2 else None,
        units=source.units,
        time_unit=source.time_unit,
        positions=None if points is None else points[0],
    )


def from_recording(path: Path, card: ModelCard) -> tuple[Trajectories, list[str]]:
    """The trajectories of a recording with the channels, stride and grid points of the operator."""
    own = source_of(card)
    chosen = own.files or FileSettings(path=str(path))
    given = open_recording(path, chosen.layout)
    recording = tidy(resampled(given, chosen.resample if given.times else 0.0))
    channels = {channel.name for channel in recording.channels}
    names = chosen.fields if chosen.fields and set(chosen.fields) <= channels else card.channel_names
    fields = matched_channels(recording, names, path, f"run {card.run}")
    update: dict[str, Any] = {"fields": fields, "forcing": card.forcing}
    if recording.space == card.grid:  # such as a prediction, which is on the grid of the operator
        update |= {"crop": (), "coarsen": 1}
    if math.isclose(recording.dt, card.dt, rel_tol=1e-6):
        update["stride"] = 1
    known_dt = recording.dt != 1
    recording = selected(recording, chosen.model_copy(update=update))
    chosen_conditioning(recording, card.conditioning)  # refuses a recording without it
    if recording.space != card.grid:
        found, needed = (" x ".join(map(str, grid)) for grid in (recording.space, card.grid))
        raise HeroError(
            f"{path} has states on {found} points and run {card.run} needs {needed}; resample it to that grid."
        )
    frames = min(trajectory.frames for trajectory in recording.trajectories)
    parts = [Part(i, 0, frames) for i in range(len(recording.trajectories))]
    data = FileTrajectories(recording, parts, card.conditioning)
    if data.mask is not None and bool(card.measured().without_masked((~data.mask).float()).any()):
        raise HeroError(f"{path} has only NaN at points where run {card.run} needs values; fill them.")
    if frames < card.history:
        raise HeroError(
            f"{path} has {frames} state{'s' * (frames != 1)} per trajectory and run {card.run} starts from "
            f"{card.history}; use a longer file."
        )
    notes, dt = [], recording.dt
    if known_dt and not math.isclose(dt, card.dt, rel_tol=1e-3):
        notes.append(f"{path.name} has dt = {dt:g} and the run {card.dt:g}: the truth is compared state by state.")
    if not are_equal_steps(time_steps(recording)):
        notes.append(f"the time steps in {path.name} differ: the truth is compared state by state.")
    return data, notes


def array_of_states(path: Path, card: ModelCard) -> Trajectories | None:
    """States (batch, H, channel, *space) of an .npy file or called `states`, the H left out where it is 1; μ from `mu`.

    None where the array is something else that may be a recording.
    """
    try:
        name, array, known = read_array(path)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise HeroError(
            f"{path} holds no states ({reason_of(error)}); see docs/howto/export.md for the layouts."
        ) from error
    if array is None:
        return None
    if array.dtype.kind not in "fiu":
        raise HeroError(f"{path} holds {array.dtype}, not states; save an array of real numbers.")
    longer = array.ndim == 3 + len(card.grid) and array.shape[1] > card.history
    if not card.has_states(array.shape) and (name not in ("", "states") or longer or card.settings.get("layout")):
        return None
    try:
        with np.errstate(over="ignore"):  # overflows are found afterwards
            given = card.context(array.astype(np.float32), known.get("mu"), known.get("forcing"))
    except HeroError as error:
        raise HeroError(f"{path} does not fit: {error}") from error
    return Trajectories(given.states, given.mu, None, given.forcing)


def read_array(path: Path) -> tuple[str, np.ndarray | None, dict[str, np.ndarray]]:
    """The array of an .npy file, or the one called states or the only one of an .npz file; with μ and forcing."""
    found = np.load(path, allow_pickle=False, mmap_mode="r" if path.suffix == ".npy" else None)
    if isinstance(found, np.ndarray):
        return "", found, {}
    with found as arrays:
        names = [name for name in arrays if name not in ("mu", "forcing")]
        if "states" not in names and len(names) != 1:
            return "", None, {}
        name = "states" if "states" in names else names[0]
        return name, np.asarray(arrays[name]), {n: arrays[n] for n in ("mu", "forcing") if n in arrays}
