"""States in a file -> their rollout in a file, by a run or by a file exported from it."""

from __future__ import annotations

import io
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import Tensor

from hero.config import Facts
from hero.console import progress_bar
from hero.data import FileSettings, FileSource, Source, Split, get_task, load_trajectories
from hero.data.windows import Context
from hero.errors import HeroError
from hero.evaluation.export import ModelCard, Operator, load_stepper, run_stepper
from hero.files import write_atomic
from hero.method.rollout import Stepper, counted, rollout, unroll
from hero.runs.folder import find_run
from hero.training.compile import compiled

INPUTS = (".npy", ".npz", ".h5")
OUTPUTS = (".npz", ".npy")
CHUNK = 5
"""Steps per call of compiled code: each call has a fixed cost, each step has to be compiled."""


@dataclass(frozen=True)
class Prediction:
    """A rollout that was written; its shape is (batch, time, channel, *space)."""

    path: Path
    shape: tuple[int, ...]
    seconds: float
    diverged: int
    """Trajectories that left the finite range."""


def predict(
    model: str,
    runs_dir: Path,
    data_dir: Path,
    source: Path | None = None,
    steps: int = 200,
    out: Path = Path("predictions.npz"),
    compile: bool = False,
) -> Prediction:
    """Roll out `model` (a run, an .onnx or a .pt2 file) from the states in `source`, by default the test states.

    Writes `out` once everything is computed.
    """
    if out.suffix not in OUTPUTS:
        raise HeroError(f"predictions cannot be written as {out}; use a name that ends in {' or '.join(OUTPUTS)}.")
    if source is not None and out.resolve() == source.resolve():
        raise HeroError(f"{out} is the input and would be overwritten; use another `out`.")
    if steps < 1:
        raise HeroError(f"`steps` {steps} is too small; it must be at least 1.")
    operator = open_operator(model, runs_dir)
    if compile and operator.model is None:
        raise HeroError(f"{model} cannot be compiled, only the plain network of a run can; leave out `compile`.")
    context = (read_states(source, operator.card) if source else default_states(operator.card, data_dir)).to(
        operator.device
    )
    clock = time.perf_counter()
    prediction = roll(operator, context.to(operator.device), steps, compile)
    seconds = time.perf_counter() - clock
    write_prediction(out, prediction.numpy())
    diverged = int((~prediction.isfinite().flatten(1).all(dim=1)).sum())
    return Prediction(out, tuple(prediction.shape), seconds, diverged)


def open_operator(name: str, runs_dir: Path) -> Operator:
    """An exported file by its path, or a run by path or id."""
    path = Path(name)
    if path.suffix in (".onnx", ".pt2") or path.is_file():
        return load_stepper(path)
    return run_stepper(find_run(name, runs_dir))


@torch.no_grad()
def roll(operator: Operator, context: Context, steps: int, compile: bool) -> Tensor:
    """The rollout from a context, on the CPU, with a bar for long ones.

    Compiled code makes a few steps per call; compiling takes a minute and pays in long rollouts.
    """
    step: Stepper = operator
    if compile:
        operator(context)  # fills the caches of the model outside of the compiled code, and checks the shapes
        some_steps = compiled(unroll, operator.device)

        def step(context: Context) -> Tensor:
            return some_steps(operator.model, context, CHUNK).flatten(1, 2)

    with progress_bar(
        "compiling, then predicting" if compile else "predicting", len(context.states) * steps
    ) as advance:
        return rollout(counted(step, advance), context, steps).cpu()


def default_states(card: ModelCard, data_dir: Path) -> Context:
    """The first H states of the test trajectories of the operator's data, which are solved if they are missing."""
    if "fingerprint" in card.settings:
        source: Source = FileSource(FileSettings.from_values("data", card.settings, Facts()))
    else:
        source = get_task(card.task, card.settings)
    return load_trajectories(source, Split(**card.test), data_dir).first(card.history)


def read_states(path: Path, card: ModelCard) -> Context:
    """Initial states (batch, H, channel, *space), float32; the H may be left out where it is 1; μ from `mu`."""
    if path.suffix not in INPUTS:
        raise HeroError(f"cannot read states from {path}; expected {', '.join(INPUTS)}.")
    if not path.is_file():
        raise HeroError(f"there is no file {path}; check the path.")
    try:
        array, mu = read_array(path, card.history)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise HeroError(f"{path} holds no states ({reason}); see docs/export.md for the layouts.") from error
    states = checked_states(array, card, path)
    if not card.conditioning:
        return Context(states)
    names = ", ".join(card.conditioning)
    if mu is None or mu.shape[:2] != (len(states), len(card.conditioning)):
        raise HeroError(
            f"{path} has no conditioning for run {card.run}; use an .npz file with `states` and `mu` of shape "
            f"({len(states)}, {len(card.conditioning)}), which holds {names}."
        )
    return Context(states, torch.from_numpy(mu.astype(np.float32)))


def read_array(path: Path, history: int) -> tuple[np.ndarray, np.ndarray | None]:
    """The array of an .npy file, the one called states or the only one of an .npz file, the first states of `u`; μ."""
    if path.suffix == ".h5":  # trajectories, as in data files of hero
        with h5py.File(path, "r") as file:
            return np.asarray(file["u"][:, :history]), None
    found = np.load(path, allow_pickle=False)
    if isinstance(found, np.ndarray):
        return found, None
    with found as arrays:
        names = [name for name in arrays if name != "mu"]
        if "states" not in names and len(names) != 1:
            raise ValueError(f"it has the arrays {names} and none is called states")
        return np.asarray(arrays["states" if "states" in names else names[0]]), arrays.get("mu")


def checked_states(array: np.ndarray, card: ModelCard, path: Path) -> Tensor:
    """`array` as float32 (batch, H, channel, *space); HeroError if shape or values do not fit."""
    wanted = (card.history, card.channels, *card.grid)
    if card.history == 1 and array.ndim == len(wanted):
        array = array[:, None]
    if array.dtype.kind not in "fiu" or array.shape[1:] != wanted or len(array) == 0:
        sizes = ", ".join(map(str, wanted[1:] if card.history == 1 else wanted))
        raise HeroError(f"{path} holds {array.dtype} {array.shape}, not states of shape (batch, {sizes}); reshape it.")
    with np.errstate(over="ignore"):  # overflows are found below
        states = torch.from_numpy(array.astype(np.float32))
    bad = ~states.isfinite().flatten(1).all(dim=1)
    if bool(bad.any()):
        raise HeroError(f"{path} has NaN or infinite values (first in sample {int(bad.nonzero()[0])}); remove them.")
    return states


def write_prediction(path: Path, prediction: np.ndarray) -> None:
    """`prediction` (batch, time, channel, *space), as one array or under that name, atomically."""
    buffer = io.BytesIO()
    if path.suffix == ".npy":
        np.save(buffer, prediction, allow_pickle=False)
    else:
        np.savez(buffer, allow_pickle=False, prediction=prediction)
    write_atomic(path, buffer.getvalue())
