"""The weights that a run starts from, its own or from any PyTorch checkpoint, and the parameters that stay as they are.

A file is read without running any code in it: objects that are not tensors are left out and named. Its tensors are
matched by name, with and without the prefixes that wrappers such as DistributedDataParallel, torch.compile and
Lightning put before names. A start is known by the hash of its tensors: the same weights in another container make the
same run.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import re
import tarfile
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor, nn
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from hero.data.files.handles import check_stored
from hero.errors import HeroError, NoPermissionError, reason_of
from hero.models.lora import matching
from hero.models.wrappers import Wrapper
from hero.runs.checkpoint import read_safetensors, weights_of
from hero.strategies import TrainSettings

NESTED = ("state_dict", "model_state_dict", "model")  # where checkpoints of other libraries keep their tensors
IN_FOLDER = ("model.safetensors", "*.safetensors", "pytorch_model.bin", "*_state_dict.pt")
"""Files of weights in folders of runs, Accelerate, Hugging Face and neuralop; the first that there is counts."""
PREFIX = r"(?:module|model)\."
WRAPPED = re.compile(f"^(?:{PREFIX})+")
COMPILED = "_orig_mod."  # in names of modules that torch.compile has wrapped, at any place
NAMED = 3  # so many names of each kind are listed
SAVE = "torch.save(model.state_dict(), 'weights.pt')"


def found_start(given: Mapping[str, Any]) -> dict[str, Any]:
    """The section `train` with the full path of `init` and the hash of its weights, unless the hash is stored."""
    init = given.get("init")
    if not isinstance(init, str | Path) or not str(init) or given.get("init_hash"):
        return dict(given)
    path = weight_file(Path(init).expanduser())
    return {**given, "init": str(path.resolve()), "init_hash": weights_hash(read_start(path)[0])}


def weight_file(path: Path) -> Path:
    """The file of weights that `path` means: itself, or the one in a folder."""
    if path.is_dir():
        found = next((files for pattern in IN_FOLDER if (files := sorted(path.glob(pattern)))), [])
        if len(found) > 1:
            raise HeroError(f"{path} holds {len(found)} files of weights; name one of them, such as {found[0]}.")
        path = found[0] if found else path / IN_FOLDER[0]
    if not path.is_file():
        raise HeroError(f"there are no weights {path}; name a run folder, a .safetensors file or a state_dict file.")
    return path


class LeftOut:
    """Stands for whatever a file holds besides tensors and plain values, in the place of the code that it names."""

    def __new__(cls, *args: Any, **kwargs: Any) -> LeftOut:
        return super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __setstate__(self, state: Any) -> None: ...


def read_torch(file: Path | bytes) -> Any:
    """The content of a file of torch.save with `LeftOut` in the place of every object that is not plain."""

    def opened() -> Path | io.BytesIO:
        return io.BytesIO(file) if isinstance(file, bytes) else file

    unknown = get_unsafe_globals_in_checkpoint(opened()) if zipfile.is_zipfile(opened()) else []
    with safe_globals([(LeftOut, name) for name in unknown]):
        return torch.load(opened(), map_location="cpu", weights_only=True)


def inside_archive(path: Path) -> bytes:
    """The file of weights in an archive of PhysicsNeMo, a tar or a zip without compression."""
    if tarfile.is_tarfile(path):
        with tarfile.open(path, "r:") as tar:
            member = tar.extractfile("model.pt")
            return member.read() if member else b""
    with zipfile.ZipFile(path) as archive:
        if archive.getinfo("model.pt").file_size > path.stat().st_size:
            raise ValueError("it is compressed")
        return archive.read("model.pt")


def read_start(path: Path) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The tensors of a checkpoint by name, and the names of what else it holds; HeroError if it holds none."""
    try:
        if path.suffix == ".safetensors":
            content: Any = read_safetensors(path)[0]
        else:
            check_stored(path)
            with warnings.catch_warnings(action="ignore"):  # torch warns of foreign pickles, which we refuse
                content = read_torch(inside_archive(path) if path.suffix == ".mdlus" else path)
    except PermissionError:
        raise NoPermissionError(path) from None
    except pickle.UnpicklingError:
        raise HeroError(
            f"{path} holds Python objects besides tensors, which hero never runs; save its tensors alone with {SAVE}."
        ) from None
    except (
        *(safetensors.SafetensorError, tarfile.TarError, zipfile.BadZipFile),
        *(OSError, RuntimeError, LookupError, EOFError, TypeError, ValueError),
    ) as error:
        raise HeroError(f"{path} is no readable file of weights ({reason_of(error)}); save one with {SAVE}.") from None
    others: list[str] = []
    while isinstance(content, dict) and (key := next((key for key in NESTED if key in content), None)) is not None:
        if not isinstance(content[key], dict):
            break
        others += [str(other) for other in content if other != key]
        content = content[key]
    items = content.items() if isinstance(content, dict) else ()
    weights = {name.replace(COMPILED, ""): x for name, x in items if isinstance(name, str) and isinstance(x, Tensor)}
    if not weights or any(x.is_meta for x in weights.values()):
        raise HeroError(f"{path} holds no named tensors with values; save them with {SAVE}.")
    return weights, (*others, *(str(name) for name, x in items if not isinstance(x, Tensor)))


def weights_hash(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, types, shapes and values, whatever file or wrapper they are in."""
    digest = hashlib.sha256()
    for name, tensor in sorted((WRAPPED.sub("", name), tensor) for name, tensor in weights.items()):
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    return digest.hexdigest()


@dataclass(frozen=True)
class Start:
    """The tensors of a file under the names of the module that they fit."""

    target: nn.Module
    found: dict[str, Tensor]
    misfits: dict[str, list[str]]  # names that do not match, by kind
    left_out: tuple[str, ...]  # names of what is not a tensor

    @classmethod
    def of(cls, weights: Mapping[str, Tensor], target: nn.Module, left_out: tuple[str, ...]) -> Start:
        wanted = {name: tuple(x.shape) for name, x in weights_of(target).items()}
        shapes = {name: tuple(x.shape) for name, x in weights.items()}
        misfits = {
            "missing": [name for name in wanted if name not in shapes],
            "unexpected": [name for name in shapes if name not in wanted],
            "wrongly shaped": [
                f"{name} {shape} instead of {wanted[name]}"
                for name, shape in shapes.items()
                if wanted.get(name, shape) != shape
            ],
        }
        return cls(target, {n: x for n, x in weights.items() if wanted.get(n) == shapes[n]}, misfits, left_out)

    @property
    def difference(self) -> str:
        """The names that do not match, in words: "2 missing (a, b), 1 unexpected (c)"."""
        return ", ".join(f"{len(names)} {kind} ({first_of(names)})" for kind, names in self.misfits.items() if names)

    def put(self) -> None:
        self.target.load_state_dict(self.found, strict=False)


def open_start(model: nn.Module, train: TrainSettings, backbone: str) -> Start:
    """Put the weights of `train.init` into the operator `model`, or into the backbone inside its wrappers."""
    path = weight_file(Path(train.init))
    weights, others = read_start(path)
    if weights_hash(weights) != train.init_hash:
        raise HeroError(f"{path} has changed since this run was configured; restore it, or start a new run.")
    if train.init_prefix:
        cut = len(train.init_prefix)
        weights = {name[cut:]: x for name, x in weights.items() if name.startswith(train.init_prefix)}
    targets = dict.fromkeys((model, own_module(model)))
    starts = [Start.of(named, target, others) for named in renamings(weights) for target in targets]
    start = min(starts, key=lambda start: sum(map(len, start.misfits.values())))
    if start.difference and (train.init_strict or not start.found):
        raise HeroError(
            f"{path} does not fit backbone {backbone}: of {len(weights_of(start.target))} tensors, {start.difference}; "
            "give backbone.kwargs and settings as it was trained with, name a common prefix with "
            "train.init_prefix=PREFIX, or allow differences with train.init_strict=false."
        )
    start.put()
    return start


def renamings(weights: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """The weights under the names of the file, then with one prefix of a wrapper after the other removed."""
    named = dict(weights)
    while True:
        yield named
        shorter = {re.sub(f"^{PREFIX}", "", name): x for name, x in named.items()}
        if shorter.keys() == named.keys() or len(shorter) < len(named):  # nothing to remove, or names would meet
            return
        named = shorter


def own_module(model: nn.Module) -> nn.Module:
    """The backbone inside the wrappers that make it the operator."""
    while isinstance(model, Wrapper):
        model = model.backbone
    return model


def freeze(model: nn.Module, patterns: tuple[str, ...]) -> None:
    """Keep the backbone's parameters that match a pattern, as in `encoder.*`, out of training."""
    parameters = dict(own_module(model).named_parameters())
    for pattern in patterns:
        for name in matching("freeze", pattern, parameters):
            parameters[name].requires_grad_(False)
    if not any(p.requires_grad for p in model.parameters()):
        raise HeroError(f"train.freeze={','.join(patterns)} leaves no parameter to train; freeze fewer.")


def start_notes(model: nn.Module, train: TrainSettings, start: Start | None) -> Iterator[str]:
    """Sentences on the weights that a run starts from and on the parameters that it leaves as they are."""
    if start is not None:
        differs = f"; {start.difference}" if start.difference else ""
        others = f"; left out, not being tensors: {first_of(start.left_out)}" if start.left_out else ""
        yield f"starting from {len(start.found)} tensors of {train.init}{differs}{others}"
    if train.freeze or train.lora:
        total = sum(p.numel() for p in model.parameters())
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        adapters = f"; adapters of rank {train.lora}, merged when weights are kept" if train.lora else ""
        frozen = f"; frozen: {', '.join(train.freeze)}" if train.freeze else ""
        yield f"training {trained:,} of {total:,} parameters{adapters}{frozen}"


def first_of(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")
