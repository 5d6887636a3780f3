"""Which modes make the error of a trained operator at step T: its defect drives the state through one band at a time.

With the solver S and the projection B_b onto a band of radial wavenumbers,

    w_0 = u_0,    w_{n+1} = S(w_n) + B_b [G(w_n) - S(w_n)],

and the error of band b is the score of w_T against u_T. Where data stand in for the solver, the next true state carries
it: w_{n+1} = u_{n+1} + B_b [G(w_n) - u_{n+1}]. With all modes in B, both are the operator's own rollout.
See docs/howto/anatomy.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import ClassVar

import torch
from pydantic import Field, computed_field
from torch import Tensor

from hero.console import progress_bar
from hero.errors import HeroError
from hero.evaluation.measure import Subject, Trained, check_split
from hero.method.distance import EPS
from hero.method.domain import geometry_of
from hero.method.domain.bands import GridBands, Limits, band_label
from hero.method.losses import LOSSES
from hero.method.measures import MEASURES
from hero.models.once import frozen_weights
from hero.records import Record

BATCH_VALUES = 2**20  # in the states of one batch of rollouts; activations are some tens of times larger
AGREEING = 0.75  # common part of the distributions over bands from which on the loss weighs as the rollout does
FAR_BELOW = 0.5  # bands that together make less than this share of the operator's own error do not explain it
CORRECTING = 1.5  # times the operator's own error from which on it is said to correct its defects


@torch.no_grad()
def driven_errors(
    subject: Subject, steps: int, bands: GridBands, masks: Tensor, solver: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """The score of w_T where only the defect in `masks` drives it: (masks, trajectories), float64, on the CPU.

    Without a solver the data carry the state. A rollout that leaves the finite range has an infinite error. A call that
    makes several states g_1, .., g_m from w_n has the defects g_j - S(g_{j-1}), with g_0 = w_n.
    """
    data, norm, parts = subject.data, subject.norm, []
    index = torch.cartesian_prod(torch.arange(len(masks)), torch.arange(len(data)))
    start = subject.window(0).each(Tensor.double)
    title = f"band by band, the {'data' if solver is None else 'solver'} carrying"
    with frozen_weights(), progress_bar(title, len(index) * steps) as advance:
        for rows in index.split(max(1, BATCH_VALUES // math.prod(data.shape[2:]))):
            mask, trajectory = masks[rows[:, 0].to(masks.device)], rows[:, 1]
            context, count = start.each(itemgetter(trajectory)), 0
            w = context.states[:, -1]
            finite = torch.ones(len(w), dtype=torch.bool, device=w.device)
            while count < steps:
                before = w
                states: list[Tensor] = []
                for made in subject.call(context)[:, : steps - count].unbind(1):
                    count += 1
                    if solver is None:
                        carried = expected = subject.truth(count)[trajectory, 0].to(w)
                    else:
                        carried = solver(w)
                        expected = solver(before) if states else carried
                    w, before = carried + bands.project(made - expected, mask), made
                    states.append(w)
                    finite &= w.isfinite().flatten(1).all(dim=1)
                    advance(len(w))
                context = context.advance(torch.stack(states, dim=1))
            w = torch.where(finite.reshape(-1, *(1,) * (w.dim() - 1)), w, torch.nan)
            parts.append(MEASURES[norm.measure](w[:, None].cpu(), subject.truth(steps).cpu()[trajectory], norm))
    return torch.cat(parts).reshape(len(masks), len(data))


@torch.no_grad()
def one_step_shares(subject: Subject, steps: int, bands: GridBands, relative: bool) -> list[float]:
    """Share of each band in the energy of G(u_n) - u_{n+1}, n < T; `relative`: each divided by ‖u_{n+1}‖²."""
    total = torch.zeros(len(bands.masks), dtype=torch.float64, device=bands.masks.device)
    with frozen_weights():
        for n in range(steps):
            made = subject.call(subject.window(n).each(Tensor.double))
            truth = subject.truth(n + 1, made.shape[1]).double()
            made, truth = subject.norm.scaled(made[:, : truth.shape[1]]), subject.norm.scaled(truth)
            energy = bands.energies((made - truth).flatten(0, 1))
            if relative:
                energy = energy / (truth.flatten(0, 1).flatten(1).norm(dim=1, keepdim=True) + EPS).square()
            total += energy.sum(dim=0)
    return shares(total.tolist())


def shares(values: Sequence[float]) -> list[float]:
    """Each of the values over their sum; infinite ones share all of it, and of nothing each has NaN."""
    if math.inf in values:
        values = [float(value == math.inf) for value in values]
    total = sum(values)
    return [value / total if total else math.nan for value in values]


class Carried(Record):
    """The errors at step T by band, of one kind of carrier."""

    errors: tuple[float, ...]  # e_b: mean score over the trajectories

    @computed_field  # type: ignore[prop-decorator]
    @property
    def shares(self) -> list[float]:
        """e_b² / Σ e_b²."""
        largest = max(self.errors) or 1.0
        if math.isinf(largest):
            return shares(self.errors)
        return shares([(error / largest) ** 2 for error in self.errors])  # squares of large errors would overflow

    @computed_field  # type: ignore[prop-decorator]
    @property
    def total(self) -> float:
        """(Σ e_b²)^½, which would be the error if the bands did not interact."""
        return math.hypot(*self.errors)


class Anatomy(Record):
    """The content of `anatomy.json`."""

    remedy: ClassVar[str] = "`hero anatomy` writes it again."

    run: str
    split: str
    trajectories: int
    steps: int
    loss: str
    optimizer: str
    limits: Limits = Field(min_length=1)  # least and largest |k| of each band; None: all beyond the operator's own
    one_step: tuple[float, ...]  # share of each band in the energy of the one-step error
    own: float  # error of the operator's own rollout at step T: all modes
    data: Carried
    solver: Carried | None
    solver_alone: float | None  # error of the solver without any defect: rounding, if the data are its own

    @property
    def labels(self) -> list[str]:
        return [band_label(*limits) for limits in self.limits]

    @property
    def basis(self) -> Carried:
        """The errors that the advice is drawn from."""
        return self.solver or self.data

    @computed_field  # type: ignore[prop-decorator]
    @property
    def advice(self) -> str:
        """One sentence: whether the loss weighs the modes that make the error, and what to change."""
        at, p, q = f"the error at step {self.steps}", self.one_step, self.basis.shares
        if self.own == 0 or any(map(math.isnan, (*p, *q))):
            return f"There is nothing to compare: {at} or the one-step error is zero or not a number."
        if self.basis.total < FAR_BELOW * self.own:
            return (
                f"No band makes {at} alone: together they make {self.basis.total:.2g} of {self.own:.2g}, "
                "so that the interplay of bands makes it."
            )
        if self.limits[-1][1] is None and q[-1] > 0.5:
            return f"{_percent(q[-1])} of {at} comes from beyond the operator's modes: raise backbone.modes."
        if sum(map(min, p, q)) >= AGREEING:
            return f"The one-step error has the modes of {at}: the loss already weighs modes as the long rollout does."
        needed = [i for i in range(len(q)) if q[i] > p[i]]
        seen, decisive = (1 - sum(values[i] for i in needed) for values in (p, q))
        # Under AdamW weights per mode moved little: docs/howto/anatomy.md.
        under = " under train.optimizer=soap" if self.optimizer == "adamw" else ""
        weighed = self.loss == "balanced"
        remedy = "its loss weighs modes already" if weighed else f"train with train.loss=balanced{under}"
        return (
            f"{_percent(seen)} of the one-step error is in modes that make {_percent(decisive)} of {at}; "
            f"|k| = {', '.join(self.labels[i] for i in needed)} make {_percent(1 - decisive)} of it: {remedy}."
        )

    @computed_field  # type: ignore[prop-decorator]
    @property
    def notes(self) -> list[str]:
        """How to read the table, and where not to trust it."""
        found = ["Contributions of bands interact and need not add up to the error of all modes."]
        if self.solver is None or self.own == 0:
            return found
        if self.solver.total > CORRECTING * self.own:
            found.append(
                f"Carried by the solver, the defects make {self.solver.total / self.own:.2g} times the "
                "operator's own error: the operator corrects part of its errors, so read the shares, not the sizes."
            )
        if self.solver_alone is not None and not self.solver_alone < 0.1 * self.own:
            found.append(
                f"warning: the solver alone misses the data by {self.solver_alone:.2g} at step {self.steps}; "
                "use fewer --steps, or --without-solver."
            )
        return found


def _percent(share: float) -> str:
    return "less than 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def anatomy(
    run: Path,
    data_dir: Path,
    steps: int | None = None,
    trajectories: int = 10,
    split: str = "val",
    with_solver: bool = True,
) -> Anatomy:
    """Measure which modes make the error of a run at step `steps`, by default its horizon; writes `anatomy.json`."""
    trained = Trained(run, data_dir, float64=True)
    config, source = trained.config, trained.config.source
    bands = geometry_of(source, config.backbone.reach).bands(trained.device)
    if not isinstance(bands, GridBands):
        raise HeroError(
            f"run {run.name} is on scattered points, which have no wavenumbers; `hero doctor {run.name}` splits its "
            "error without them."
        )
    check_split(split)
    longest = config.split(split).steps + 1 - trained.history
    steps = config.horizon if steps is None else steps
    if not 1 <= steps <= longest:
        raise HeroError(f"`steps` {steps} must be between 1 and the {longest} steps that the split {split} has.")
    if trajectories < 1:
        raise HeroError(f"`trajectories` {trajectories} is too small; use at least 1.")
    solver = source.stepper(trained.device) if with_solver and source.has_solver else None
    found = dissect(trained, bands, steps, trajectories, split, solver)
    found.write(run / "anatomy.json")
    return found


def dissect(
    trained: Trained,
    bands: GridBands,
    steps: int,
    trajectories: int,
    split: str,
    solver: Callable[[Tensor], Tensor] | None,
) -> Anatomy:
    """Roll out whole, step by step from true states, and band by band."""
    opened, train = Subject.of(trained, split, trajectories), trained.config.train

    def subject() -> Subject:
        """The operator in its own precision between states in float64; a new one draws the same random numbers."""
        made = trained.fresh_step()
        return replace(opened, step=lambda context: made(context.each(Tensor.float)).double())

    own = trained.measure(opened.data, steps=steps).score[:, -1].mean()
    is_relative = getattr(LOSSES[train.loss], "is_relative", False)  # functions of users do not say
    one_step = one_step_shares(subject(), steps, bands, is_relative)
    by_data = driven_errors(subject(), steps, bands, bands.masks).mean(1).tolist()
    by_solver, alone = [], None
    if solver:
        masks = torch.cat([bands.masks, torch.zeros_like(bands.masks[:1])])  # at last no defect: the solver alone
        *by_solver, alone = driven_errors(subject(), steps, bands, masks, solver).mean(1).tolist()
    return Anatomy(
        run=trained.run.name,
        split=split,
        trajectories=len(opened.data),
        steps=steps,
        loss=train.loss,
        optimizer=train.optimizer,
        limits=bands.limits,
        one_step=tuple(one_step),
        own=float(own),
        data=Carried(errors=tuple(by_data)),
        solver=Carried(errors=tuple(by_solver)) if solver else None,
        solver_alone=alone,
    )
