"""One part of each kind, added from outside: each is an object with its settings, its display name and its behaviour,
and one line that registers it. Name this module in HERO_IMPORT and the command line, studies and pages have them all:

    cd examples
    HERO_IMPORT=extending hero train damped_advection --backbone stencil --strategy weighted_steps
    HERO_IMPORT=extending hero train damped_advection --set hero.candidates=lag,frozen --set hero.diagnostics=roll,mean
    HERO_IMPORT=extending hero train damped_advection --strategy push_forward --set train.loss=largest
    HERO_IMPORT=extending hero study stencils --seeds 2
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from hero.config import Settings, setting
from hero.data import TASKS, Task
from hero.data.windows import Batch
from hero.method.candidates import CANDIDATES, Candidate, CandidateInputs
from hero.method.diagnostics import DIAGNOSTICS, Diagnostic, TrajectoryErrors
from hero.method.losses import LOSSES, Relative
from hero.method.metrics import METRICS, Metric
from hero.models import BACKBONES, Backbone, BackboneSettings
from hero.strategies import STRATEGIES, Loss, Strategy
from hero.study.plans import STUDIES, Study, strategy_rows
from hero.study.records import ROLLOUT_COLUMNS, MetricColumn

# A task: the symbol of its linear part is all that the solver needs.
TASKS["damped_advection"] = Task(
    name="damped_advection",
    title="Damped advection",
    equation="u_t = -speed·u_x - damping·u",
    dims=1,
    parameters={"speed": 1.0, "damping": 0.1},
    linear=lambda task, grid: -task.parameters["speed"] * grid.gradient[0] - task.parameters["damping"],
    extent=1.0,
    resolution=64,
    dt=0.01,
)


# A backbone: its settings are the arguments of its class.
class StencilSettings(BackboneSettings):
    """A periodic stencil."""

    points: int = setting(5, "Points of the stencil.", ge=1)


class Stencil(nn.Conv1d):
    """One circular convolution."""

    def __init__(self, in_channels: int, out_channels: int, points: int) -> None:
        super().__init__(in_channels, out_channels, points, padding="same", padding_mode="circular")


BACKBONES["stencil"] = Backbone("Stencil", "Sten.", StencilSettings, lambda s, dims, i, o: Stencil(i, o, **s.own()))


# A strategy: a window becomes a loss. Later steps count more.
class WeightedStepsSettings(Settings):
    """Weights of the steps of a window."""

    ratio: float = setting(2.0, "Weight of a step over the weight of the step before.", gt=0)


class WeightedSteps(Strategy[WeightedStepsSettings]):
    """L = Σ_k r^k ‖û_k - u_k‖² / Σ_k r^k."""

    title: ClassVar[str] = "Weighted steps"
    suffix: ClassVar[str] = "-weighted"
    section: ClassVar[str] = "weighted_steps"
    Settings: ClassVar[type[Settings]] = WeightedStepsSettings

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        tau = self.unroll(model, batch.context, batch.truth.shape[1])
        weights = self.settings.ratio ** torch.arange(tau.shape[1], device=tau.device, dtype=tau.dtype)
        errors = (tau - batch.truth).square().flatten(2).mean(dim=(0, 2))
        return Loss((weights * errors).sum() / weights.sum(), {"last_step_error": errors[-1].detach()})


STRATEGIES["weighted_steps"] = WeightedSteps


# An absolute loss, for every strategy: how far a rollout is from the truth.
class LargestError(Relative):
    """mean over samples and steps of max |û - u| / max |u|."""

    def __call__(self, tau: Tensor, truth: Tensor) -> Tensor:
        error, size = (x.flatten(2).abs().amax(dim=2) for x in (tau - truth, truth))
        return (error / size.clamp(min=1e-12)).mean()


LOSSES["largest"] = LargestError


# A candidate of HERO: a rollout that never moves.
def frozen(inputs: CandidateInputs) -> Tensor:
    """τ_frozen = (u_n, .., u_n)."""
    return inputs.context.states[:, -1:].expand_as(inputs.current)


CANDIDATES["frozen"] = Candidate("frozen state", frozen)


# A diagnostic of HERO: a number per sample, larger for a worse trajectory.
def mean_drift(tau: TrajectoryErrors) -> Tensor:
    """E_mean = mean_k |mean(v_k) - mean(u_k)|."""
    return (tau.states - tau.truth.states).flatten(2).mean(dim=2).abs().mean(dim=1)


DIAGNOSTICS["mean"] = Diagnostic("drift of the mean", mean_drift)

# A metric: a number from the errors (trajectory, step) of a test set; it appears in metrics.json and in tables.
METRICS["worst@50"] = Metric(
    "Worst nRMSE@50",
    "lower",
    "Largest relative error of any trajectory after 50 steps.",
    lambda errors: errors[:, 49].max(),
    steps=50,
)

# A study: rows, tasks, backbones and columns; the new metric becomes a column of its table.
STUDIES["stencils"] = Study(
    "Stencils",
    tasks=("damped_advection",),
    backbones=("stencil",),
    rows=strategy_rows("push_forward", "weighted_steps"),
    columns=(*ROLLOUT_COLUMNS, MetricColumn.of("worst@50")),
)
