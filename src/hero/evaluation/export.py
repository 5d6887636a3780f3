"""A trained run -> one file that needs none of our code: ONNX, or a program of torch.export.

    from hero.evaluation.export import export_run, load_stepper
    export_run(run, data_dir)                          # checks what it writes
    step = load_stepper(run / "export" / "model.onnx")
    rollout(step, Context(states), 200)

A file maps `states` (batch, H*channels, *space) in physical units to `next` (batch, channels, *space): normalisation is
inside, the batch is free, the grid is the one of the run. With `train.bundle` it gives so many times the channels. It
carries a JSON description of where it comes from.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import types
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from hero.console import console, progress_bar
from hero.data.windows import Context
from hero.errors import HeroError, unknown_name
from hero.files import write_atomic
from hero.method import metrics
from hero.method.distance import EPS, norm, state_distance
from hero.method.rollout import Stepper, as_stepper, rollout
from hero.models.wrappers import MixedPrecision
from hero.runs.checkpoint import load_weights
from hero.runs.config import RunConfig
from hero.runs.folder import choose_device, load_data, versions
from hero.runs.old import load_run
from hero.strategies import Strategy

CHECK_STEPS = 100
BOUND = 1e-4
"""Largest relative difference of one step: rounding of float32 stays two orders below, a wrong graph far above."""
TRACED_BATCH = 2  # torch.export takes a batch of 1 for a constant
ONNX_LIMIT = 2**31 - 2**20
"""Bytes that one protobuf message can hold, less room for the graph itself."""
DESCRIPTION = "hero.json"

Apply = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class About:
    """What an exported file says about itself."""

    run: str
    step: int
    """Update of the checkpoint, the best one by validation."""
    task: str
    settings: dict[str, Any]
    """Coefficients and numerics of the task."""
    test: dict[str, Any]
    """The test split, from which `hero predict` starts if no other states are given."""
    grid: list[int]
    dt: float
    history: int
    channels: int
    bundle: int
    """Steps per call."""
    hero: str
    """Version of this library."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one sample: (H*channels, *space)."""
        return (self.history * self.channels, *self.grid)


@dataclass(frozen=True)
class Operator:
    """One step of a trained run, from its folder or from an exported file: a Stepper that knows its shapes."""

    about: About
    step: Stepper
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    model: nn.Module | None = None
    """The network, where it is at hand and a step is one call of it."""

    def __call__(self, context: Context) -> Tensor:
        shape = tuple(context.inputs().shape)
        if shape[1:] != self.about.input_shape:
            raise HeroError(
                f"states of shape {shape} do not fit run {self.about.run}; "
                f"give (batch, {', '.join(map(str, self.about.input_shape))})."
            )
        return self.step(context)


@dataclass(frozen=True)
class Format:
    """How a kind of file is made and read."""

    file: str
    packages: tuple[str, ...]
    encode: Callable[[ExportedProgram, str], bytes]
    decode: Callable[[bytes], tuple[Apply, str]]
    """The program and its description."""


class Step(nn.Module):
    """The deployed step as a module: states (batch, H*channels, *space) -> (batch, bundle*channels, *space)."""

    def __init__(self, model: nn.Module, stepper: Stepper, history: int) -> None:
        super().__init__()
        self.model, self.stepper, self.history = model, stepper, history

    def forward(self, states: Tensor) -> Tensor:
        return self.stepper(Context(states.unflatten(1, (self.history, -1))))


def export_run(
    run: Path, data_dir: Path, out: Path | None = None, formats: Sequence[str] = ("onnx", "torch")
) -> dict[str, dict[str, Any]]:
    """Export the best checkpoint of `run` into `out` (default RUN/export), each file checked before it is written.

    Returns path, bytes and the figures of `check` per format; HeroError, and that file unwritten, if it differs.
    """
    for name in formats:
        if name not in FORMATS:
            raise unknown_name("format", name, FORMATS)
        for package in FORMATS[name].packages:
            require(package)
    config, model, about = load_model(run)
    model = in_float32(model)
    step = Step(model, config.make_strategy().stepper(model), about.history)
    test = load_data(config, "test", data_dir, "cpu")
    console.print(f"exporting {run.name}: some seconds without progress", style="dim", highlight=False, soft_wrap=True)
    program = trace(step, about)
    results: dict[str, dict[str, Any]] = {}
    for name in formats:
        kind = FORMATS[name]
        path = (out or run / "export") / kind.file
        with explained(f"run {run.name} cannot be exported to {kind.file}", "try the other --format"):
            data = kind.encode(program, json.dumps(asdict(about)))
        figures = check(decode(data, kind, path), as_stepper(step), test, about.history, path)
        results[name] = {"path": str(write_atomic(path, data)), "bytes": len(data), **figures}
    return results


def load_stepper(path: Path) -> Operator:
    """An exported file as a Stepper for `hero.rollout`; what it says about itself is in `.about`."""
    path = Path(path)
    kind = {Path(kind.file).suffix: kind for kind in FORMATS.values()}.get(path.suffix)
    if kind is None:
        raise HeroError(f"{path} is neither an .onnx nor a .pt2 file; make one with `hero export RUN`.")
    if not path.is_file():
        raise HeroError(f"there is no file {path}; make it with `hero export RUN`.")
    return decode(path.read_bytes(), kind, path)


def run_stepper(run: Path) -> Operator:
    """The same from the folder of a run, on the device of the run."""
    config, model, about = load_model(run)
    device, strategy = choose_device(config.train.device), config.make_strategy()
    plain = type(strategy).stepper is Strategy.stepper
    return Operator(about, strategy.stepper(model.to(device)), device, model if plain else None)


def load_model(run: Path) -> tuple[RunConfig, nn.Module, About]:
    """The best checkpoint of a run, ready to be applied, and its description."""
    config = load_run(run)
    task = config.make_task()
    model = config.build_operator().eval().requires_grad_(False)
    stored = load_weights(run / "model.safetensors", model)
    about = About(
        run=run.resolve().name,
        step=stored["step"],
        task=task.name,
        settings=task.settings(),
        test=asdict(config.split("test")),
        grid=[task.resolution] * task.dims,
        dt=task.dt,
        history=config.train.history,
        channels=task.channels,
        bundle=config.train.bundle,
        hero=versions()["hero"],
    )
    return config, model, about


def in_float32(model: nn.Module) -> nn.Module:
    """The model without autocast, whose bfloat16 would be far coarser than the differences that `check` looks for."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, MixedPrecision):
                setattr(module, name, child.backbone)
    return model.backbone if isinstance(model, MixedPrecision) else model


@torch.no_grad()
def trace(step: Step, about: About) -> ExportedProgram:
    """The graph of `step` for any batch on the grid of the run."""
    states = torch.zeros(TRACED_BATCH, *about.input_shape)
    step(states)  # fills the caches of the model with real tensors, outside of the trace
    with explained(f"run {about.run} cannot be traced by torch.export", "change what its backbone does with shapes"):
        return torch.export.export(step, (states,), dynamic_shapes={"states": {0: Dim("batch")}})


@torch.no_grad()
def check(exported: Stepper, original: Stepper, test: Tensor, history: int, path: Path) -> dict[str, float]:
    """Compare over 100 steps from test states (batch, time, channel, *space); HeroError if one step differs.

    Judged is every single call along the rollout û of the original:  ‖E(ẑ_k) - G(ẑ_k)‖ ≤ 1e-4 max_{j≤k} ‖û_j‖.
    The two free rollouts are only reported: a chaotic equation makes any rounding large within 100 steps. The scale is
    the largest state so far, since a state that has decayed below the rounding inside the operator has no digits left.
    """
    test = test[: 3 if len(test) >= 3 else 1]  # never the batch of the trace
    start, truth = test[:, :history], test[:, history : history + CHECK_STEPS]
    with progress_bar(f"checking {path.name}", 4 * CHECK_STEPS) as advance:
        original, exported = counted(original, advance), counted(exported, advance)
        reference = rollout(original, Context(start), CHECK_STEPS)
        free = rollout(exported, Context(start), CHECK_STEPS)
        states = torch.cat([start, reference], dim=1)
        contexts = [Context(states[:, k : k + history]) for k in range(CHECK_STEPS)]
        made, again = (torch.stack([step(z) for z in contexts], dim=1) for step in (original, exported))

    finite = made.isfinite().flatten(2).all(dim=2).cummin(dim=1).values
    scale = norm(torch.cat([start, made.unflatten(2, (-1, start.shape[2]))[:, :, 0]], dim=1).double())
    scale = scale.cummax(dim=1).values[:, history:] + EPS
    differences = (norm((again - made).double()) / scale).nan_to_num(nan=torch.inf)
    worst = float(torch.where(finite, differences, 0.0).max())
    if not bool(finite[:, 0].all()):
        raise HeroError(f"{path} cannot be checked, the run leaves the finite range in one step; train it again.")
    if worst > BOUND:
        raise HeroError(
            f"{path} is not the operator of the run: one step differs by {worst:.2g} relative, more than {BOUND:g}; "
            "it was not written, try the other --format."
        )
    apart = state_distance(free.double(), reference.double()).nan_to_num(nan=torch.inf).amax(dim=0)
    errors = {
        name: metrics.nrmse_at(metrics.nrmse(rolled, truth), CHECK_STEPS)
        for name, rolled in (("nrmse@100", free), ("original_nrmse@100", reference))
    }
    return {"one_step": worst, **{f"rollout@{k}": float(apart[k - 1]) for k in (1, 10, CHECK_STEPS)}, **errors}


def counted(step: Stepper, advance: Callable[..., None]) -> Stepper:
    """`step` that moves a progress bar."""

    def advancing(context: Context) -> Tensor:
        advance()
        return step(context)

    return advancing


def decode(data: bytes, kind: Format, path: Path) -> Operator:
    """The operator in the bytes of `path`, tried once, so that a file of another kind is refused here."""
    with explained(f"{path} is damaged or was not written by `hero export`", "export the run again"):
        apply, description = kind.decode(data)
        about = About(**json.loads(description))
        shape = tuple(apply(torch.zeros(1, *about.input_shape)).shape)
        if shape != (1, about.bundle * about.channels, *about.grid):
            raise ValueError(f"it gives {shape}")

    def step(context: Context) -> Tensor:
        return apply(context.inputs().detach().cpu().float().contiguous()).to(context.states.device)

    return Operator(about, step)


def encode_onnx(program: ExportedProgram, description: str) -> bytes:
    """One self-contained file."""
    onnx = torch.onnx.export(
        program,
        input_names=["states"],
        output_names=["next"],
        dynamic_shapes={"states": {0: "batch"}},
        dynamo=True,
        verbose=False,
    )
    assert onnx is not None
    size = sum(value.const_value.nbytes for value in onnx.model.graph.initializers.values() if value.const_value)
    if size > ONNX_LIMIT:
        raise HeroError(
            f"the operator has {size / 1e9:.1f} GB of weights and one ONNX file holds at most 2 GB; use --format torch."
        )
    onnx.model.metadata_props[DESCRIPTION] = description
    return bytes(onnx.model_proto.SerializeToString())


def decode_onnx(data: bytes) -> tuple[Apply, str]:
    ort = require("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4  # errors arrive as exceptions
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    description = session.get_modelmeta().custom_metadata_map.get(DESCRIPTION)
    if description is None:
        raise ValueError(f"it has no {DESCRIPTION}")
    return lambda states: torch.from_numpy(session.run(["next"], {"states": states.numpy()})[0]), description


def encode_torch(program: ExportedProgram, description: str) -> bytes:
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={DESCRIPTION: description})
    return buffer.getvalue()


def decode_torch(data: bytes) -> tuple[Apply, str]:
    # The description comes first: a file without it is refused before torch.export.load, which may run code from it.
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = [name for name in archive.namelist() if name.endswith(f"/extra/{DESCRIPTION}")]
        if not names:
            raise ValueError(f"it has no {DESCRIPTION}")
        description = archive.read(names[0]).decode()
    return torch.export.load(io.BytesIO(data)).module(), description


FORMATS: dict[str, Format] = {
    "onnx": Format("model.onnx", ("onnx", "onnxscript", "onnxruntime"), encode_onnx, decode_onnx),
    "torch": Format("model.pt2", (), encode_torch, decode_torch),
}


def require(package: str) -> types.ModuleType:
    """An optional package, or a HeroError that says how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise HeroError(
            f"ONNX files need the package {package}; pip install 'hero[onnx]', or use the torch format."
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
