"""Run folders on disk: weights as safetensors, state for resuming as one atomic file, nothing that could run code."""

from __future__ import annotations

import io
import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from hero.data.files.handles import check_stored
from hero.errors import HeroError, NoPermissionError
from hero.files import FIELD, UNSEALED, is_whole, reading, sealed, sealed_archive, write_atomic

PREVIOUS = "previous.pt"  # the checkpoint before the last one
LAGGED = "lagged."  # before the names of the lagged operator's weights in a kept checkpoint


def save_weights(path: Path, weights: dict[str, Tensor], about: dict[str, Any]) -> None:
    """`model.safetensors`, with the step and validation score it was chosen by, and a checksum."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    # One entry: safetensors writes several in random order, and equal runs are to have equal files.
    data = safetensors.torch.save(tensors, metadata={"hero": json.dumps({**about, FIELD: UNSEALED})})
    write_atomic(path, sealed(data))


def put_weights(weights: dict[str, Tensor], model: nn.Module, path: Path) -> None:
    """Put the weights of the file `path` into `model`; HeroError if they are of another one."""
    try:
        model.load_state_dict(weights)
    except RuntimeError:
        raise other_model(path) from None


def other_model(path: Path) -> HeroError:
    return HeroError(f"{path} holds the weights of another model; use the configuration it was trained with.")


def read_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a safetensors file and what `save_weights` stored about them."""
    if not path.is_file():
        raise HeroError(f"there are no weights {path}; train the run first.")
    try:
        weights, text = read_safetensors(path)
        about = json.loads(text or "null")
        if not isinstance(about, dict) or type(about.get("step")) is not int:
            raise ValueError("its metadata have no step")
        return weights, {name: value for name, value in about.items() if name != FIELD}
    except (safetensors.SafetensorError, OSError, KeyError, ValueError) as error:
        raise HeroError(
            f"{path} is damaged ({error}); delete it and repeat the command that wrote it, such as "
            "`hero train --resume RUN`."
        ) from error


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], str | None]:
    """The tensors of anybody's file, and the words of hero in it, whose checksum must then be right; else ValueError.

    By their bytes: the library opens no path that is not UTF-8.
    """
    with reading(path) as file:
        data = file.read()
    tensors: dict[str, Tensor] = safetensors.torch.load(data)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    about: str | None = header.get("__metadata__", {}).get("hero")
    if about is not None and not is_whole(data):
        raise ValueError("its checksum differs")
    return tensors, about


def load_kept(path: Path, model: nn.Module) -> dict[str, Tensor]:
    """Put a kept checkpoint into `model`; returns the weights of its lagged operator, empty if there is none."""
    weights, _ = read_weights(path)
    lagged = {name.removeprefix(LAGGED): weights.pop(name) for name in list(weights) if name.startswith(LAGGED)}
    put_weights(weights, model, path)
    return lagged


def save_state(path: Path, state: dict[str, Any]) -> None:
    """All that resuming needs, in one file that is replaced as a whole; the state before it stays next to it."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomic(path, sealed_archive(buffer), previous=path.with_name(PREVIOUS))


def load_state(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Undo `save_state`; only tensors and plain values are read."""
    try:
        if not is_whole(path):
            raise ValueError("its checksum differs")
        check_stored(path)
        with warnings.catch_warnings(action="ignore"):  # torch warns of foreign pickles, which we refuse
            state = torch.load(path, map_location=device, weights_only=True)
        if type(state["step"]) is not int:
            raise ValueError("its step is not a number")
    except (OSError, RuntimeError, LookupError, EOFError, ValueError, TypeError, pickle.UnpicklingError) as error:
        raise HeroError(
            f"the checkpoint {path} is damaged ({type(error).__name__}); "
            f"delete the folder {path.parent.parent} to start again."
        ) from error
    return dict(state)


def last_state(path: Path, device: torch.device | str = "cpu") -> tuple[dict[str, Any] | None, str | None]:
    """The state in `path`, or the one before it if that is damaged, with a sentence on it; None without a state."""
    previous = path.with_name(PREVIOUS)
    if not path.is_file() and not previous.is_file():
        return None, None
    try:
        return load_state(path, device), None
    except HeroError as error:
        if not previous.is_file() or isinstance(error, NoPermissionError):
            raise
        state = load_state(previous, device)
    return state, f"the checkpoint {path} is damaged: continuing from the one before it, of update {state['step']}"


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a state dict; some models add classes and functions, which no safe file may hold."""
    return {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
