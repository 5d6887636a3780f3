"""A trained run -> one file that needs no code of hero: ONNX, a program of torch.export, or one that is compiled.

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

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from hero.console import progress_bar, say
from hero.data.trajectories import Context, Trajectories
from hero.deploy.card import ModelCard
from hero.deploy.exported import FORMATS, INPUTS, Exported, decode, encode_aot, explained, require
from hero.deploy.real import has_free_batch, without_paths
from hero.errors import HeroError, unknown_name
from hero.files import write_atomic
from hero.method import measures, metrics
from hero.method.distance import EPS, norm, state_distance
from hero.method.norm import Norm
from hero.method.rollout import Stepper, as_stepper, counted, rollout
from hero.models.spectral import FOR_COMPILER
from hero.models.wrappers import MixedPrecision
from hero.runs.folder import Run, load_data

CHECK_STEPS = 100  # steps of the rollouts that are compared, or as many as the test data have
BOUND = 1e-4  # largest relative difference of one step: float32 rounds two orders below, a wrong graph is far above
TRACED_BATCH = 2  # torch.export takes a batch of 1 for a constant


@dataclass(frozen=True)
class Check:
    """Relative differences of an exported file from the original, and the test error of both."""

    path: Path
    one_step: float  # largest along the rollout of the original
    rollout: dict[int, float]  # difference of the two free rollouts at some steps
    steps: int  # length of the rollouts
    measure: str
    error: float  # at the last step
    original_error: float  # likewise


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
            return without_paths(torch.export.export(step, inputs, dynamic_shapes=shapes))
        except torch._dynamo.exc.UserError:  # a shape that is not free
            return without_paths(torch.export.export(step, card.zeros(1)))
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
    with progress_bar(f"checking {path.name}", 4 * steps * len(test)) as advance:
        original, exported = counted(original, advance), counted(exported, advance)
        reference, free = (measured.without_masked(rollout(step, context, steps)) for step in (original, exported))
        rolled = replace(test, states=torch.cat([context.states, reference], dim=1))
        windows = [rolled.window(k, history) for k in range(steps)]
        calls = [torch.stack([step(z) for z in windows], dim=1) for step in (original, exported)]
    made, again = (x.unflatten(2, (-1, test.shape[2])) for x in calls)  # (batch, call, step of a bundle, channel, ..)
    finite = measured.without_masked(made).isfinite().flatten(2).all(dim=2).cummin(dim=1).values
    if not bool(finite[:, 0].all()):
        raise HeroError(f"{path} cannot be checked, the run leaves the finite range in one step; train it again.")
    differences = step_differences(made, again, context.states, measured)
    worst = float(torch.where(finite, differences, 0.0).max())
    if worst > BOUND:
        raise HeroError(
            f"{path} is not the operator of the run: one step differs by {worst:.2g} relative, more than {BOUND:g}; "
            "it was not written, try another format."
        )
    away = state_distance(scaled(free, measured), scaled(reference, measured), measured.weights)
    away = away.nan_to_num(nan=torch.inf).amax(dim=0)
    score = measures.MEASURES[measured.measure]
    errors = [measures.nrmse_at(score(rolled, truth, measured), steps) for rolled in (free, reference)]
    shown = sorted({k for k in (1, 10, steps) if k <= steps})
    title = metrics.Scoring(measure=measured.measure).title
    return Check(path, worst, {k: float(away[k - 1]) for k in shown}, steps, title, *errors)


def step_differences(made: Tensor, again: Tensor, start: Tensor, measured: Norm) -> Tensor:
    """‖E(ẑ_k) - G(ẑ_k)‖ / max_{j≤k} ‖û_j‖, (batch, call); both are (batch, call, step of a bundle, channel, *space)."""
    sizes = norm(scaled(torch.cat([start, made[:, :, 0]], dim=1), measured), measured.weights)
    scale = sizes.cummax(dim=1).values[:, start.shape[1] :] + EPS
    apart = scaled(again.flatten(1, 2), measured) - scaled(made.flatten(1, 2), measured)
    differences = norm(apart.unflatten(1, made.shape[1:3]).flatten(2, 3), measured.weights)
    return (differences / scale).nan_to_num(nan=torch.inf)


def scaled(states: Tensor, measured: Norm) -> Tensor:
    """States in the units of the norm, in float64."""
    return measured.scaled(measured.without_masked(states.double()))


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
