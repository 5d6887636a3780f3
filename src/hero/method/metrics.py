"""Metrics: numbers with a name that sum up the measures of a test set. `Scoring` has the names of a run's."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from hero.config.registry import Registry
from hero.errors import HeroError
from hero.method import measures
from hero.method.measures import CORRELATION_THRESHOLD, HORIZON, MEASURES, TAU, Measure, nrmse, vrmse

if TYPE_CHECKING:  # titles and definitions are listed without torch
    from torch import Tensor

    from hero.method.measures import Values
    from hero.method.norm import Norm

TITLES = {"nrmse": "nRMSE", "vrmse": "VRMSE"}
REPORTED_STEPS = (1, 10, 50, 100, 200)

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
        return self.at(self.steps)

    @property
    def title(self) -> str:
        return TITLES[self.measure]

    @property
    def gm_title(self) -> str:
        return metric_named(self.gm, self).title

    def metrics(self) -> dict[str, Metric]:
        """The metrics of a run by name: the standard ones, and the registered ones of `METRICS`."""
        added = {name: metric for name, metric in METRICS.items() if name not in STANDARD or self == Scoring()}
        return standard_metrics(self) | added


@dataclass(frozen=True)
class Metric:
    """A number that summarises the rollouts of a test set: one entry of `METRICS` is all that a new one needs."""

    title: str
    direction: Literal["lower", "higher"]  # which is better
    definition: str
    value: Callable[[Tensor], Tensor | float]  # (batch, time) ↦ one per trajectory, to be averaged, or a single one
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
        return Metric(title, "lower", definition, partial(measures.gm, steps=t), measure, t)
    after = f"after {t} autoregressive {'step' if t == 1 else 'steps'}"
    definition = f"Relative error ‖û−u‖₂/‖u‖₂ {after}, averaged over trajectories."
    if measure is vrmse:
        definition = (
            f"RMSE over the standard deviation of the true state {after}, mean over channels, averaged over "
            "trajectories; 1 is as good as the mean of the true state."
        )
    return Metric(f"{TITLES[measure.name]}@{t}", "lower", definition, partial(measures.nrmse_at, t=t), measure, t)


def standard_metrics(scoring: Scoring) -> dict[str, Metric]:
    """The metrics of benchmarks, scored by nRMSE, or of files, scored by VRMSE, over the steps of a scoring.

    Titles name any number of steps but the usual one.
    """
    h, own = scoring.steps, MEASURES[scoring.measure]
    plain, steps = h == HORIZON, sorted({*REPORTED_STEPS, h})
    found = {name: numbered_metric(name) for name in (scoring.gm, *map(scoring.at, steps))}

    def stable(title: str, definition: str, horizon: int = h, floor: int = 0) -> Metric:
        value = partial(measures.stable_step, horizon=horizon, floor=floor)
        return Metric(title, "higher", definition, value, steps=horizon)

    if own is nrmse:
        found |= {
            "stable_step": stable(
                "Stable step" if plain else f"Stable step ({h})",
                f"Last step, of the first {h}, up to which the relative error stays at or below {TAU} without "
                "interruption, averaged over trajectories. As in the paper the least value is 1, also where the first "
                "step exceeds the threshold.",
                floor=1,
            ),
            "stable_step_from_0": stable(
                "Stable step (from 0)" if plain else f"Stable step ({h}, from 0)",
                "The stable step, 0 for a trajectory whose first step already exceeds the threshold.",
            ),
            "stability_horizon_200": stable(
                "Stability horizon (200)",
                f"The stable step, at least 1, counted over the first 200 steps instead of {h}.",
                horizon=200,
                floor=1,
            ),
            "correlation_time": Metric(
                "Correlation time",
                "higher",
                "Number of steps before the cosine similarity of prediction and truth first falls below "
                f"{CORRELATION_THRESHOLD}, averaged over trajectories.",
                measures.correlation_time,
                measures.correlation,
            ),
        }
    else:
        found |= {
            "skilful_step": Metric(
                "Skilful steps",
                "higher",
                f"Steps, of the first {h}, before VRMSE first reaches the VRMSE of a baseline: the first state kept, "
                "or the mean state of the training data; averaged over trajectories.",
                lambda ratios: measures.uninterrupted(measures.float64(ratios)[:, :h] < 1),
                measures.skill_ratio,
            ),
            "anomaly_correlation_time": Metric(
                "Anomaly correlation time",
                "higher",
                "Number of steps before the correlation of prediction and truth, both about each channel's mean in the "
                f"training data, first falls below {CORRELATION_THRESHOLD}, averaged over trajectories.",
                measures.correlation_time,
                measures.anomaly_correlation,
            ),
        }
    found["diverged"] = Metric(
        "Diverged",
        "lower",
        "Number of rollouts that left the finite range at any step, or differ from a truth that is all zero.",
        measures.diverged,
        own,
    )
    found |= {f"nrmse@{t}": numbered_metric(f"nrmse@{t}") for t in steps}  # which files have after their own
    found["apebench_gmean_mean_nrmse"] = Metric(
        "APEBench gmean of mean nRMSE",
        "lower",
        "Relative error summed over channels and averaged over trajectories at each step, then the geometric mean "
        f"over steps 1 to {h}: the aggregation of APEBench.",
        partial(measures.apebench_gmean, steps=h),
        measures.apebench_nrmse,
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
        values = measures.float64(function(norm.hidden(u_hat), norm.hidden(u)))
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
        values = measures.float64(errors[metric.measure.name])
        if metric.steps <= values.shape[1]:
            summary[name] = float(measures.float64(metric.value(values)).mean())
    return summary


def by_channel(errors: Mapping[str, Values], names: Sequence[str], scoring: Scoring) -> dict[str, dict[str, float]]:
    """GM and errors at single steps of each channel, by its name; empty where errors are joint."""
    if measures.channel_vrmse.name not in errors:
        return {}
    values = measures.float64(errors[measures.channel_vrmse.name])  # (trajectory, time, channel)
    wanted = {name: metric for name, metric in scoring.metrics().items() if metric.measure is vrmse}
    return {name: evaluated(wanted, {vrmse.name: values[..., c]}) for c, name in enumerate(names)}


def measures_of(scoring: Scoring, more: Iterable[Metric] = ()) -> list[Measure]:
    """Every measure that the metrics of a scoring and `more` need."""
    found = {metric.measure.name: metric.measure for metric in (*scoring.metrics().values(), *more)}
    if scoring.measure == "vrmse":
        found[measures.channel_vrmse.name] = measures.channel_vrmse
    return [measure for measure in found.values() if measure is not measures.skill_ratio]  # which `with_skill` adds
