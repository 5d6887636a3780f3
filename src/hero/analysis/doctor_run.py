"""Why the rollout of a trained run blows up, goes static or drifts: `hero doctor RUN`. See docs/howto/doctor.md.

With the rollout w_n, the truth u_n and the operator G, the error of the next step is split exactly:

    w_{n+1} - u_{n+1} = [G(w_n) - G(u_n)] + [G(u_n) - u_{n+1}],

the first part is the old error as G carries it along, the second a new defect.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import computed_field
from torch import Tensor

from hero.analysis.anatomy import shares
from hero.console import progress_bar
from hero.data.files.checks import spread
from hero.evaluation.measure import Subject, Trained
from hero.method.distance import EPS, norm
from hero.method.domain import geometry_of
from hero.method.domain.bands import Bands, Limits, band_label
from hero.method.measures import MEASURES, TAU
from hero.method.rollout import rollout
from hero.models.once import frozen_weights
from hero.records import Record
from hero.strategies.settings import TrainSettings

STEPS = 100
TRAJECTORIES = 8
PROBED = 24  # steps at which errors are split and transformed
SMALL = 1e-3  # relative size of the difference whose growth is measured; far above the rounding of float32
FAR = 10.0  # error, or energy over the true one, from which on a finite rollout counts as blown up
STATIC = 0.1  # change per step, over the true one, below which a rollout counts as static
FORGETS = 0.9  # growth of a small difference per step below which a static rollout has lost its input


class RunDiagnosis(Record):
    """The content of `doctor.json`."""

    version: ClassVar[int] = 3
    remedy: ClassVar[str] = "`hero doctor` writes it again."

    run: str
    trajectories: int
    loss: str
    unroll: int
    noise: float
    errors: tuple[float, ...]  # median score over the trajectories from step 1 on; infinite once it has left the range
    diverged: int  # trajectories that leave the finite range
    diverged_step: int | None  # the first step at which one does
    steps: tuple[int, ...]  # steps at which the following rows are measured, as long as the rollout is finite
    defects: tuple[float, ...]  # ‖G(u_n) - u_{n+1}‖ / ‖u_{n+1}‖, median
    carried: tuple[float, ...]  # ‖G(w_n) - G(u_n)‖ / ‖u_{n+1}‖, median
    limits: Limits  # least and largest |k| of each band; None: all modes beyond the operator's own
    bands: tuple[tuple[float, ...], ...]  # energy of the error in each band over that of the truth, a row for each step
    channels: tuple[tuple[float, ...], ...]  # share of each channel in the error, one row for each step
    channel_names: tuple[str, ...]
    amplification: float  # growth of a small difference per step along the rollout, geometric mean
    energy: float = math.inf  # mean square of the late states (last quarter of the finite steps) over the true ones
    std: float = math.inf  # their std over the true one
    late_bands: tuple[float, ...] = ()  # energy of the late states in each band, over the whole energy of the true ones
    true_bands: tuple[float, ...] = ()  # energy of the true states in each band, over their whole energy
    change: float = math.inf  # relative change per step of the late states over the true ones

    @property
    def failed_step(self) -> int | None:
        """The first step whose error exceeds 0.1."""
        return next((n for n, error in enumerate(self.errors, start=1) if error > TAU), None)

    @property
    def explained(self) -> int:
        """The place in `steps` that tables explain: the first that failed, or the last."""
        failed = self.failed_step or self.steps[-1]
        return next((i for i, n in enumerate(self.steps) if n >= failed), len(self.steps) - 1)

    @property
    def new_share(self) -> float:
        """Share of new defects in the error there."""
        new, old = self.defects[self.explained] ** 2, self.carried[self.explained] ** 2
        return new / (new + old) if new + old else 0.0

    @property
    def labels(self) -> list[str]:
        return ["all"] if len(self.limits) == 1 else [band_label(*limits, beyond="beyond") for limits in self.limits]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def outcome(self) -> str:
        """ "blow-up", "static", "drift" or "accurate"."""
        if self.diverged or self.errors[-1] > FAR or self.energy > FAR:
            return "blow-up"
        if self.change < STATIC:
            return "static"
        return "accurate" if self.failed_step is None else "drift"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> str:
        return " ".join([*findings(self), *remedies(self)])


def findings(d: RunDiagnosis) -> Iterator[str]:
    """What happens, and where the error comes from."""
    if d.outcome == "blow-up" and d.diverged_step is not None:
        yield (
            f"The rollout blows up: {d.diverged} of {d.trajectories} leave the finite range, "
            f"the first at step {d.diverged_step}."
        )
    elif d.outcome == "blow-up":
        yield f"The rollout blows up: its late states have {d.energy:.2g} times the true energy."
    elif d.outcome == "static":
        yield f"The rollout goes static: late states change {d.change:.2g} times as much per step as true ones."
    elif d.outcome == "drift":
        yield f"The rollout stays finite; its error exceeds {TAU} at step {d.failed_step}."
    else:
        yield f"The rollout stays below an error of {TAU} over {len(d.errors)} steps."
    if d.outcome != "accurate":
        if len(d.limits) > 1:
            row = d.bands[d.explained]
            yield f"Most of the error is in the modes {d.labels[row.index(max(row))]}."
        yield (
            f"Of the error at step {d.steps[d.explained]}, new defects make {100 * d.new_share:.0f} % and old errors, "
            f"which the operator carries along, {100 - 100 * d.new_share:.0f} %; a small difference "
            f"{'grows' if d.amplification > 1 else 'shrinks'} to {d.amplification:.3g} of its size per step."
        )


def remedies(d: RunDiagnosis) -> Iterator[str]:
    blows_up, drifts, static = (d.outcome == outcome for outcome in ("blow-up", "drift", "static"))
    if blows_up:
        if d.amplification > 1.02 and d.unroll == 1:
            yield "Training saw single steps only: train with --strategy push_forward and train.unroll=5."
        elif d.amplification > 1.02:
            yield f"The operator amplifies: try train.unroll={2 * d.unroll}{'' if d.noise else ' or train.noise=0.01'}."
        else:
            yield (
                "Small differences do not grow near its states: it leaves the states that it was trained on; try "
                + ("more data and a longer train.unroll." if d.noise else "train.noise=0.01 and more data.")
            )
        yield "Whatever the cause, --set backbone.keep=auto,limit bounds the rollout by the energy of the data."
    parts = shares(d.bands[d.explained])
    if (blows_up or drifts) and sum(parts[len(parts) // 2 + 1 :]) > 0.5:  # in the upper half of the bands
        yield "The error sits at small scales: fewer backbone.modes, or states on a finer grid."
    if static and d.amplification < FORGETS:
        yield (
            "The operator forgets its input and falls into one state: it is trained too little, or a state has less in "
            "it than the next step needs (try train.history=2)."
        )
    elif static:
        yield "The operator has learned to copy its input: a larger data.stride makes the change per step count."
    if drifts and d.new_share >= 0.5:
        yield "Single steps are too inaccurate: train longer, with more data or a larger backbone."
    elif drifts:
        balanced = "" if d.loss == "balanced" else "train.loss=balanced under train.optimizer=soap, or "
        yield (
            f"Early errors are carried along: try {balanced}train.unroll={2 * d.unroll}; in chaotic flows an error of "
            "this kind is expected."
        )
    if (drifts or static) and d.energy < 0.5:
        yield f"It loses energy ({d.energy:.2g} of the true one): train.loss=balanced weighs small scales."
    if d.outcome == "accurate":
        yield "Nothing needs to change; `hero evaluate` measures longer rollouts."


def doctor_run(run: Path, data_dir: Path) -> RunDiagnosis:
    """Examine a trained run on its validation split; writes `doctor.json`."""
    trained = Trained(run, data_dir, float64=True)
    config, source = trained.config, trained.config.source
    bands = geometry_of(source, config.backbone.reach).bands(trained.device)
    subject = Subject.of(trained, "val", TRAJECTORIES)
    found = examine(subject, bands, run.name, config.train, source.channel_names)
    found.write(run / "doctor.json")
    return found


def examine(
    subject: Subject, bands: Bands, name: str, train: TrainSettings, channel_names: Sequence[str]
) -> RunDiagnosis:
    """Roll out, split the error, and measure growth and late states."""
    steps = min(STEPS, subject.data.shape[1] - subject.history)
    with torch.no_grad(), progress_bar("rolling out", 4) as advance:
        own = rollout(subject.step, subject.window(0), steps)
        truth = subject.truth(1, steps)
        errors = MEASURES[subject.norm.measure](own.cpu(), truth.cpu(), subject.norm)  # (trajectory, step)
        advance(note="splitting the error")
        alive = int(errors.isfinite().all(dim=0).sum())  # steps that every trajectory survives
        probed = [n + 1 for n in spread(max(alive, 1), PROBED)]
        defects, carried = split_error(subject, own, probed)
        scaled, true = (subject.norm.scaled(x.double()) for x in (own, truth))
        rows, channels = error_spectrum(scaled, true, [n - 1 for n in probed], bands)
        advance(note="following a small difference")
        amplification = small_growth(subject, max(1, min(alive, steps)))
        advance(note="late states")
        late = late_states(scaled[:, :alive], true[:, :alive], bands) if alive > 1 else {}
        advance()
    lost = ~errors.isfinite()
    return RunDiagnosis(
        run=name,
        trajectories=len(subject.data),
        loss=train.loss,
        unroll=train.unroll,
        noise=train.noise,
        errors=tuple(errors.quantile(0.5, dim=0, interpolation="higher").tolist()),
        diverged=int(lost.any(dim=1).sum()),
        diverged_step=int(lost.any(dim=0).nonzero()[0]) + 1 if bool(lost.any()) else None,
        steps=tuple(probed),
        defects=tuple(defects),
        carried=tuple(carried),
        limits=bands.limits,
        bands=tuple(map(tuple, rows)),
        channels=tuple(map(tuple, channels)),
        channel_names=tuple(channel_names),
        amplification=amplification,
        **late,
    )


def split_error(subject: Subject, own: Tensor, steps: Sequence[int]) -> tuple[list[float], list[float]]:
    """Relative size of the new defect and of the old error that is carried along, at each step: medians."""
    defects, carried = [], []
    start = subject.window(0).states
    path = torch.cat([start, own], dim=1)
    with frozen_weights():
        for n in steps:
            true = subject.window(n - 1)
            own_states = path[:, n - 1 : n - 1 + subject.history]
            made, after = (subject.call(z)[:, :1] for z in (true, replace(true, states=own_states)))
            target = subject.truth(n)
            size = subject.size(target) + EPS
            defects.append(_median(subject.size(made, target) / size))
            carried.append(_median(subject.size(after, made) / size))
    return defects, carried


def error_spectrum(
    own: Tensor, truth: Tensor, places: Sequence[int], bands: Bands
) -> tuple[list[list[float]], list[list[float]]]:
    """At each place: energy of the error by band over the energy of the truth, and the share of each channel in it."""
    target = truth[:, places]  # (trajectory, place, channel, *space)
    error = own[:, places] - target
    energy = target.flatten(2).square().sum(dim=2, keepdim=True) + EPS
    by_band = bands.energies(error.flatten(0, 1)).unflatten(0, error.shape[:2]) / energy
    by_channel = error.square().flatten(3).sum(dim=3)
    rows, channels = (x.mean(dim=0).nan_to_num(math.inf, math.inf).tolist() for x in (by_band, by_channel))
    return rows, list(map(shares, channels))


def small_growth(subject: Subject, steps: int) -> float:
    """Geometric mean of ‖G(w + δ) - G(w)‖ / ‖δ‖ along the rollout, δ scaled back after each call.

    δ begins as the operator's own first defect, and soon turns to the direction that grows most.
    """
    context = subject.window(0)
    delta = subject.call(context)[:, :1] - subject.truth(1)
    if not bool(delta.isfinite().all()) or not bool(subject.size(delta, torch.zeros_like(delta)).all()):
        delta = torch.randn(delta.shape, generator=torch.Generator().manual_seed(0)).to(delta)
    delta = delta.expand_as(context.states)
    logs, count = list[Tensor](), 0
    with frozen_weights():
        while count < steps:
            small = SMALL * subject.size(context.states) / (subject.size(delta, torch.zeros_like(delta)) + 1e-30)
            near = replace(
                context, states=context.states + delta * small.reshape(-1, *(1,) * (delta.dim() - 1)).to(delta)
            )
            before = subject.size(near.states[:, -1:], context.states[:, -1:])
            made, other = subject.call(context), subject.call(near)
            count += made.shape[1]
            context, near = context.advance(made), near.advance(other)
            rate = (subject.size(near.states[:, -1:], context.states[:, -1:]) / before).log() / made.shape[1]
            if not bool(rate.isfinite().all()):
                break
            logs.append(rate)
            delta = near.states - context.states
    return math.exp(float(torch.stack(logs).mean())) if logs else math.inf


def _median(values: Tensor) -> float:
    return float(values.double().nan_to_num(math.inf, math.inf).quantile(0.5, interpolation="higher"))


def late_states(own: Tensor, truth: Tensor, bands: Bands) -> dict[str, Any]:
    """How the distribution of late states differs from the data's."""
    first = min(own.shape[1] - 2, 3 * own.shape[1] // 4)
    w, u = own[:, first:], truth[:, first:]
    by_band = [bands.energies(x.flatten(0, 1)).mean(dim=0) for x in (w, u)]
    own_bands, true_bands = (tuple((energy / (by_band[1].sum() + EPS**2)).tolist()) for energy in by_band)
    change = [float((norm(x.diff(dim=1)) / (norm(x[:, :-1]) + EPS)).mean()) for x in (w, u)]
    return {
        "energy": float(w.square().mean() / (u.square().mean() + EPS**2)),
        "std": float(w.std() / (u.std() + EPS)),
        "late_bands": own_bands,
        "true_bands": true_bands,
        "change": change[0] / change[1] if change[1] else math.inf,
    }
