"""Exported files: how each kind holds a program and its model card, and one step of a file as a Stepper.

`FORMATS` has the kinds. `hero.deploy.export` writes files of them, and says what they map to what.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import platform
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from hero.data.trajectories import Context
from hero.deploy.card import ModelCard
from hero.deploy.real import has_free_batch, in_real_numbers
from hero.errors import HeroError, install_hint, optional
from hero.files import FIELD, UNSEALED, is_whole, sealed, sealed_archive
from hero.method.rollout import Stepper
from hero.training.compile import keep_compiled_code, options_of_compiler

INPUTS = ("states", "mu")
ONNX_LIMIT = 2**31 - 2**20  # bytes that one protobuf message can hold, less room for the graph itself
CARD = "hero.json"  # name of the model card inside a file
Apply = Callable[..., Tensor]  # (states), or (states, mu) -> next


@dataclass(frozen=True)
class Exported:
    """One step of an exported file: a Stepper that knows its shapes."""

    card: ModelCard
    step: Stepper

    def __call__(self, context: Context) -> Tensor:
        shape = tuple(context.inputs().shape)
        if shape[1:] != self.card.input_shape:
            raise HeroError(
                f"states of shape {shape} do not fit run {self.card.run}; "
                f"use (batch, {', '.join(map(str, self.card.input_shape))})."
            )
        return self.step(context)


@dataclass(frozen=True)
class ExportFormat:
    """How one kind of file is written and read."""

    file: str
    packages: tuple[str, ...]
    encode: Callable[[ExportedProgram, str], bytes]
    decode: Callable[[bytes], tuple[Apply, str]]  # the program and its model card
    is_data: bool = False  # whether reading it can run no code
    compiled: bool = False  # whether its graph is compiled to machine code


def load_stepper(path: Path, trust_code: bool = False) -> Exported:
    """An exported file as a Stepper for `hero.rollout`; `.card` describes it. Only ONNX needs no `trust_code`."""
    path = Path(path)
    kind = {Path(kind.file).suffix: kind for kind in FORMATS.values()}.get(path.suffix)
    if kind is None:
        raise HeroError(f"{path} is neither an .onnx, a .pt2 nor an .aot file; write one with `hero export RUN`.")
    if not path.is_file():
        raise HeroError(f"there is no file {path}; write it with `hero export RUN`.")
    if not kind.is_data and not trust_code:
        raise HeroError(f"loading {path} can run code that is in it; use `trust_code` if you trust its author.")
    return decode(path.read_bytes(), kind, path)


def decode(data: bytes, kind: ExportFormat, path: Path) -> Exported:
    """The operator in the bytes of `path`, tried once, so that a file of another kind is refused here."""
    with explained(f"{path} is damaged or was not written by `hero export`", "export the run again"):
        if not is_whole(data):
            raise ValueError("its checksum differs")
        apply, text = kind.decode(data)
        card = ModelCard.model_validate_json(text)
        shape = tuple(apply(*card.zeros(1)).shape)
        if shape != (1, card.bundle * card.channels, *card.grid):
            raise ValueError(f"it returns {shape}")

    def step(context: Context) -> Tensor:
        parts = card.parts(context)
        calls = zip(*(part.split(card.batch or len(part)) for part in parts), strict=True)
        return torch.cat([apply(*call) for call in calls]).to(context.states.device)

    return Exported(card, step)


def encode_onnx(program: ExportedProgram, card: str) -> bytes:
    """One self-contained file."""
    program = in_real_numbers(program)
    count = len(program.graph_signature.user_inputs)
    free = {0: "batch"} if has_free_batch(program) else {}
    onnx = torch.onnx.export(
        program,
        input_names=list(INPUTS[:count]),
        output_names=["next"],
        dynamic_shapes=dict.fromkeys(INPUTS[:count], free),
        dynamo=True,
        verbose=False,
    )
    assert onnx is not None
    size = sum(value.const_value.nbytes for value in onnx.model.graph.initializers.values() if value.const_value)
    if size > ONNX_LIMIT:
        raise HeroError(
            f"the operator has {size / 1e9:.1f} GB of weights, an ONNX file holds at most 2 GB; use the format torch."
        )
    onnx.model.metadata_props.update({CARD: card, FIELD: UNSEALED})
    return sealed(onnx.model_proto.SerializeToString())


def decode_onnx(data: bytes) -> tuple[Apply, str]:
    ort = require("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4  # errors arrive as exceptions
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    card = session.get_modelmeta().custom_metadata_map.get(CARD)
    if card is None:
        raise ValueError(f"it has no {CARD}")

    def apply(*inputs: Tensor) -> Tensor:
        feeds = {name: part.numpy() for name, part in zip(INPUTS, inputs, strict=False)}
        return torch.from_numpy(session.run(["next"], feeds)[0])

    return apply, card


def encode_torch(program: ExportedProgram, card: str) -> bytes:
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={CARD: card})
    return sealed_archive(buffer)


def decode_torch(data: bytes) -> tuple[Apply, str]:
    card = card_of(data)
    return torch.export.load(io.BytesIO(data)).module(), card


def card_of(data: bytes) -> str:
    """The card of an archive, read first: a file without it is refused before a loader may run code from it."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = [name for name in archive.namelist() if name.endswith(f"/extra/{CARD}")]
        if not names:
            raise ValueError(f"it has no {CARD}")
        return archive.read(names[0]).decode()


def processor() -> str:
    """The machine that compiled code is for, such as x86_64 AVX512."""
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def encode_aot(program: ExportedProgram, card: str) -> bytes:
    """Machine code by AOTInductor, with what follows from the weights alone computed when the file is opened."""
    keep_compiled_code()
    options = options_of_compiler(**{"aot_inductor.use_runtime_constant_folding": True})
    ours = ModelCard.model_validate_json(card).model_copy(update={"processor": processor()})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt2"
        torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=options)
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(f"model/extra/{CARD}", ours.model_dump_json())
        return sealed_archive(io.BytesIO(path.read_bytes()))


def decode_aot(data: bytes) -> tuple[Apply, str]:
    card = card_of(data)
    made_for = json.loads(card)["processor"]
    if made_for != processor():  # its instructions could end the process
        raise HeroError(f"the file was compiled for {made_for}, and this is {processor()}; export the run here.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt2"
        path.write_bytes(data)
        return torch._inductor.aoti_load_package(str(path)), card


FORMATS: dict[str, ExportFormat] = {
    "onnx": ExportFormat("model.onnx", ("onnx", "onnxscript", "onnxruntime"), encode_onnx, decode_onnx, is_data=True),
    "torch": ExportFormat("model.pt2", (), encode_torch, decode_torch),
    "aot": ExportFormat("model.aot", (), encode_aot, decode_aot, compiled=True),
}


def require(package: str) -> Any:
    """A package that ONNX files need."""
    hint = f"{install_hint('onnx')}, or use the torch format"
    return optional(package, f"ONNX files need the package {package}; {hint}.")


@contextlib.contextmanager
def explained(what: str, remedy: str) -> Iterator[None]:
    """Silence for the exporters and loaders, which print pages; whatever they raise becomes one sentence."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except HeroError:
        raise
    except Exception as error:  # each backend has its own
        reason = next(iter(str(error).strip().splitlines()), "")[:200].rstrip(".")
        raise HeroError(f"{what} ({type(error).__name__}{': ' * bool(reason)}{reason}); {remedy}.") from error
    finally:
        logging.disable(disabled)
