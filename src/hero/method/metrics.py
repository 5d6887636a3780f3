"""How good a rollout is: measures (prediction, truth) -> values per trajectory and step, and metrics that sum them up.

Trajectories are `(batch, time, channel, *space)` and begin at rollout step 1: the initial state, which is given and not
predicted, is excluded. Everything is computed in float64, whatever precision the model ran in, over the valid points of
the run's `Norm`. Benchmarks are scored by the paper's nRMSE, files by the VRMSE of The Well, channel by channel
(docs/reference/metrics.md says why); `Scoring` has the names of either.

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
from functools import cache, partial, reduce
from typing import TYPE_CHECKING, Literal

from hero.config.registry import Registry
from hero.console import say
from hero.errors import HeroError
from hero.method import EPS

if TYPE_CHECKING:  # torch is loaded where it computes: titles and definitions are listed without it
    import numpy as np
    import torch
    from torch import Tensor

    from hero.data.trajectories import Trajectories
    from hero.method.norm import Norm
    from hero.method.rollout import Stepper

    Values = Tensor | np.ndarray

TAU = 0.1
CORRELATION_THRESHOLD = 0.8
SMALL = 1e-6
"""Norm of a state below which ε would be more than a millionth of it."""
HORIZON = 100
"""Steps that rollouts are scored over, as in the paper; fewer where the data are shorter (`RunConfig.horizon`)."""
TITLES = {"nrmse": "nRMSE", "vrmse": "VRMSE"}
REPORTED_STEPS = (1, 10, 50, 100, 200)
CHUNK_VALUES = 2**26
"""Rollouts are kept as float32 before they are measured; this bounds how many numbers that is at once."""

VARIANCE_FLOOR = 1e-7
"""Added to the variance of a state, in units of the channel's variance in the training data, before it divides."""

_NUMBERED = re.compile(r"(gm|nrmse@|vrmse_gm|vrmse@)([1-9]\d*)")


@dataclass(frozen=True)
class Scoring:
    """How rollouts are scored: by which measure, over how many steps; and the names of the metrics that follow."""

    steps: int = HORIZON
    measure: Literal["nrmse", "vrmse"] = "nrmse"

    @property
    def gm(self) -> str:
        """The metric that validation selects by: gm100, or vrmse_gm40."""
        return f"{'' if self.measure == 'nrmse' else 'vrmse_'}gm{self.steps}"

    def at(self, step: int) -> str:
        """The error at one step: nrmse@100, or vrmse@40."""
        return f"{self.measure}@{step}"

    @property
    def last(self) -> str:
        """The error at the last step."""
        return self.at(self.steps)

    @property
    def title(self) -> str:
        """The measure as it is printed."""
        return TITLES[self.measure]

    @property
    def gm_title(self) -> str:
        """The metric that validation selects by, as it is printed."""
        return metric_named(self.gm, self).title

    def metrics(self) -> dict[str, Metric]:
        """The metrics of a run by name: the standard ones, and the registered ones of `METRICS`."""
        added = {name: metric for name, metric in METRICS.items() if name not in STANDARD or self == Scoring()}
        return standard_metrics(self) | added


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

    A truth of norm 0 counts 0 if predicted exactly and +inf otherwise. Below `SMALL` there is no ε, which would hide
    the errors of data in small units.
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
    from hero.method.norm import spread

    mean = norm.channel_means(u)
    centred = u - mean.reshape(*mean.shape, *(1,) * (u.dim() - 2))
    variance = norm.channel_means(centred.square())
    sigma = spread(mean, variance.sqrt()) if norm.std is None else norm.std.to(variance)
    return (norm.channel_means((u_hat - u).square()) / (variance + VARIANCE_FLOOR * sigma.square())).sqrt()


@measure(diverged=math.inf)
def vrmse(u_hat: Tensor, u: Tensor, norm: Norm) -> Tensor:
    """The mean of VRMSE over the channels, weighed as the user asks."""
    weights = _float64(norm.importance or (1.0,) * u.shape[1])
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

    The value is 0, "knows nothing", from divergence on and for a channel where only one of the two fields vanishes; it
    is 1 where both vanish.
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


skill_ratio = Measure("skill_ratio", vrmse.of_trajectory, math.inf)
"""VRMSE, which `with_skill` divides by the VRMSE of the better baseline."""

MEASURES = {"nrmse": nrmse, "vrmse": vrmse}
"""The measures that rollouts are scored by, see `Norm.measure`."""


def scored_by(errors: Mapping[str, object]) -> Literal["nrmse", "vrmse"]:
    """The measure of these errors that rollouts are scored by."""
    return "vrmse" if "vrmse" in errors else "nrmse"


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
    measure: Measure = nrmse  # the values per trajectory and step that `value` summarises
    steps: int = 1  # length of rollout without which the metric is left out


def numbered_metric(name: str) -> Metric | None:
    """A geometric mean or the error at a step, whose name says the steps: gm40, vrmse_gm40, nrmse@40, vrmse@40."""
    numbered = _NUMBERED.fullmatch(name)
    if numbered is None:
        return None
    t, measure = int(numbered[2]), vrmse if name.startswith("vrmse") else nrmse
    if numbered[1].endswith("gm"):
        of, title = ("the relative error", f"GM{t}") if measure is nrmse else ("VRMSE", f"GM{t} of VRMSE")
        definition = f"Geometric mean of {of} over steps 1 to {t} of a rollout, averaged over trajectories."
        return Metric(title, "lower", definition, partial(gm, steps=t), measure, t)
    after = f"after {t} autoregressive {'step' if t == 1 else 'steps'}"
    definition = f"Relative error ‖û−u‖₂/‖u‖₂ {after}, averaged over trajectories."
    if measure is vrmse:
        definition = (
            f"RMSE over the standard deviation of the true state {after}, mean over channels, averaged over "
            "trajectories; 1 is as good as the mean of the true state."
        )
    return Metric(f"{TITLES[measure.name]}@{t}", "lower", definition, partial(nrmse_at, t=t), measure, t)


def standard_metrics(scoring: Scoring) -> dict[str, Metric]:
    """The metrics of benchmarks, scored by nRMSE, or of files, scored by VRMSE, over the steps of a scoring.

    Titles name any number of steps but the usual one.
    """
    h, own = scoring.steps, MEASURES[scoring.measure]
    plain, steps = h == HORIZON, sorted({*REPORTED_STEPS, h})
    relative = {f"nrmse@{t}": numbered_metric(f"nrmse@{t}") for t in steps}
    if own is nrmse:
        found = {
            scoring.gm: numbered_metric(scoring.gm),
            **relative,
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
                correlation,
            ),
        }
    else:
        found = {
            scoring.gm: numbered_metric(scoring.gm),
            **{scoring.at(t): numbered_metric(scoring.at(t)) for t in steps},
            "skilful_step": Metric(
                "Skilful steps",
                "higher",
                f"Steps, of the first {h}, before VRMSE first reaches the VRMSE of a baseline: the first state kept, "
                "or the mean state of the training data; averaged over trajectories.",
                lambda ratios: _uninterrupted(_float64(ratios)[:, :h] < 1),
                skill_ratio,
            ),
            "anomaly_correlation_time": Metric(
                "Anomaly correlation time",
                "higher",
                "Number of steps before the correlation of prediction and truth, both about each channel's mean in the "
                f"training data, first falls below {CORRELATION_THRESHOLD}, averaged over trajectories.",
                correlation_time,
                anomaly_correlation,
            ),
        }
    found["diverged"] = Metric(
        "Diverged",
        "lower",
        "Number of rollouts that left the finite range at any step, or differ from a truth that is all zero.",
        diverged,
        own,
    )
    found |= relative  # which files have after their own
    found["apebench_gmean_mean_nrmse"] = Metric(
        "APEBench gmean of mean nRMSE",
        "lower",
        "Relative error summed over channels and averaged over trajectories at each step, then the geometric mean "
        f"over steps 1 to {h}: the aggregation of APEBench.",
        partial(apebench_gmean, steps=h),
        apebench_nrmse,
        h,
    )
    return {name: metric for name, metric in found.items() if metric is not None}


METRICS: Registry[Metric] = Registry("metric", standard_metrics(Scoring()))
"""The metrics of benchmarks at the usual horizon, and registered ones, which every scoring has."""
STANDARD = frozenset(METRICS)


def metric_named(name: str, scoring: Scoring | None = None) -> Metric:
    """The metric of this name in a scoring; a GM and the error at a step say their steps themselves, as gm40 does."""
    known, others = (scoring or Scoring()).metrics(), standard_metrics(Scoring(measure="vrmse"))
    return known.get(name) or numbered_metric(name) or others.get(name) or METRICS[name]  # refuses an unknown name


def metric_at(name: str, scoring: Scoring) -> str:
    """The name of the metric that stands for a benchmark's metric `name` in another scoring."""
    if numbered := _NUMBERED.fullmatch(name):
        steps = min(int(numbered[2]), scoring.steps)
        return Scoring(steps, scoring.measure).gm if numbered[1].endswith("gm") else scoring.at(steps)
    if scoring.measure == "vrmse":
        stable = ("stable_step", "stable_step_from_0", "stability_horizon_200")
        name = "skilful_step" if name in stable else name
        return "anomaly_correlation_time" if name == "correlation_time" else name
    return "stable_step" if name == "stability_horizon_200" and scoring.steps < HORIZON else name


def scoring_of(names: Iterable[str]) -> Scoring:
    """The scoring whose metrics these are, which their GM names; the usual one without a GM."""
    found = {m[1]: int(m[2]) for name in names if (m := _NUMBERED.fullmatch(name)) and m[1].endswith("gm")}
    if "vrmse_gm" in found:
        return Scoring(found["vrmse_gm"], "vrmse")
    return Scoring(found.get("gm", HORIZON))


def given_metric(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> Metric:
    """Your function (û, u) -> (time,) of one trajectory in float64 as a metric: its mean over steps and trajectories.

    Its value is infinite from where a rollout diverges. Masked points are NaN in both.
    """
    if name in METRICS or not name.isidentifier():
        raise HeroError(f"a metric cannot be called {name!r}; choose another word than {', '.join(METRICS)}.")

    def of_trajectory(u_hat: Tensor, u: Tensor, norm: Norm) -> Tensor:
        values = _float64(function(norm.hidden(u_hat), norm.hidden(u)))
        if values.shape != u.shape[:1]:
            raise HeroError(f"metric {name} returns shape {tuple(values.shape)}; return one number for each step.")
        return values

    measure = Measure(name, of_trajectory, math.inf)
    return Metric(name, "lower", f"{name}, averaged over steps and trajectories.", lambda v: v.mean(1), measure)


def summarise(errors: Mapping[str, Values], scoring: Scoring | None = None) -> dict[str, float]:
    """Every metric of a run that the rollout is long enough for, from `rollout_errors` of one test set."""
    return evaluated((scoring or Scoring()).metrics(), errors)


def evaluated(metrics: Mapping[str, Metric], errors: Mapping[str, Values]) -> dict[str, float]:
    """The mean over trajectories of each of `metrics` that was measured, if the rollout is long enough for it."""
    summary = {}
    for name, metric in metrics.items():
        if metric.measure.name not in errors:
            continue
        values = _float64(errors[metric.measure.name])
        if metric.steps <= values.shape[1]:
            summary[name] = float(_float64(metric.value(values)).mean())
    return summary


def by_channel(errors: Mapping[str, Values], names: Sequence[str], scoring: Scoring) -> dict[str, dict[str, float]]:
    """GM and errors at single steps of each channel, by its name; empty where errors are joint."""
    if channel_vrmse.name not in errors:
        return {}
    values = _float64(errors[channel_vrmse.name])  # (trajectory, time, channel)
    wanted = {name: metric for name, metric in scoring.metrics().items() if metric.measure is vrmse}
    return {name: evaluated(wanted, {vrmse.name: values[..., c]}) for c, name in enumerate(names)}


def measures_of(scoring: Scoring, more: Iterable[Metric] = ()) -> list[Measure]:
    """Every measure that the metrics of a scoring and `more` need."""
    found = {metric.measure.name: metric.measure for metric in (*scoring.metrics().values(), *more)}
    if scoring.measure == "vrmse":
        found[channel_vrmse.name] = channel_vrmse
    return [measure for measure in found.values() if measure is not skill_ratio]  # which `with_skill` adds


def rollout_errors(
    step: Stepper,
    data: Trajectories | Tensor,
    steps: int,
    device: torch.device | str,
    history: int = 1,
    more: Sequence[Metric] = (),
    norm: Norm | None = None,
    measures: Sequence[Measure] = (),
) -> dict[str, Tensor]:
    """Roll out from the first states (H of them) of each trajectory of `data`.

    Returns the values (batch, steps) of every measure that the metrics of the `norm` and `more` need, or of `measures`
    alone, on the CPU, by name.
    """
    import torch

    from hero.method.rollout import rollout

    def predict(part: Trajectories) -> Tensor:
        with torch.no_grad():
            return rollout(step, part.first(history, device), steps).cpu()

    return _errors_of(predict, data, steps, history, more, norm, measures)


def baseline_errors(
    data: Trajectories | Tensor, steps: int, history: int, norm: Norm, more: Sequence[Metric] = ()
) -> dict[str, dict[str, Tensor]]:
    """The errors of doing nothing: `persistence` keeps the last given state, `mean` is the training data's mean state.

    Without a mean state, or on another grid than its own, there is no `mean`.
    """

    def persistence(part: Trajectories) -> Tensor:
        return part.frames(slice(history - 1, history)).cpu().expand(-1, steps, *(-1,) * (len(part.shape) - 2))

    found = {"persistence": _errors_of(persistence, data, steps, history, more, norm)}
    state, shape = norm.mean_state, data.shape[2:]
    if state is not None and tuple(state.shape) == tuple(shape):
        mean = state.cpu()
        found["mean"] = _errors_of(lambda part: mean.expand(len(part), steps, *shape), data, steps, history, more, norm)
    return found


def with_skill(errors: dict[str, Tensor], baselines: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """`errors` with the ratio of VRMSE to the better baseline at each step, where it is measured."""
    if vrmse.name not in errors or not baselines:
        return errors
    own, *others = (found[vrmse.name] for found in (errors, *baselines.values()))
    least = reduce(lambda a, b: a.minimum(b), others)
    ratio = (own / least).masked_fill(own == 0, 0.0)
    return errors | {skill_ratio.name: ratio.nan_to_num(nan=math.inf, posinf=math.inf)}


def _errors_of(
    predict: Callable[[Trajectories], Tensor],
    data: Trajectories | Tensor,
    steps: int,
    history: int,
    more: Sequence[Metric],
    norm: Norm | None,
    measures: Sequence[Measure] = (),
) -> dict[str, Tensor]:
    """Measure predictions of the steps after the first H states, some trajectories at a time."""
    import torch

    from hero.data.trajectories import Trajectories

    scoring = Scoring(steps, "nrmse" if norm is None else norm.measure)
    wanted = list(measures) or measures_of(scoring, (*METRICS.values(), *more) if scoring.measure == "nrmse" else more)
    data, parts = Trajectories.of(data), []
    for part in data.parts(max(1, CHUNK_VALUES // (steps * math.prod(data.shape[2:])))):
        parts.append(measured(wanted, predict(part), part.states[:, history : history + steps], norm))
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


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


def _float64(values: Values | float | Sequence[float]) -> Tensor:
    """`values` as a float64 tensor."""
    import torch

    return torch.as_tensor(values, dtype=torch.float64)


def _uninterrupted(good: Tensor) -> Tensor:
    """Length of the unbroken run of true values from the start of each row, as float64."""
    return good.long().cumprod(1).sum(1).double()
