"""How good a rollout is: measures (prediction, truth) -> values per trajectory and step, and metrics that sum them up.

Trajectories are `(batch, time, channel, *space)` and begin at rollout step 1: the initial state, which is given and not
predicted, is excluded. Everything is computed in float64, whatever precision the model ran in.

A rollout that leaves the finite range counts as **diverged** from that step on: its error is +inf and its correlation 0
from the first non-finite step to the end, also where later values happen to be finite again. No function returns NaN,
and no mean is taken over the surviving trajectories: one diverged rollout makes the mean infinite.

A relative error of a state that is zero everywhere is **undefined**: it counts as 0 where the prediction is exact, as
+inf otherwise, which is said once. A truth that is not finite is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Literal

from hero.config.registry import Registry
from hero.console import say
from hero.errors import HeroError
from hero.method import EPS

if TYPE_CHECKING:  # torch is loaded where it computes: titles and definitions are listed without it
    import numpy as np
    import torch
    from torch import Tensor

    from hero.data.windows import Trajectories
    from hero.method.rollout import Stepper

    Values = Tensor | np.ndarray

TAU = 0.1
CORRELATION_THRESHOLD = 0.8
HORIZON = 100
"""Steps that rollouts are scored over, as in the paper; fewer where the data are shorter (`RunConfig.horizon`)."""
REPORTED_STEPS = (1, 10, 50, 100, 200)
CHUNK_VALUES = 2**26
"""Rollouts are kept as float32 before they are measured; this bounds how many numbers that is at once."""

_NUMBERED = re.compile(r"(gm|nrmse@)([1-9]\d*)")


@dataclass(frozen=True)
class Measure:
    """(prediction, truth) -> one value per trajectory and step; `of_trajectory` sees one trajectory in float64."""

    name: str
    of_trajectory: Callable[[Tensor, Tensor], Tensor]
    diverged: float  # the value from divergence on

    def __call__(self, prediction: Tensor, truth: Tensor) -> Tensor:
        return measured([self], prediction, truth)[self.name]


def measure(diverged: float) -> Callable[[Callable[[Tensor, Tensor], Tensor]], Measure]:
    """Decorator: a function of one trajectory (time, channel, *space) and its truth becomes a `Measure`."""
    return lambda of_trajectory: Measure(of_trajectory.__name__, of_trajectory, diverged)


@measure(diverged=math.inf)
def nrmse(u_hat: Tensor, u: Tensor) -> Tensor:
    """nRMSE_t^(j) = ‖û_t^(j) − u_t^(j)‖₂ / (‖u_t^(j)‖₂ + ε), norms over channels and space.

    A truth of norm 0 counts 0 if predicted exactly and +inf otherwise.
    """
    distance, norm = (u_hat - u).flatten(1).norm(dim=1), u.flatten(1).norm(dim=1)
    return (distance / (norm + EPS)).masked_fill((norm == 0) & (distance > 0), math.inf)


@measure(diverged=math.inf)
def apebench_nrmse(u_hat: Tensor, u: Tensor) -> Tensor:
    """Σ_c ‖û_{t,c} − u_{t,c}‖₂ / ‖u_{t,c}‖₂, summed over channels and without ε, as APEBench has it.

    A channel that is zero in the truth counts 0 if predicted exactly and +inf otherwise (APEBench: NaN and inf).
    """
    distance = (u_hat - u).flatten(2).norm(dim=2)  # (time, channel)
    quotient = distance / u.flatten(2).norm(dim=2)
    return quotient.where(distance != 0, 0.0).sum(1)


@measure(diverged=0.0)
def correlation(u_hat: Tensor, u: Tensor) -> Tensor:
    """⟨û_{t,c}, u_{t,c}⟩ / (‖û_{t,c}‖₂ ‖u_{t,c}‖₂), no mean removed, averaged over channels.

    The value is 0, "knows nothing", from divergence on and for a channel where only one of the two fields vanishes; it
    is 1 where both vanish.
    """
    u_hat, u = u_hat.flatten(2), u.flatten(2)
    # Each field is scaled to norm 1 first: the product of two norms would underflow for strongly decayed states.
    norm_hat, norm = u_hat.norm(dim=2, keepdim=True), u.norm(dim=2, keepdim=True)
    product = (u_hat / norm_hat * (u / norm)).sum(2).clamp(-1, 1)  # (time, channel)
    zero_hat, zero = norm_hat[..., 0] == 0, norm[..., 0] == 0
    return product.where(~(zero_hat | zero), (zero_hat & zero).double()).mean(1)


def nrmse_at(errors: Values, t: int) -> float:
    """nRMSE@t = (1/M) Σ_j nRMSE_t^(j) for the 1-based rollout step t."""
    return float(_checked(errors, t)[:, t - 1].mean())


def gm(errors: Values, steps: int = HORIZON) -> Tensor:
    """GM^(j) = exp((1/steps) Σ_{t=1}^{steps} log(nRMSE_t^(j) + ε)), one value per trajectory."""
    return (_checked(errors, steps)[:, :steps] + EPS).log().mean(1).exp()


def stable_step(errors: Values, tau: float = TAU, horizon: int = HORIZON, floor: int = 0) -> Tensor:
    """S^(j) = max{T ≤ horizon | nRMSE_t^(j) ≤ τ for all t ≤ T} per trajectory; `floor` if step 1 already exceeds τ."""
    return _uninterrupted(_checked(errors, horizon)[:, :horizon] <= tau).clamp(min=floor)


def correlation_time(correlations: Values, threshold: float = CORRELATION_THRESHOLD) -> Tensor:
    """Number of steps before the correlation first falls below the threshold, one value per trajectory."""
    return _uninterrupted(_float64(correlations) >= threshold)


def diverged(errors: Values) -> int:
    """How many trajectories have an infinite error at any step."""
    return int((~_checked(errors, 1).isfinite()).any(1).sum())


def apebench_gmean(apebench_errors: Values, steps: int = HORIZON) -> float:
    """gmean_mean_nRMSE = exp((1/steps) Σ_{t=1}^{steps} log((1/M) Σ_j e_t^(j))): samples first, then time; no ε."""
    mean = _checked(apebench_errors, steps)[:, :steps].mean(0)
    # An exact step (log 0) and a diverged one (log inf) would make NaN together: divergence wins.
    return float(mean.log().mean().exp()) if mean.isfinite().all() else float("inf")


def median_trajectory(errors: Values, steps: int = HORIZON) -> int:
    """Index of the trajectory with median GM (of an even number, the worse of the middle two), which pictures show.

    A stated rule instead of a choice by eye, so that a figure is neither the best nor the worst case.
    """
    order = gm(errors, steps).argsort(stable=True)
    return int(order[len(order) // 2])


@dataclass(frozen=True)
class Metric:
    """A number that summarises the rollouts of a test set: one entry of `METRICS` is all that a new one needs."""

    title: str
    direction: Literal["lower", "higher"]  # which is better
    definition: str
    value: Callable[[Tensor], Tensor | float]
    """(batch, time) ↦ one value per trajectory, of which the mean is reported, or a single value."""
    measure: Measure = nrmse
    """The values per trajectory and step that `value` summarises."""
    steps: int = 1
    """Length of rollout without which the metric is left out."""


def _gm_metric(h: int) -> Metric:
    definition = f"Geometric mean of the relative error over steps 1 to {h} of a rollout, averaged over trajectories."
    return Metric(f"GM{h}", "lower", definition, partial(gm, steps=h), steps=h)


def _nrmse_metric(t: int) -> Metric:
    steps = "step" if t == 1 else "steps"
    definition = f"Relative error ‖û−u‖₂/‖u‖₂ after {t} autoregressive {steps}, averaged over trajectories."
    return Metric(f"nRMSE@{t}", "lower", definition, partial(nrmse_at, t=t), steps=t)


def _standard_metrics(h: int) -> dict[str, Metric]:
    """The metrics of rollouts that are scored over `h` steps; titles name any `h` but the usual one."""
    plain = h == HORIZON
    return {
        f"gm{h}": _gm_metric(h),
        **{f"nrmse@{t}": _nrmse_metric(t) for t in sorted({*REPORTED_STEPS, h})},
        "stable_step": Metric(
            "Stable step" if plain else f"Stable step ({h})",
            "higher",
            f"Last step, of the first {h}, up to which the relative error stays at or below {TAU} without "
            "interruption, averaged over trajectories. As in the paper the least value is 1, also where the first "
            "step exceeds the threshold.",
            partial(stable_step, horizon=h, floor=1),
            steps=h,
        ),
        "stable_step_from_0": Metric(
            "Stable step (from 0)" if plain else f"Stable step ({h}, from 0)",
            "higher",
            "The stable step, 0 for a trajectory whose first step already exceeds the threshold.",
            partial(stable_step, horizon=h),
            steps=h,
        ),
        "stability_horizon_200": Metric(
            "Stability horizon (200)",
            "higher",
            f"The stable step, at least 1, counted over the first 200 steps instead of {h}.",
            partial(stable_step, horizon=200, floor=1),
            steps=200,
        ),
        "correlation_time": Metric(
            "Correlation time",
            "higher",
            "Number of steps before the cosine similarity of prediction and truth first falls below "
            f"{CORRELATION_THRESHOLD}, averaged over trajectories.",
            correlation_time,
            measure=correlation,
        ),
        "diverged": Metric(
            "Diverged",
            "lower",
            "Number of rollouts that left the finite range at any step, or differ from a truth that is all zero.",
            diverged,
        ),
        "apebench_gmean_mean_nrmse": Metric(
            "APEBench gmean of mean nRMSE",
            "lower",
            "Relative error summed over channels and averaged over trajectories at each step, then the geometric mean "
            f"over steps 1 to {h}: the aggregation of APEBench.",
            partial(apebench_gmean, steps=h),
            measure=apebench_nrmse,
            steps=h,
        ),
    }


METRICS: Registry[Metric] = Registry("metric", _standard_metrics(HORIZON))
"""The metrics at the usual horizon, and registered ones, which are the same at every horizon."""
_STANDARD = frozenset(METRICS)


def metrics_of(horizon: int) -> dict[str, Metric]:
    """The metrics of a run by name: the standard ones over `horizon` steps, and the registered ones of `METRICS`."""
    if horizon == HORIZON:
        return dict(METRICS)
    return _standard_metrics(horizon) | {name: metric for name, metric in METRICS.items() if name not in _STANDARD}


def metric_named(name: str, horizon: int = HORIZON) -> Metric:
    """The metric of this name at `horizon`; a GM or nRMSE says its steps itself, as gm40 and nrmse@40 do."""
    known, numbered = metrics_of(horizon), _NUMBERED.fullmatch(name)
    if name not in known and numbered:
        return {"gm": _gm_metric, "nrmse@": _nrmse_metric}[numbered[1]](int(numbered[2]))
    return known[name] if name in known else METRICS[name]  # which refuses an unknown name


def metric_at(name: str, horizon: int) -> str:
    """The name of the metric that stands for `name` where rollouts are scored over `horizon` steps."""
    if numbered := _NUMBERED.fullmatch(name):
        return f"{numbered[1]}{min(int(numbered[2]), horizon)}"
    return "stable_step" if name == "stability_horizon_200" and horizon < HORIZON else name


def horizon_of(names: Iterable[str]) -> int:
    """The horizon of the metrics `names`: the number of their GM, the usual one without it."""
    found = (numbered for name in names if (numbered := _NUMBERED.fullmatch(name)) and numbered[1] == "gm")
    return next((int(numbered[2]) for numbered in found), HORIZON)


def given_metric(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> Metric:
    """Your function (û, u) -> (time,) of one trajectory in float64 as a metric: its mean over steps and trajectories.

    Its value is infinite from where a rollout diverges.
    """
    if name in METRICS or not name.isidentifier():
        raise HeroError(f"a metric cannot be called {name!r}; choose another word than {', '.join(METRICS)}.")

    def of_trajectory(u_hat: Tensor, u: Tensor) -> Tensor:
        values = _float64(function(u_hat, u))
        if values.shape != u.shape[:1]:
            raise HeroError(f"metric {name} returns shape {tuple(values.shape)}; return one number for each step.")
        return values

    measure = Measure(name, of_trajectory, math.inf)
    return Metric(name, "lower", f"{name}, averaged over steps and trajectories.", lambda v: v.mean(1), measure)


def summarise(errors: Mapping[str, Values], horizon: int = HORIZON) -> dict[str, float]:
    """Every metric of a run that the rollout is long enough for, from `rollout_errors` of one test set."""
    return evaluated(metrics_of(horizon), errors)


def evaluated(metrics: Mapping[str, Metric], errors: Mapping[str, Values]) -> dict[str, float]:
    """The mean over trajectories of each of `metrics` that the rollout is long enough for."""
    summary = {}
    for name, metric in metrics.items():
        values = _float64(errors[metric.measure.name])
        if metric.steps <= values.shape[1]:
            summary[name] = float(_float64(metric.value(values)).mean())
    return summary


def rollout_errors(
    step: Stepper,
    data: Trajectories | Tensor,
    steps: int,
    device: torch.device | str,
    history: int = 1,
    more: Sequence[Metric] = (),
) -> dict[str, Tensor]:
    """Roll out from the first states (H of them) of each trajectory of `data`.

    Returns the values (batch, steps) of every measure that `METRICS` and `more` need, on the CPU, by name.
    """
    import torch

    from hero.data.windows import Trajectories
    from hero.method.rollout import rollout

    measures = list({metric.measure.name: metric.measure for metric in (*METRICS.values(), *more)}.values())
    data, parts = Trajectories.of(data), []
    for part in data.parts(max(1, CHUNK_VALUES // (steps * math.prod(data.shape[2:])))):
        with torch.no_grad():
            prediction = rollout(step, part.first(history, device), steps).cpu()
            parts.append(measured(measures, prediction, part.states[:, history : history + steps]))
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def measured(measures: Sequence[Measure], prediction: Tensor, truth: Tensor) -> dict[str, Tensor]:
    """Values (batch, time) by the name of their measure, each with its `diverged` from the first non-finite step on."""
    if prediction.shape != truth.shape or truth.ndim < 3:
        raise HeroError(
            f"a prediction of shape {tuple(prediction.shape)} cannot be compared with a truth of shape "
            f"{tuple(truth.shape)}; both must be (batch, time, channel, *space) of the same shape."
        )
    import torch

    rows: dict[str, list[Tensor]] = {measure.name: [] for measure in measures}
    # One trajectory at a time: a float64 copy of a whole 3D test set would take gigabytes.
    for j, (u_hat, u) in enumerate(zip(prediction.unbind(), truth.unbind(), strict=True)):
        if not u.isfinite().all():
            raise HeroError(f"the truth of trajectory {j} is not finite; check the data or the solver step.")
        u_hat, u = u_hat.double(), u.double()
        if bool((zero := (u == 0).flatten(1).all(1)).any()):
            tell_undefined(j, int(zero.nonzero()[0, 0]) + 1)
        # A finite state whose norm overflows has left the range just as well.
        finite = u_hat.isfinite().flatten(1).all(1) & u_hat.flatten(1).norm(dim=1).isfinite()
        within = finite.cummin(0).values
        for measure in measures:
            rows[measure.name].append(torch.where(within, measure.of_trajectory(u_hat, u), measure.diverged))
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


def _checked(errors: Values, steps: int) -> Tensor:
    """`errors` as a float64 tensor (batch, time) without NaN, at least `steps` long."""
    errors = _float64(errors)
    if errors.ndim != 2:
        raise HeroError(f"errors of shape {tuple(errors.shape)} are not (batch, time).")
    if not 1 <= steps <= errors.shape[1]:
        raise HeroError(
            f"step {steps} is outside the rollout of {errors.shape[1]} steps; roll out longer or ask for less."
        )
    return errors.where(~errors.isnan(), math.inf)


def _float64(values: Values | float) -> Tensor:
    """`values` as a float64 tensor."""
    import torch

    return torch.as_tensor(values, dtype=torch.float64)


def _uninterrupted(good: Tensor) -> Tensor:
    """Length of the unbroken run of true values from the start of each row, as float64."""
    return good.long().cumprod(1).sum(1).double()
