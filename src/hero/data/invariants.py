"""Invariants of a flow, found in its trajectories: what the data keep, how well, and whether an operator should.

    survey(data.each(), ("density", "u")).kept     # ("mean:density", "norm_cap:u"), as in `backbone.keep`

A quantity is kept if its largest change along any trajectory is no more than the precision of the data explains: one
rounding r = max(ε max|u|, q) for each state, with ε of float32 and q the step of quantised data. `models/wrappers.py`
builds the operator that keeps it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from hero.errors import HeroError, unknown_name

Kind = Literal["mean", "norm", "norm_cap", "low", "high", "total"]

KEEPABLE = ("mean", "norm", "norm_cap", "limit", "low", "high", "total")
VALUED = ("limit", "low", "high")  # kinds that have a number
ROUNDING = 2.0**-23  # ε of float32, in which training reads data
SLACK = 4  # roundings of a state before any step is made
NEARLY = 1e-2  # relative violation up to which an invariant is said to hold nearly
ROOM = 1.2  # times the largest norm of the training data that a limit leaves
SMALL_CHANGE = 0.07  # change per step, relative to the state, below which an operator does best to predict the change
FEWEST = 20  # steps, of all trajectories, from which on `never` is believed; values that show a step between them
SATURATED = 1e-2  # share of the values that lie on a bound, unless the bound is zero
TINY = 1e-12  # norm of a state, relative to the largest, below which nothing is divided by it
SAMPLED = 2**16  # values of a channel from which its precision is judged


@dataclass(frozen=True, eq=False)
class Survey:
    """Numbers of trajectories, (trajectory, state, channel), over valid points with their quadrature; and of each
    channel, (channel,). What follows from them: invariants, and how the operator predicts best.
    """

    names: tuple[str, ...]
    mean: np.ndarray
    norm: np.ndarray  # root mean square of u - mean
    change: np.ndarray  # root mean square of the change to the next state, (trajectory, states - 1, channel)
    low: np.ndarray
    high: np.ndarray
    at_low: np.ndarray  # share of the values that equal the smallest one, up to rounding
    at_high: np.ndarray
    quantum: np.ndarray  # smallest step between large values, which is the precision of quantised data

    @property
    def rounding(self) -> np.ndarray:
        """r of each channel."""
        return np.maximum(ROUNDING * np.maximum(np.abs(self.low), np.abs(self.high)), self.quantum)

    @property
    def roundings(self) -> int:
        """How often a number may have been rounded on the way to the last state."""
        return SLACK + self.mean.shape[1]

    @property
    def scale(self) -> np.ndarray:
        """The largest norm of each channel."""
        return self.norm.max(axis=(0, 1))

    @property
    def step_change(self) -> float:
        """Mean size of the change per step relative to the next state about its mean: persistence's error at step 1."""
        ratios = self.change / np.maximum(self.norm[:, 1:], TINY * self.scale)
        return float(np.mean([ratio.mean() for ratio in ratios])) if ratios.size else math.inf

    @property
    def predicts_change(self) -> bool:
        """Whether states change so little per step that the change is the easier target."""
        return self.step_change < SMALL_CHANGE

    @cached_property
    def invariants(self) -> list[Invariant]:
        """Every invariant that was looked for: kept, nearly kept, or not."""
        moving = [c for c in range(len(self.names)) if self.scale[c] > 0]
        found = [one for c in moving for one in (self.mean_kept("mean", c), *self.norm_kept(c), *self.bounds(c))]
        free = [self.names.index(one.channels[0]) for one in found if one.kind == "mean" and not one.kept]
        if len(free) > 1 and (total := self.mean_kept("total", *free)).violation < NEARLY:
            found.append(total)
        return found

    def mean_kept(self, kind: Kind, *columns: int) -> Invariant:
        """The mean of a channel, or the sum of several."""
        size = float(self.scale[list(columns)].max())
        total = self.mean[..., columns].sum(axis=-1)
        change = float(np.abs(total - total[:, :1]).max())
        tolerance = self.roundings * float(self.rounding[list(columns)].sum())
        names = tuple(self.names[c] for c in columns)
        return Invariant(kind, names, change / size, tolerance / size, change <= tolerance)

    def norm_kept(self, c: int) -> list[Invariant]:
        """The norm about the mean: kept, or never growing."""
        first, names = self.norm[:, :1, c], (self.names[c],)
        if first.min() <= 0:
            return []
        tolerance = self.roundings * float(self.rounding[c]) / float(first.min())
        n = self.norm[..., c] / first
        change = float(np.abs(n - 1).max())
        kept = Invariant("norm", names, change, tolerance, change <= tolerance)
        if kept.kept or self.change[..., c].size < FEWEST:
            return [kept]
        growth = float(np.max(n[:, 1:] - n[:, :-1], initial=0))
        cap = Invariant("norm_cap", names, growth, tolerance, growth <= tolerance)
        return [kept, cap] if growth < NEARLY else [kept]

    def bounds(self, c: int) -> list[Invariant]:
        """Zero where all values have one sign and come near it, and bounds that many values lie on."""
        low, high = float(self.low[c]), float(self.high[c])
        near = 0.05 * max(abs(low), abs(high))
        edges: tuple[tuple[Kind, float, float, bool], ...] = (
            ("low", low, self.at_low[c], 0 <= low <= near),
            ("high", high, self.at_high[c], -near <= high <= 0),
        )
        return [
            Invariant(kind, (self.names[c],), 0.0, 0.0, kept=True, value=edge if share >= SATURATED else 0.0)
            for kind, edge, share, near_zero in edges
            if near_zero or share >= SATURATED
        ]

    @property
    def kept(self) -> tuple[str, ...]:
        """The words of what an operator should keep."""
        return keep_words(self.invariants, self.predicts_change)

    def limits(self, kept: Sequence[str]) -> tuple[str, ...]:
        """A limit on the norm about the mean for every channel of which no norm is kept: the largest, and a bit."""
        normed = {word.partition(":")[2] for word in kept if word.startswith("norm")}
        sizes = zip(self.names, self.scale, strict=True)
        return tuple(f"limit:{name}={ROOM * size:.6g}" for name, size in sizes if size > 0 and name not in normed)


def survey(parts: Iterable[np.ndarray], names: Sequence[str], weights: np.ndarray | None = None) -> Survey:
    """Read trajectories (states, channel, *space) once; `names` are those of the channels.

    `weights` (channel, *space) weigh the points of a mean over space, 0 where masked; None: all equal.
    """
    series, lows, highs, samples = [], [], [], []
    for part in parts:
        u = np.asarray(part, dtype=np.float64)
        axes = tuple(range(2, u.ndim))
        w = np.ones(u.shape[1:]) if weights is None else np.asarray(weights, dtype=np.float64)
        w = w / w.sum(axis=tuple(range(1, w.ndim)), keepdims=True)
        mean = (u * w).sum(axis=axes)
        centred = u - mean.reshape(*mean.shape, *(1,) * len(axes))
        norm, change = (np.sqrt((np.square(one) * w).sum(axis=axes)) for one in (centred, np.diff(u, axis=0)))
        series.append((mean, norm, change))
        values = [u[:, c][:, w[c] > 0].ravel() for c in range(u.shape[1])]
        lows.append([v.min() for v in values])
        highs.append([v.max() for v in values])
        samples.append([v[:: max(1, v.size // 2048)][:2048] for v in values])
    low, high = np.min(lows, axis=0), np.max(highs, axis=0)
    chosen = samples[:: max(1, len(samples) * 2048 // SAMPLED)]
    taken = [np.concatenate([one[c] for one in chosen]) for c in range(len(low))]
    near = ROUNDING * np.maximum(np.abs(low), np.abs(high))
    mean, norm, change = (np.stack(column) for column in zip(*series, strict=True))
    return Survey(
        tuple(names),
        mean,
        norm,
        change,
        low,
        high,
        np.array([np.mean(v <= low[c] + near[c]) for c, v in enumerate(taken)]),
        np.array([np.mean(v >= high[c] - near[c]) for c, v in enumerate(taken)]),
        np.array([quantum_of(v) for v in taken]),
    )


def quantum_of(values: np.ndarray) -> float:
    """The smallest step between values above half of the largest; 0 where it is within float32's rounding.

    n values without a step have two that differ by about range/n²; ten times that is a step.
    """
    size = np.abs(values)
    large = np.unique(values[size >= 0.5 * size.max()].astype(np.float32)).astype(np.float64)
    if len(large) < FEWEST:
        return 0.0
    step = float(np.diff(large).min())
    many = int((size >= 0.5 * size.max()).sum())
    return step if step > max(8 * ROUNDING * float(size.max()), 10 * float(np.ptp(large)) / many**2) else 0.0


@dataclass(frozen=True)
class Invariant:
    """A quantity of the flow, how well the data keep it, and the decision."""

    kind: Kind
    channels: tuple[str, ...]  # one name, or the summands of a total
    violation: float  # largest change along a trajectory: of a mean in units of the norm, of a norm relative to it
    tolerance: float  # the violation that the precision of the data explains
    kept: bool
    value: float = math.nan  # value of a bound

    @property
    def word(self) -> str:
        """As `backbone.keep` has it."""
        bound = f"={self.value:g}" if self.kind in VALUED else ""
        return f"{self.kind}:{'+'.join(self.channels)}{bound}"

    @property
    def title(self) -> str:
        name = " + ".join(self.channels)
        return {
            "mean": f"mean of {name}",
            "norm": f"norm of {name} about its mean",
            "norm_cap": f"norm of {name} about its mean never grows",
            "low": f"{name} at least {self.value:g}",
            "high": f"{name} at most {self.value:g}",
            "total": f"mean of {name}",
        }[self.kind]

    @property
    def why(self) -> str:
        """The reason of the decision in a few words."""
        if self.kind in ("low", "high"):
            return "no value is beyond it"
        if self.kept and self.kind == "norm_cap":
            return "no state exceeds the one before"
        if self.kept:
            return f"the data keep it to {self.violation:.1g}"
        nearly = "holds only nearly" if self.violation < NEARLY else "does not hold"
        return f"{nearly}: it changes by {self.violation:.2g}, and the data are precise to {self.tolerance:.1g}"


def keep_words(invariants: Sequence[Invariant], steady: bool = True) -> tuple[str, ...]:
    """What an operator should keep, as `backbone.keep` has it.

    A norm is not combined with bounds: rescaling could leave them. Means and norms are kept where states are `steady`,
    that is change little per step: a projection leaves the network free to add any constant, and where its output is a
    whole new state, not a small change, it learns one that fits the training data alone (docs/method/tuning.md).
    """
    free = () if steady else ("mean", "total", "norm")
    kept = [one for one in invariants if one.kept and one.kind in KEEPABLE and one.kind not in free]
    normed = {one.channels[0] for one in kept if one.kind == "norm"}
    return tuple(one.word for one in kept if one.kind not in ("low", "high") or one.channels[0] not in normed)


@dataclass(frozen=True)
class Rule:
    """A word of `backbone.keep`, read: the kind, the numbers of its channels, and the value of a bound."""

    kind: str
    channels: tuple[int, ...]
    value: float = math.nan


def parse_keep(words: Sequence[str], names: Sequence[str]) -> list[Rule]:
    """The rules of `mean`, `norm:u`, `low:density=0` or `total:a+b`; without a name a rule holds for every channel."""
    rules: list[Rule] = []
    for word in words:
        found = re.fullmatch(r"\s*([a-z_]+)(?::([^=]*))?(?:=([-+.eE0-9]+))?\s*", word)
        kind = found[1] if found else word
        if kind not in KEEPABLE:
            raise unknown_name("invariant in backbone.keep:", kind, [*KEEPABLE, "auto", "none"])
        assert found is not None
        given = [name.strip() for name in (found[2] or "").split("+") if name.strip()]
        for name in given:
            if name not in names:
                raise unknown_name(f"channel in backbone.keep={word}:", name, names)
        numbers = tuple(list(names).index(name) for name in given) or tuple(range(len(names)))
        if (kind in VALUED) != (found[3] is not None):
            raise HeroError(f"backbone.keep={word} is not possible; write a bound as low:{names[0]}=0, others without.")
        value = math.nan if found[3] is None else float(found[3])
        rules += [Rule(kind, numbers)] if kind == "total" else [Rule(kind, (c,), value) for c in numbers]
    for c, name in enumerate(names):
        kinds = [rule.kind for rule in rules if c in rule.channels]
        norms = [kind for kind in kinds if kind in ("norm", "norm_cap", "limit")]
        if len(kinds) > len(set(kinds)) or len(norms) > 1 or {"mean", "total"} <= set(kinds):
            raise HeroError(f"backbone.keep has {', '.join(kinds)} for {name}; keep one of each kind.")
        if "norm" in kinds and {"low", "high"} & set(kinds):
            raise HeroError(f"backbone.keep has a norm and a bound for {name}, which contradict each other; drop one.")
    return rules
