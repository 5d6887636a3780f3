"""The theory section measured on a run: does history give more weight to windows that matter for the long horizon?

For each kept checkpoint: task gradients g_i on validation windows, the long-horizon gradient ∇J_L from the same starts,
the activation α_i against the lagged operator of that checkpoint, and what follows from them by `theory.py`. In
float64, so that an identity that fails by more than rounding is a mistake and not noise. See docs/method/theory.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Generator, Tensor, nn

from hero.console import progress_bar
from hero.data.trajectories import Context
from hero.errors import HeroError
from hero.method.candidates import restored_lagged
from hero.method.norm import Norm
from hero.method.objective import Hero, HeroState
from hero.paper import theory
from hero.paper.gradients import long_gradient, long_risk, parameters_of, task_gradients
from hero.runs.checkpoint import load_kept, load_state
from hero.runs.config import RunConfig
from hero.runs.folder import Run, choose_device, load_data, with_float64
from hero.seeding import seed_of
from hero.strategies.hero import HeroStrategy

HORIZON = 50
"""Steps of the long-horizon risk where validation trajectories have as many."""
TARGET = 0.9
"""ε of the finite-step bound, as a share of J_L at the checkpoint: constants measured at one point do not reach far."""


@dataclass(frozen=True)
class Tasks:
    """The empirical ρ: windows of validation trajectories that begin where training windows may begin."""

    states: Tensor  # (N, H, channel, *space), float64
    truth: Tensor  # (N, T_L, channel, *space), float64; its first K steps are the training window
    trajectory: Tensor  # (N,)
    norm: Norm = field(default_factory=Norm)


def draw_tasks(data: Tensor, history: int, last_start: int, horizon: int, count: int, seed: int) -> Tasks:
    """`count` different windows of H + T_L states, uniformly from starts 0 .. last_start of every trajectory."""
    starts = min(last_start, data.shape[1] - history - horizon) + 1
    generator = Generator().manual_seed(seed_of(seed, "probe"))
    index = torch.randperm(len(data) * starts, generator=generator)[:count]
    trajectory, start = index // starts, index % starts
    window = data[trajectory[:, None], start[:, None] + torch.arange(history + horizon)].double()
    return Tasks(window[:, :history], window[:, history:], trajectory)


@dataclass(frozen=True)
class Measured:
    """Per task, and summed into the two directions; `batches` holds (tasks, ⟨∇J_L, d̂^H⟩, ⟨∇J_L, d̂⁰⟩) per mini-batch."""

    alpha: Tensor  # (N,), on the CPU like the next three
    a: Tensor
    norm: Tensor  # ‖g_i‖
    selected: Tensor  # index of the candidate
    d_hero: Tensor
    d_standard: Tensor
    batches: list[tuple[slice, float, float]]


def measure(
    model: nn.Module,
    lagged: nn.Module,
    hero: Hero,
    tasks: Tasks,
    slope: Tensor,
    lam: float,
    generator: Generator,
    *,
    steps: int,
    batch: int,
    chunk: int | None = None,
) -> Measured:
    """α_i, a_i = ⟨`slope`, g_i⟩, ‖g_i‖ and the directions d^H and d⁰, with `slope` = ∇J_L; no gradient is kept."""
    d_hero, d_standard = torch.zeros_like(slope), torch.zeros_like(slope)
    columns: list[tuple[Tensor, ...]] = []
    batches = []
    # The relative term of this checkpoint, whatever its step: the lagged operator is given and stays.
    given = replace(hero, start=0, refresh=lambda since: False)
    count = len(tasks.states)
    for first in range(0, count, batch):
        part = slice(first, min(first + batch, count))
        states, truth = tasks.states[part], tasks.truth[part, :steps]
        with torch.no_grad():
            _, _, comparison = given(model, Context(states), truth, HeroState(lagged=lagged), generator=generator)
        assert comparison is not None
        assert comparison.reference is not None
        sum_g, sum_wg, inner, norms = torch.zeros_like(slope), torch.zeros_like(slope), [], []
        weight = theory.task_weight(comparison.alpha, lam)
        for g in task_gradients(model, states, truth, chunk, tasks.norm):
            inner.append(g @ slope)
            norms.append(g.norm(dim=1))
            sum_g += g.sum(dim=0)
            sum_wg += weight[: len(g)] @ g
            weight = weight[len(g) :]
        columns.append((comparison.alpha, torch.cat(inner), torch.cat(norms), comparison.reference.j_star))
        batches.append((part, -float(slope @ sum_wg) / len(states), -float(slope @ sum_g) / len(states)))
        d_hero -= sum_wg / count
        d_standard -= sum_g / count
    alpha, a, norm, selected = (torch.cat(column).cpu() for column in zip(*columns, strict=True))
    return Measured(alpha, a, norm, selected, d_hero, d_standard, batches)


def describe(measured: Measured, slope: Tensor, lam: float, groups: Tensor) -> theory.FirstOrder:
    """Everything of `theory.py` that follows from the first-order quantities."""
    alpha, a = measured.alpha, measured.a
    along_hero, along_standard = float(slope @ measured.d_hero), float(slope @ measured.d_standard)
    mean, cov = float(alpha.mean()), theory.covariance(alpha, a)
    facts = (along_standard, cov, mean, lam)
    batches = [theory.decomposition(h, s, alpha[part], a[part], lam) for part, h, s in measured.batches]
    cov_batches = torch.tensor([theory.covariance(alpha[part], a[part]) for part, *_ in measured.batches])
    slope_norm = float(slope.norm())
    return theory.FirstOrder(
        weight=lam,
        windows=len(alpha),
        alpha_mean=mean,
        alpha_std=float(alpha.std(correction=0)),
        a_mean=float(a.mean()),
        a_std=float(a.std(correction=0)),
        a_positive=float((a > 0).double().mean()),
        cosine_mean=float((a / (measured.norm * slope_norm)).mean()) if slope_norm else math.nan,
        covariance=cov,
        correlation=theory.correlation(alpha, a),
        correlation_interval=theory.correlation_interval(alpha, a, groups),
        slope_norm=slope_norm,
        along_standard=along_standard,
        along_hero=along_hero,
        decomposition=theory.decomposition(along_hero, along_standard, alpha, a, lam),
        normalised=theory.normalised_decomposition(along_hero, along_standard, alpha, a, lam),
        minibatch=theory.Minibatches(
            batches=len(batches),
            largest_residual=max(identity.residual for identity in batches),
            covariance_mean=float(cov_batches.mean()),
            covariance_positive=float((cov_batches > 0).double().mean()),
        ),
        effect=theory.reweighting_effect(*facts),
        preservation=theory.Preservation.of(*facts),
        correction=theory.Correction.of(*facts),
    )


def finite_step(
    model: nn.Module, tasks: Tasks, risk: float, slope: Tensor, direction: Tensor, batch: int
) -> theory.FiniteStep:
    """γ, D, L̂ and the bound that they imply for plain steps θ ← θ + η d^H.

    γ = -⟨∇J_L, d^H⟩ and D = ‖d^H‖ here. L̂ = ‖∇J_L(θ + t d^H) - ∇J_L(θ)‖ / (t D), the larger of two values: at a t that
    moves θ by 1e-4 of its norm, and at the t = γ / (L D²) that the first admits. It is a mean curvature along the
    update segment, so a lower estimate of the constant L of the theorem and no upper bound. The step of the rate
    γ / (L̂ D²) is then taken, to see whether J_L falls by the η γ / 2 that the proof needs.
    """
    theta = parameters_of(model)
    gamma, norm = -float(slope @ direction), float(direction.norm())

    def curvature(t: float) -> float:
        moved = long_gradient(model, theta + t * direction, tasks.states, tasks.truth, batch, tasks.norm)[1]
        return float((moved - slope).norm()) / (t * norm)

    epsilon = TARGET * risk
    smoothness = curvature(1e-4 * float(theta.norm()) / norm) if norm else math.nan
    eta = theory.largest_rate(gamma, smoothness, norm)
    decrease = math.nan
    if math.isfinite(eta):
        further = curvature(eta)
        smoothness = max(smoothness, further) if math.isfinite(further) else math.inf
        eta = theory.largest_rate(gamma, smoothness, norm)
    if math.isfinite(eta):
        after = long_risk(model, theta + eta * direction, tasks.states, tasks.truth, batch, tasks.norm)
        decrease = risk - after
    return theory.FiniteStep(
        gamma=gamma,
        direction_norm=norm,
        smoothness=smoothness,
        rate=eta,
        epsilon=epsilon,
        entry_bound=theory.entry_bound(risk, epsilon, eta, gamma),
        promised_decrease=eta * gamma / 2,
        measured_decrease=decrease,
    )


def load_point(run: Path, step: int, model: nn.Module) -> nn.Module | None:
    """Put the checkpoint after `step` updates into `model`; returns its lagged operator, None before s_0."""
    if Run(run).kept_file(step).is_file():
        weights = load_kept(Run(run).kept_file(step), model)
    else:
        state = load_state(Run(run).state_file)
        model.load_state_dict(state["model"])
        weights = state["strategy"]["lagged"]
    return restored_lagged(model, weights) if weights else None


def available(run: Path) -> list[int]:
    """The steps that can be probed: kept checkpoints, and the last state of the run."""
    last = Run(run).state_file
    return sorted({*Run(run).kept_steps, *([int(load_state(last)["step"])] if last.is_file() else [])})


def longest_horizon(config: RunConfig) -> int:
    """Steps of a validation trajectory after the history."""
    return config.split("val").steps + 1 - config.train.history


def check_probe(config: RunConfig, run: Path, horizon: int, windows: int) -> None:
    """Refuse what cannot be measured."""
    strategy = config.make_strategy()
    if not isinstance(strategy, HeroStrategy) or not strategy.hero.compares:
        raise HeroError(
            f"run {run.name} was trained with {config.strategy!r} and no lagged operator, so there is no alpha; "
            "probe a run of strategy hero."
        )
    longest = longest_horizon(config)
    if config.source.known:
        raise HeroError(f"run {run.name} is conditioned, which the probe does not know; probe another.")
    if config.train.bundle > 1:
        raise HeroError(f"run {run.name} makes {config.train.bundle} steps per call; probe one with train.bundle=1.")
    if not config.train.unroll <= horizon <= longest:
        raise HeroError(
            f"horizon={horizon} must be between train.unroll={config.train.unroll} and the {longest} steps that "
            "validation trajectories have; change it."
        )
    if windows < 2:
        raise HeroError(f"windows={windows} is too small for a covariance; use at least 2.")


def probe(
    run: Path, data_dir: Path, steps: Sequence[int] = (), horizon: int | None = None, windows: int = 120
) -> theory.Probe:
    """Measure the checkpoints after `steps` updates, all with a lagged operator by default; writes `probe.json`.

    The long-horizon risk is over `horizon` steps, by default 50 or as many as validation trajectories have.
    """
    config = Run(run).config
    horizon = min(HORIZON, longest_horizon(config)) if horizon is None else horizon
    check_probe(config, run, horizon, windows)
    possible = available(run)
    if not possible:
        raise HeroError(f"run {run.name} has no checkpoint yet; train it first.")
    missing = [step for step in steps if step not in possible]
    if missing:
        raise HeroError(
            f"run {run.name} kept no checkpoint of step {missing[0]} (there are: {', '.join(map(str, possible))}); "
            "choose one of these, or train with train.keep_every set."
        )
    device = with_float64(choose_device(config.train.device))
    data = load_data(config, "val", data_dir, device).states
    history = config.train.history
    last_start = config.split("train").steps + 1 - history - config.train.unroll
    tasks = draw_tasks(data, history, last_start, horizon, windows, config.seed)
    norm = Run(run).norm(data_dir)
    tasks = Tasks(tasks.states.to(device), tasks.truth.to(device), tasks.trajectory, norm)
    chosen = sorted(set(steps)) or possible
    rows = []
    with progress_bar("probing", len(chosen)) as advance:
        for step in chosen:
            row = probe_step(run, config, step, tasks, device)
            if row is not None:
                rows.append(row)
            elif steps or step == possible[-1]:
                raise HeroError(
                    f"run {run.name} has no lagged operator at step {step}: it begins after "
                    f"hero.start={config.method.model_dump()['start']}; probe a later checkpoint."
                )
            advance()
    found = theory.Probe(run=run.name, horizon=horizon, checkpoints=tuple(rows))
    found.write(run / "probe.json")
    return found


def probe_step(run: Path, config: RunConfig, step: int, tasks: Tasks, device: torch.device) -> theory.ProbePoint | None:
    """All numbers of one checkpoint; None if it has no lagged operator."""
    model = config.build_operator()
    lagged = load_point(run, step, model)
    if lagged is None:
        return None
    model, lagged = model.to(device).double().eval(), lagged.to(device).double().eval()
    strategy = config.make_strategy()
    assert isinstance(strategy, HeroStrategy)
    batch = config.train.batch
    # θ_s is what iteration s - 1 made, with the λ and the lagged operator of that iteration.
    lam = strategy.hero.weight(step - 1 - strategy.hero.start)
    risk, slope = long_gradient(model, parameters_of(model), tasks.states, tasks.truth, batch, tasks.norm)
    if not math.isfinite(risk + float(slope.norm())):
        raise HeroError(
            f"a rollout of checkpoint {step} leaves the finite range within {tasks.truth.shape[1]} steps, "
            "so the long-horizon risk has no gradient; lower `horizon` or choose other checkpoints."
        )
    generator = Generator(device=device).manual_seed(seed_of(config.seed, "probe noise", step))
    hero = replace(strategy.hero, domain=replace(strategy.hero.domain, norm=tasks.norm))
    measured = measure(model, lagged, hero, tasks, slope, lam, generator, steps=config.train.unroll, batch=batch)
    # Trajectories are numbered from 0 without gaps, as the bootstrap wants them.
    groups = torch.unique(tasks.trajectory, return_inverse=True)[1]
    names = list(strategy.hero.reference.candidates)
    return theory.ProbePoint(
        step=step,
        loss=config.train.loss,
        risk=risk,
        **dict(describe(measured, slope, lam, groups)),
        finite_step=finite_step(model, tasks, risk, slope, measured.d_hero, batch),
        per_window=theory.PerWindow(
            alpha=tuple(measured.alpha.tolist()),
            a=tuple(measured.a.tolist()),
            gradient_norm=tuple(measured.norm.tolist()),
            selected=tuple(names[j] for j in measured.selected),
            trajectory=tuple(tasks.trajectory.tolist()),
        ),
    )
