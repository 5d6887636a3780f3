"""Measures of a rollout: (prediction, truth) -> values per trajectory and step, and how these are averaged.

Trajectories are `(batch, time, channel, *space)` and begin at rollout step 1: the initial state, which is given and not
predicted, is excluded. Everything is computed in float64, whatever precision the model ran in, over the valid points of
the run's `Norm`. Benchmarks are scored by the paper's nRMSE, files by the VRMSE of The Well, channel by channel
(docs/reference/metrics.md says why).

A rollout that leaves the finite range counts as **diverged** from that step on: its error is +inf and its correlation 0
from the first non-finite step to the end, also where later values happen to be finite again. No function returns NaN,
and no mean is taken over the surviving trajectories: one diverged rollout makes the mean infinite.

A relative error of a state that is zero everywhere is **undefined**: it counts as 0 where the prediction is exact, as
+inf otherwise, which is said once. A truth that is not finite is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from hero.console import say
from hero.errors import HeroError
from hero.method import EPS

if TYPE_CHECKING:  # torch is loaded where it computes: titles and definitions of metrics are listed without it
    import numpy as np
    from torch import Tensor

    from hero.method.norm import Norm

    Values = Tensor | np.ndarray

TAU = 0.1
CORRELATION_THRESHOLD = 0.8
SMALL = 1e-6  # norm of a state below which ε would be more than a millionth of it
HORIZON = 100  # steps that rollouts are scored over, as in the paper; fewer where the data are shorter
VARIANCE_FLOOR = 1e-7  # added to the variance of a state before it divides, in units of the training data's variance


@dataclass(frozen=True)
class Measure:
    """(prediction, truth) -> one value per trajectory and step, or one for each channel as well.

    `of_trajectory` sees one trajectory (time, channel, *space) and its truth in float64, and the norm of the run.
    """

    name: str
    of_trajectory: Callable[[Tensor, Tensor, Norm], Tensor]
    diverged: float  # the value from divergence on

    def __call__(self, prediction: Tensor, truth: Tensor, norm: Norm | None = None) -> Tensor:
        return measured([self], prediction, truth, norm)[self.name]


def measure(diverged: float) -> Callable[[Callable[[Tensor, Tensor, Norm], Tensor]], Measure]:
    """Decorator: a function of one trajectory (time, channel, *space), its truth and the norm becomes a `Measure`."""
    return lambda of_trajectory: Measure(of_trajectory.__name__, of_trajectory, diverged)


@measure(diverged=math.inf)
def nrmse(u_hat: Tensor, u: Tensor, norm: Norm) -> Tensor:
    """nRMSE_t^(j) = ‖û_t^(j) − u_t^(j)‖₂ / (‖u_t^(j)‖₂ + ε), norms over channels and space.

    A truth of norm 0 counts 0 if predicted exactly, else +inf. Below `SMALL` there is no ε, which would hide errors.
    """
    u_hat, u = norm.physical(u_hat), norm.physical(u)
    distance, size = (u_hat - u).flatten(1).norm(dim=1), u.flatten(1).norm(dim=1)
    return (distance / (size + EPS * (size > SMALL))).masked_fill(distance == 0, 0.0)


@measure(diverged=math.inf)
def channel_vrmse(u_hat: Tensor, u: Tensor, norm: Norm) -> Tensor:
    """VRMSE_{t,c} = (⟨|û_{t,c} − u_{t,c}|²⟩ / (⟨|u_{t,c} − ⟨u_{t,c}⟩|²⟩ + 10⁻⁷σ_c²))^½, ⟨·⟩ over the valid points.

    (time, channel). 1 is the error of a prediction that is the mean of the true state at every point. σ_c is the
    standard deviation in the training data, or of the true state where none are known.
    """
    from hero.data.trajectories import channel_scale

    mean = norm.channel_means(u)
    centred = u - mean.reshape(*mean.shape, *(1,) * (u.dim() - 2))
    variance = norm.channel_means(centred.square())
    sigma = channel_scale(mean, variance.sqrt()) if norm.std is None else norm.std.to(variance)
    return (norm.channel_means((u_hat - u).square()) / (variance + VARIANCE_FLOOR * sigma.square())).sqrt()


@measure(diverged=math.inf)
def vrmse(u_hat: Tensor, u: Tensor, norm: Norm) -> Tensor:
    """The mean of VRMSE over the channels, weighed as the user asks."""
    weights = float64(norm.importance or (1.0,) * u.shape[1])
    errors = channel_vrmse.of_trajectory(u_hat, u, norm).where(weights > 0, 0.0)  # 0 times infinity is 0 here
    return errors @ (weights / weights.sum())


@measure(diverged=math.inf)
def apebench_nrmse(u_hat: Tensor, u: Tensor, norm: Norm) -> Tensor:
    """Σ_c ‖û_{t,c} − u_{t,c}‖₂ / ‖u_{t,c}‖₂, summed over channels and without ε, as APEBench has it.

    A channel that is zero in the truth counts 0 if predicted exactly and +inf otherwise (APEBench: NaN and inf).
    """
    u_hat, u = norm.physical(u_hat), norm.physical(u)
    distance = (u_hat - u).flatten(2).norm(dim=2)  # (time, channel)
    quotient = distance / u.flatten(2).norm(dim=2)
    return quotient.where(distance != 0, 0.0).sum(1)


@measure(diverged=0.0)
def correlation(u_hat: Tensor, u: Tensor, norm: Norm) -> Tensor:
    """⟨û_{t,c}, u_{t,c}⟩ / (‖û_{t,c}‖₂ ‖u_{t,c}‖₂), no mean removed, averaged over channels.

    It is 0, "knows nothing", from divergence on and for a channel where one of the fields vanishes, 1 where both do.
    """
    u_hat, u = norm.physical(u_hat).flatten(2), norm.physical(u).flatten(2)
    # Each field is scaled to norm 1 first: the product of two norms would underflow for strongly decayed states.
    size_hat, size = u_hat.norm(dim=2, keepdim=True), u.norm(dim=2, keepdim=True)
    product = (u_hat / size_hat * (u / size)).sum(2).clamp(-1, 1)  # (time, channel)
    zero_hat, zero = size_hat[..., 0] == 0, size[..., 0] == 0
    return product.where(~(zero_hat | zero), (zero_hat & zero).double()).mean(1)


@measure(diverged=0.0)
def anomaly_correlation(u_hat: Tensor, u: Tensor, norm: Norm) -> Tensor:
    """The correlation of the differences from each channel's mean in the training data, averaged over channels.

    Where there are no training data, the mean of the true state is in its place.
    """
    mean = norm.channel_means(u) if norm.mean is None else norm.mean.to(u)
    origin = mean.reshape(*mean.shape, *(1,) * (u.dim() - 2))
    return correlation.of_trajectory(u_hat - origin, u - origin, norm)


skill_ratio = Measure("skill_ratio", vrmse.of_trajectory, math.inf)  # `with_skill` divides it by the better baseline's
MEASURES = {"nrmse": nrmse, "vrmse": vrmse}  # the measures that rollouts are scored by, see `Norm.measure`


def scored_by(errors: Mapping[str, object]) -> Literal["nrmse", "vrmse"]:
    """The measure of these errors that rollouts are scored by."""
    return "vrmse" if "vrmse" in errors else "nrmse"


def nrmse_at(errors: Values, t: int) -> float:
    """nRMSE@t = (1/M) Σ_j nRMSE_t^(j) for the 1-based rollout step t."""
    return float(checked(errors, t)[:, t - 1].mean())


def gm(errors: Values, steps: int = HORIZON) -> Tensor:
    """GM^(j) = exp((1/steps) Σ_{t=1}^{steps} log(nRMSE_t^(j) + ε)), one value per trajectory."""
    return (checked(errors, steps)[:, :steps] + EPS).log().mean(1).exp()


def stable_step(errors: Values, tau: float = TAU, horizon: int = HORIZON, floor: int = 0) -> Tensor:
    """S^(j) = max{T ≤ horizon | nRMSE_t^(j) ≤ τ for all t ≤ T} per trajectory; `floor` if step 1 already exceeds τ."""
    return uninterrupted(checked(errors, horizon)[:, :horizon] <= tau).clamp(min=floor)


def correlation_time(correlations: Values, threshold: float = CORRELATION_THRESHOLD) -> Tensor:
    """Number of steps before the correlation first falls below the threshold, one value per trajectory."""
    return uninterrupted(float64(correlations) >= threshold)


def diverged(errors: Values) -> int:
    """How many trajectories have an infinite error at any step."""
    return int((~checked(errors, 1).isfinite()).any(1).sum())


def apebench_gmean(apebench_errors: Values, steps: int = HORIZON) -> float:
    """gmean_mean_nRMSE = exp((1/steps) Σ_{t=1}^{steps} log((1/M) Σ_j e_t^(j))): samples first, then time; no ε."""
    mean = checked(apebench_errors, steps)[:, :steps].mean(0)
    # An exact step (log 0) and a diverged one (log inf) would make NaN together: divergence wins.
    return float(mean.log().mean().exp()) if mean.isfinite().all() else float("inf")


def median_trajectory(errors: Values, steps: int = HORIZON) -> int:
    """Index of the trajectory with median GM (of an even number, the worse of the middle two), which pictures show.

    A stated rule instead of a choice by eye, so that a figure is neither the best nor the worst case.
    """
    order = gm(errors, steps).argsort(stable=True)
    return int(order[len(order) // 2])


def measured(
    measures: Sequence[Measure], prediction: Tensor, truth: Tensor, norm: Norm | None = None
) -> dict[str, Tensor]:
    """Values (batch, time) by the name of their measure, each with its `diverged` from the first non-finite step on."""
    if prediction.shape != truth.shape or truth.ndim < 3:
        raise HeroError(
            f"a prediction of shape {tuple(prediction.shape)} cannot be compared with a truth of shape "
            f"{tuple(truth.shape)}; both must be (batch, time, channel, *space) of the same shape."
        )
    import torch

    from hero.method.norm import Norm

    norm = norm or Norm()
    rows: dict[str, list[Tensor]] = {measure.name: [] for measure in measures}
    # One trajectory at a time: a float64 copy of a whole 3D test set would take gigabytes.
    for j, (u_hat, u) in enumerate(zip(prediction.unbind(), truth.unbind(), strict=True)):
        u_hat, u = (norm.without_masked(x.double()) for x in (u_hat, u))
        if not u.isfinite().all():
            raise HeroError(f"the truth of trajectory {j} is not finite; check the data or the solver step.")
        if bool((zero := (u == 0).flatten(1).all(1)).any()):
            tell_undefined(j, int(zero.nonzero()[0, 0]) + 1)
        # A finite state whose norm overflows has left the range just as well.
        finite = u_hat.isfinite().flatten(1).all(1) & u_hat.flatten(1).norm(dim=1).isfinite()
        within = finite.cummin(0).values
        for measure in measures:
            values = measure.of_trajectory(u_hat, u, norm)
            good = within.reshape(-1, *(1,) * (values.dim() - 1))
            rows[measure.name].append(torch.where(good, values, measure.diverged))
    return {name: torch.stack(values) for name, values in rows.items()}


@cache
def tell_undefined(*first: int) -> None:
    """Say once in a process where the truth vanishes for the first time: trajectory and step."""
    if tell_undefined.cache_info().currsize == 0:
        say(
            f"the truth of trajectory {first[0]} is zero everywhere at step {first[1]}, where a relative error is "
            "undefined: such a step counts as infinite unless it is predicted exactly",
            style="yellow",
        )


def checked(errors: Values, steps: int) -> Tensor:
    """`errors` as a float64 tensor (batch, time) without NaN, at least `steps` long."""
    errors = float64(errors)
    if errors.ndim != 2:
        raise HeroError(f"errors of shape {tuple(errors.shape)} are not (batch, time).")
    if not 1 <= steps <= errors.shape[1]:
        raise HeroError(
            f"step {steps} is outside the rollout of {errors.shape[1]} steps; roll out longer or ask for less."
        )
    return errors.where(~errors.isnan(), math.inf)


def float64(values: Values | float | Sequence[float]) -> Tensor:
    import torch

    return torch.as_tensor(values, dtype=torch.float64)


def uninterrupted(good: Tensor) -> Tensor:
    """Length of the unbroken run of true values from the start of each row, as float64."""
    return good.long().cumprod(1).sum(1).double()
