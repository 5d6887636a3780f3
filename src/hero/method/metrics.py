"""How good a rollout is: pure functions (prediction, truth) -> values per trajectory and step, and their summaries.

Trajectories are `(batch, time, channel, *space)` and begin at rollout step 1: the initial state, which is given and not
predicted, is excluded. Everything is computed in float64, whatever precision the model ran in.

A rollout that leaves the finite range counts as **diverged** from that step on: its error is +inf and its correlation 0
from the first non-finite step to the end, also where later values happen to be finite again. No function returns NaN,
and no mean is taken over the surviving trajectories: one diverged rollout makes the mean infinite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hero.errors import HeroError
from hero.method.rollout import EPS

TAU = 0.1
CORRELATION_THRESHOLD = 0.8
REPORTED_STEPS = (1, 10, 50, 100, 200)

Values = Tensor | np.ndarray


class Metric(NamedTuple):
    """What a table or page says about one number."""

    label: str
    direction: str
    definition: str


METRICS: dict[str, Metric] = {
    "gm100": Metric(
        "GM100",
        "lower",
        "Geometric mean of the relative error over steps 1 to 100 of a rollout, averaged over trajectories.",
    ),
    **{
        f"nrmse@{t}": Metric(
            f"nRMSE@{t}",
            "lower",
            f"Relative error ‖û−u‖₂/‖u‖₂ after {t} autoregressive {'step' if t == 1 else 'steps'}, "
            "averaged over trajectories.",
        )
        for t in REPORTED_STEPS
    },
    "stable_step": Metric(
        "Stable step",
        "higher",
        f"Last step, of the first 100, up to which the relative error stays at or below {TAU} without interruption, "
        "averaged over trajectories.",
    ),
    "stability_horizon_200": Metric(
        "Stability horizon (200)", "higher", "The stable step counted over the first 200 steps instead of 100."
    ),
    "correlation_time": Metric(
        "Correlation time",
        "higher",
        "Number of steps before the cosine similarity of prediction and truth first falls below "
        f"{CORRELATION_THRESHOLD}, averaged over trajectories.",
    ),
    "diverged": Metric("Diverged", "lower", "Number of rollouts that left the finite range at any step."),
    "apebench_gmean_mean_nrmse": Metric(
        "APEBench gmean of mean nRMSE",
        "lower",
        "Relative error summed over channels and averaged over trajectories at each step, then the geometric mean over "
        "steps 1 to 100: the aggregation of APEBench.",
    ),
}


def nrmse(prediction: Tensor, truth: Tensor) -> Tensor:
    """nRMSE_t^(j) = ‖û_t^(j) − u_t^(j)‖₂ / (‖u_t^(j)‖₂ + ε), norms over channels and space: (batch, time)."""

    def ratio(u_hat: Tensor, u: Tensor) -> Tensor:
        return (u_hat - u).flatten(1).norm(dim=1) / (u.flatten(1).norm(dim=1) + EPS)

    return _per_trajectory(ratio, prediction, truth, diverged_value=torch.inf)


def apebench_nrmse(prediction: Tensor, truth: Tensor) -> Tensor:
    """Σ_c ‖û_{t,c} − u_{t,c}‖₂ / ‖u_{t,c}‖₂, summed over channels and without ε, as APEBench has it: (batch, time).

    A channel that is zero in the truth counts 0 if predicted exactly and +inf otherwise (APEBench: NaN and inf).
    """

    def ratio(u_hat: Tensor, u: Tensor) -> Tensor:
        distance = (u_hat - u).flatten(2).norm(dim=2)  # (time, channel)
        quotient = distance / u.flatten(2).norm(dim=2)
        return torch.where(distance == 0, 0.0, quotient).sum(1)

    return _per_trajectory(ratio, prediction, truth, diverged_value=torch.inf)


def correlation(prediction: Tensor, truth: Tensor) -> Tensor:
    """⟨û_{t,c}, u_{t,c}⟩ / (‖û_{t,c}‖₂ ‖u_{t,c}‖₂), no mean removed, averaged over channels: (batch, time).

    The value is 0, "knows nothing", from divergence on and for a channel where only one of the two fields vanishes; it
    is 1 where both vanish.
    """

    def cosine(u_hat: Tensor, u: Tensor) -> Tensor:
        u_hat, u = u_hat.flatten(2), u.flatten(2)
        # Each field is scaled to norm 1 first: the product of two norms would underflow for strongly decayed states.
        norm_hat, norm = u_hat.norm(dim=2, keepdim=True), u.norm(dim=2, keepdim=True)
        product = (u_hat / norm_hat * (u / norm)).sum(2).clamp(-1, 1)  # (time, channel)
        zero_hat, zero = norm_hat[..., 0] == 0, norm[..., 0] == 0
        return torch.where(zero_hat | zero, (zero_hat & zero).double(), product).mean(1)

    return _per_trajectory(cosine, prediction, truth, diverged_value=0.0)


def nrmse_at(errors: Values, t: int) -> float:
    """nRMSE@t = (1/M) Σ_j nRMSE_t^(j) for the 1-based rollout step t."""
    return float(_checked(errors, t)[:, t - 1].mean())


def gm(errors: Values, steps: int = 100) -> Tensor:
    """GM^(j) = exp((1/steps) Σ_{t=1}^{steps} log(nRMSE_t^(j) + ε)), one value per trajectory."""
    return (_checked(errors, steps)[:, :steps] + EPS).log().mean(1).exp()


def stable_step(errors: Values, tau: float = TAU, horizon: int = 100) -> Tensor:
    """S^(j) = max{T ≤ horizon | nRMSE_t^(j) ≤ τ for all t ≤ T} per trajectory; 0 if step 1 already exceeds τ."""
    return _uninterrupted(_checked(errors, horizon)[:, :horizon] <= tau)


def correlation_time(correlations: Values, threshold: float = CORRELATION_THRESHOLD) -> Tensor:
    """Number of steps before the correlation first falls below the threshold, one value per trajectory."""
    values = torch.as_tensor(correlations).double()
    return _uninterrupted(values >= threshold)


def diverged(errors: Values) -> int:
    """How many trajectories left the finite range at any step."""
    return int((~_checked(errors, 1).isfinite()).any(1).sum())


def apebench_gmean(apebench_errors: Values, steps: int = 100) -> float:
    """gmean_mean_nRMSE = exp((1/steps) Σ_{t=1}^{steps} log((1/M) Σ_j e_t^(j))): samples first, then time; no ε."""
    mean = _checked(apebench_errors, steps)[:, :steps].mean(0)
    # An exact step (log 0) and a diverged one (log inf) would make NaN together: divergence wins.
    return float(mean.log().mean().exp()) if mean.isfinite().all() else float("inf")


def median_trajectory(errors: Values, steps: int = 100) -> int:
    """Index of the trajectory with median GM (of an even number, the worse of the middle two), which pictures show.

    A stated rule instead of a choice by eye, so that a figure is neither the best nor the worst case.
    """
    order = torch.argsort(gm(errors, steps), stable=True)
    return int(order[len(order) // 2])


def summarise(errors: Values, correlations: Values, apebench_errors: Values) -> dict[str, float]:
    """All summary numbers of one test set, named as in `METRICS`; those beyond the end of the rollout are left out."""
    length = torch.as_tensor(errors).shape[1]
    summary = {"gm100": float(gm(errors).mean())}
    summary |= {f"nrmse@{t}": nrmse_at(errors, t) for t in REPORTED_STEPS if t <= length}
    summary["stable_step"] = float(stable_step(errors).mean())
    if length >= 200:
        summary["stability_horizon_200"] = float(stable_step(errors, horizon=200).mean())
    summary["correlation_time"] = float(correlation_time(correlations).mean())
    summary["diverged"] = float(diverged(errors))
    summary["apebench_gmean_mean_nrmse"] = apebench_gmean(apebench_errors)
    return summary


def _per_trajectory(
    measure: Callable[[Tensor, Tensor], Tensor], prediction: Tensor, truth: Tensor, diverged_value: float
) -> Tensor:
    """`measure` applied to one trajectory after the other, with `diverged_value` from its first non-finite step on."""
    if prediction.shape != truth.shape or truth.ndim < 3:
        raise HeroError(
            f"a prediction of shape {tuple(prediction.shape)} cannot be compared with a truth of shape "
            f"{tuple(truth.shape)}; both must be (batch, time, channel, *space) of the same shape."
        )
    rows: list[Tensor] = []
    # One trajectory at a time: a float64 copy of a whole 3D test set would take gigabytes.
    for u_hat, u in zip(prediction, truth, strict=True):
        if not u.isfinite().all():
            raise HeroError(f"the truth of trajectory {len(rows)} is not finite; check the data or the solver step.")
        values = measure(u_hat.double(), u.double())
        # A finite state whose norm overflows has left the range just as well.
        finite = u_hat.isfinite().flatten(1).all(1) & u_hat.double().flatten(1).norm(dim=1).isfinite()
        rows.append(torch.where(finite.cummin(0).values, values, diverged_value))
    return torch.stack(rows)


def _checked(errors: Values, steps: int) -> Tensor:
    """`errors` as a float64 tensor (batch, time) without NaN, at least `steps` long."""
    errors = torch.as_tensor(errors).double()
    if errors.ndim != 2:
        raise HeroError(f"errors of shape {tuple(errors.shape)} are not (batch, time).")
    if not 1 <= steps <= errors.shape[1]:
        raise HeroError(
            f"step {steps} is outside the rollout of {errors.shape[1]} steps; roll out longer or ask for less."
        )
    return torch.where(errors.isnan(), torch.inf, errors)


def _uninterrupted(good: Tensor) -> Tensor:
    """Length of the unbroken run of true values from the start of each row, as float64."""
    return good.long().cumprod(1).sum(1).double()
