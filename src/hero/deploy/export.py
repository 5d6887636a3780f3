"""A trained run -> one file that needs no code of hero: ONNX, a program of torch.export, or one that is compiled.

    from hero.deploy.export import export_run, load_stepper
    export_run(run, data_dir)                          # checks each file before it is written
    step = load_stepper(run / "export" / "model.onnx")
    rollout(step, Context(states), 200)

A file maps `states` (batch, H*channels, *space) in physical units to `next` (batch, channels, *space): normalisation is
inside, the grid is the grid of the run, the batch is free, or 1 where the code of the backbone fixes it. With
`train.bundle` it returns that many times the channels. An operator with conditioning or forcing has a second input,
`mu` (batch, p + q, *space), on which numbers are repeated: the conditioning, then the forcing at the time of the newest
state. It carries its model card as JSON.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import json
import logging
import platform
import tempfile
import types
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from hero.console import progress_bar, say
from hero.data.trajectories import Context, Trajectories
from hero.deploy.card import ModelCard
from hero.deploy.real import has_free_batch, in_real_numbers
from hero.errors import HeroError, install_hint, unknown_name
from hero.files import FIELD, UNSEALED, is_whole, sealed, sealed_archive, write_atomic
from hero.method import measures, metrics
from hero.method.distance import EPS, norm, state_distance
from hero.method.norm import Norm
from hero.method.rollout import Stepper, as_stepper, counted, rollout
from hero.models.spectral import FOR_COMPILER
from hero.models.wrappers import MixedPrecision
from hero.runs.folder import Run, load_data

CHECK_STEPS = 100
"""Steps of the rollouts that are compared, or as many as the test data have."""
BOUND = 1e-4
"""Largest relative difference of one step: rounding of float32 stays two orders below, a wrong graph far above."""
TRACED_BATCH = 2  # torch.export takes a batch of 1 for a constant
INPUTS = ("states", "mu")
ONNX_LIMIT = 2**31 - 2**20
"""Bytes that one protobuf message can hold, less room for the graph itself."""
CARD = "hero.json"
"""Name of the model card inside a file."""

Apply = Callable[..., Tensor]
"""(states), or (states, mu) -> next."""


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
    decode: Callable[[bytes], tuple[Apply, str]]
    """The program and its model card."""
    is_data: bool = False
    """Whether reading it can run no code."""
    compiled: bool = False
    """Whether its graph is compiled to machine code."""


@dataclass(frozen=True)
class Check:
    """Relative differences of an exported file from the original, and the test error of both."""

    path: Path
    one_step: float
    """Largest along the rollout of the original."""
    rollout: dict[int, float]
    """Difference of the two free rollouts at some steps."""
    steps: int
    """Length of the rollouts."""
    measure: str
    error: float
    original_error: float
    """At the last step."""


class Step(nn.Module):
    """The deployed step as a module: states (batch, H*channels, *space), μ -> (batch, bundle*channels, *space).

    Masked points come out as NaN, and may hold anything in the input.
    """

    mask: Tensor | None

    def __init__(self, model: nn.Module, stepper: Stepper, history: int, mask: Tensor | None = None) -> None:
        super().__init__()
        self.model, self.stepper, self.history = model, stepper, history
        self.register_buffer("mask", mask)

    def forward(self, states: Tensor, mu: Tensor | None = None) -> Tensor:
        made = self.stepper(Context(states.unflatten(1, (self.history, -1)), mu))
        if self.mask is None:
            return made
        return torch.where(self.mask, made.unflatten(1, (-1, len(self.mask))), torch.nan).flatten(1, 2)


def export_run(
    run: Path, data_dir: Path, out: Path | None = None, formats: Sequence[str] = ("onnx", "torch")
) -> dict[str, Check]:
    """Export the best checkpoint of `run` into `out` (default RUN/export), each file checked before it is written.

    Returns the checks by format; raises HeroError, and leaves that file unwritten, if it differs from the original.
    """
    for name in formats:
        if name not in FORMATS:
            raise unknown_name("format", name, FORMATS)
        for package in FORMATS[name].packages:
            require(package)
    opened = Run(run)
    card, model = ModelCard.of(opened), in_float32(opened.operator("cpu").requires_grad_(False))
    measured = opened.norm(data_dir)
    step = Step(model, opened.stepper(model), card.history, measured.mask)
    test = load_data(opened.config, "test", data_dir, "cpu")
    programs = {compiled: trace(step, card, compiled) for compiled in {FORMATS[name].compiled for name in formats}}
    if not all(map(has_free_batch, programs.values())):
        card = card.model_copy(update={"batch": 1})
        say("the code of the backbone fixes the size of a batch: the files take one state per call", style="dim")
    checks: dict[str, Check] = {}
    for name in formats:
        kind = FORMATS[name]
        path = (out or run / "export") / kind.file
        with explained(f"run {run.name} cannot be exported to {kind.file}", "try another format"):
            data = kind.encode(programs[kind.compiled], card.model_dump_json())
        checks[name] = check(decode(data, kind, path), opened.stepper(model), test, card.history, path, measured)
        write_atomic(path, data)
    return checks


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


def in_float32(model: nn.Module) -> nn.Module:
    """The model without autocast, whose bfloat16 would be far coarser than the differences that `check` looks for."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, MixedPrecision):
                setattr(module, name, child.backbone)
    return model.backbone if isinstance(model, MixedPrecision) else model


@torch.no_grad()
def trace(step: Step, card: ModelCard, compiled: bool = False) -> ExportedProgram:
    """The graph of `step` on the grid of the run for any batch, or for one state where its code fixes the batch.

    A graph that is `compiled` afterwards is written in the form that fuses best.
    """
    token = FOR_COMPILER.set(compiled)
    with explained(f"run {card.run} cannot be traced by torch.export", "remove shape-dependent code from its backbone"):
        step(*card.zeros(1))  # fills the caches of the model with real tensors, outside of the trace
        inputs = card.zeros(TRACED_BATCH)
        shapes = {name: {0: Dim("batch")} for name, _ in zip(INPUTS, inputs, strict=False)}
        try:
            return torch.export.export(step, inputs, dynamic_shapes=shapes)
        except torch._dynamo.exc.UserError:  # a shape that is not free
            return torch.export.export(step, card.zeros(1))
        finally:
            FOR_COMPILER.reset(token)


@torch.no_grad()
def check(
    exported: Stepper,
    original: Stepper,
    test: Trajectories | Tensor,
    history: int,
    path: Path,
    measured: Norm | None = None,
) -> Check:
    """Compare over up to 100 steps from test states, in the norm of the run; HeroError if one step differs.

    Every call along the rollout û of the original must satisfy  ‖E(ẑ_k) - G(ẑ_k)‖ ≤ 1e-4 max_{j≤k} ‖û_j‖.
    The two free rollouts are only reported: a chaotic equation makes any rounding large in long ones. The scale is
    the largest state so far, since a state that has decayed below the rounding inside the operator has no digits left.
    """
    test, measured = Trajectories.of(test)[: 3 if len(test) >= 3 else 1], measured or Norm()  # not the traced batch
    steps = min(CHECK_STEPS, test.shape[1] - history)
    context, truth = test.first(history), test.states[:, history : history + steps]
    start, weights = context.states, measured.weights

    def scaled(states: Tensor) -> Tensor:
        return measured.scaled(measured.without_masked(states.double()))

    with progress_bar(f"checking {path.name}", 4 * steps * len(test)) as advance:
        original, exported = counted(original, advance), counted(exported, advance)
        reference, free = (measured.without_masked(rollout(step, context, steps)) for step in (original, exported))
        states = torch.cat([start, reference], dim=1)
        along = [replace(context, states=states[:, k : k + history]) for k in range(steps)]
        contexts = [z if z.forcing is None else replace(z, forcing=z.forcing[:, k:]) for k, z in enumerate(along)]
        calls = [torch.stack([step(z) for z in contexts], dim=1) for step in (original, exported)]
    made, again = (x.unflatten(2, (-1, start.shape[2])) for x in calls)  # (batch, call, step of a bundle, channel, ..)
    finite = measured.without_masked(made).isfinite().flatten(2).all(dim=2).cummin(dim=1).values
    scale = norm(scaled(torch.cat([start, made[:, :, 0]], dim=1)), weights)
    scale = scale.cummax(dim=1).values[:, history:] + EPS
    apart = scaled(again.flatten(1, 2)) - scaled(made.flatten(1, 2))
    differences = norm(apart.unflatten(1, made.shape[1:3]).flatten(2, 3), weights)
    worst = float(torch.where(finite, (differences / scale).nan_to_num(nan=torch.inf), 0.0).max())
    if not bool(finite[:, 0].all()):
        raise HeroError(f"{path} cannot be checked, the run leaves the finite range in one step; train it again.")
    if worst > BOUND:
        raise HeroError(
            f"{path} is not the operator of the run: one step differs by {worst:.2g} relative, more than {BOUND:g}; "
            "it was not written, try another format."
        )
    away = state_distance(scaled(free), scaled(reference), weights).nan_to_num(nan=torch.inf).amax(dim=0)
    score = measures.MEASURES[measured.measure]
    errors = [measures.nrmse_at(score(rolled, truth, measured), steps) for rolled in (free, reference)]
    shown = sorted({k for k in (1, 10, steps) if k <= steps})
    title = metrics.Scoring(measure="vrmse" if measured.by_channel else "nrmse").title
    return Check(path, worst, {k: float(away[k - 1]) for k in shown}, steps, title, *errors)


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
    options = {"aot_inductor.use_runtime_constant_folding": True}
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


def compiling_pays(points: int, steps: int) -> bool:
    """Whether a rollout of `steps` states of so many points in all takes minutes; counted, never timed."""
    return steps * (1e-4 + 2e-7 * points) > 120


def compiled_step(network: nn.Module, card: ModelCard) -> Exported:
    """One step of the network of a run as machine code, for this process."""
    say("compiling one step for a long rollout: some seconds", style="dim")
    model = in_float32(copy.deepcopy(network).eval().requires_grad_(False))
    step = Step(model, as_stepper(model), card.history)
    with explained(f"run {card.run} cannot be compiled", "install a C++ compiler"):
        data = encode_aot(trace(step, card, compiled=True), card.model_dump_json())
    return decode(data, FORMATS["aot"], Path("the compiled step"))


FORMATS: dict[str, ExportFormat] = {
    "onnx": ExportFormat("model.onnx", ("onnx", "onnxscript", "onnxruntime"), encode_onnx, decode_onnx, is_data=True),
    "torch": ExportFormat("model.pt2", (), encode_torch, decode_torch),
    "aot": ExportFormat("model.aot", (), encode_aot, decode_aot, compiled=True),
}


def require(package: str) -> types.ModuleType:
    """An optional package, or a HeroError that says how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise HeroError(
            f"ONNX files need the package {package}; {install_hint('onnx')}, or use the torch format."
        ) from None


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
