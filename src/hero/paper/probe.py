"""The theory section measured on a run: does history give more weight to windows that matter for the long horizon?

For each kept checkpoint: task gradients g_i on validation windows, the long-horizon gradient ∇J_L from the same starts,
the activation α_i against the lagged operator of that checkpoint, and what follows from them by `theory.py`. In
float64, so that an identity that fails by more than rounding is a mistake and not noise. See docs/method/theory.md.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Generator, Tensor, nn
from torch.nn.utils import vector_to_parameters
from torch.utils.checkpoint import checkpoint

from hero.console import progress_bar
from hero.data.trajectories import Context
from hero.errors import HeroError
from hero.method.candidates import restored_lagged
from hero.method.distance import trajectory_distance
from hero.method.norm import Norm
from hero.method.objective import Hero, HeroState
from hero.method.rollout import rollout
from hero.paper import theory
from hero.runs.checkpoint import load_kept, load_state
from hero.runs.config import RunConfig
from hero.runs.folder import Run, choose_device, load_data, with_float64
from hero.seeding import seed_of
from hero.strategies.hero import HeroStrategy

HORIZON = 50  # steps of the long-horizon risk where validation trajectories have as many
TARGET = 0.9
"""ε of the finite-step bound, as a share of J_L at the checkpoint: constants measured at one point do not reach far."""


@dataclass(frozen=True)
class Tasks:
    """The empirical ρ: windows of validation trajectories that begin where training windows may begin."""

    states: Tensor  # (N, H, channel, *space), float64
    truth: Tensor  # (N, T_L, channel, *space), float64; its first K steps are the training window
    trajectory: Tensor  # (N,)
    norm: Norm = field(default_factory=Norm)

    def risk(self, model: nn.Module, part: slice, steps: int | None = None, recompute: bool = False) -> Tensor:
        """ℓ_T(q_i, θ) = D(τ_θ, τ_*) of the tasks in `part` over T = `steps`, by default all of the truth.

        With `recompute` only the states are kept, and each step is computed again in the backward pass.
        """

        def step(context: Context) -> Tensor:
            inputs = context.inputs()
            output: Tensor = checkpoint(model, inputs, use_reentrant=False) if recompute else model(inputs)
            return output

        truth = self.truth[part, :steps]
        tau = rollout(step, Context(self.states[part]), truth.shape[1])
        return trajectory_distance(self.norm.scaled(tau), self.norm.scaled(truth), self.norm.weights)

    def parts(self, batch: int) -> list[slice]:
        """All tasks, `batch` at a time."""
        return [slice(first, first + batch) for first in range(0, len(self.states), batch)]


def draw_tasks(
    data: Tensor, history: int, last_start: int, horizon: int, count: int, seed: int, norm: Norm | None = None
) -> Tasks:
    """`count` different windows of H + T_L states, uniformly from starts 0 .. last_start of every trajectory."""
    starts = min(last_start, data.shape[1] - history - horizon) + 1
    generator = Generator().manual_seed(seed_of(seed, "probe"))
    index = torch.randperm(len(data) * starts, generator=generator)[:count]
    trajectory, start = index // starts, index % starts
    window = data[trajectory[:, None], start[:, None] + torch.arange(history + horizon)].double()
    return Tasks(window[:, :history], window[:, history:], trajectory, norm or Norm())


def vector(tensors: Iterable[Tensor]) -> Tensor:
    """θ or a gradient as one vector, ordered as `parameters()`."""
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def gradient(model: nn.Module, loss: Tensor) -> Tensor:
    """∇_θ of a number."""
    return vector(torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True))


def long_gradient(model: nn.Module, tasks: Tasks, batch: int) -> tuple[float, Tensor]:
    """J_L(θ) = mean_i ℓ_{T_L}(q_i, θ) and ∇J_L(θ), back-propagated through all T_L steps, `batch` tasks at a time."""
    risk, slope = 0.0, torch.zeros_like(vector(model.parameters()))
    for part in tasks.parts(batch):
        loss = tasks.risk(model, part, recompute=True).sum() / len(tasks.states)
        slope += gradient(model, loss)
        risk += float(loss.detach())
    return risk, slope


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
) -> theory.Measured:
    """α_i, a_i = ⟨`slope`, g_i⟩, ‖g_i‖ and the directions d^H and d⁰, with `slope` = ∇J_L; no gradient is kept."""
    d_hero, d_standard = torch.zeros_like(slope), torch.zeros_like(slope)
    alphas, inner, norms, selected = [], [], [], []
    # The relative term of this checkpoint, whatever its step: the lagged operator is given and stays.
    given = replace(hero, start=0, refresh=lambda since: False)
    for part in tasks.parts(batch):
        context, truth = Context(tasks.states[part]), tasks.truth[part, :steps]
        with torch.no_grad():
            _, _, comparison = given(model, context, truth, HeroState(lagged=lagged), generator=generator)
        assert comparison is not None
        assert comparison.reference is not None
        alphas.append(comparison.alpha)
        selected.append(comparison.reference.j_star)
        for i, weight in enumerate(1 + lam * comparison.alpha, start=part.start):
            g = gradient(model, tasks.risk(model, slice(i, i + 1), steps)[0])
            inner.append(g @ slope)
            norms.append(g.norm())
            d_hero -= weight * g / len(tasks.states)
            d_standard -= g / len(tasks.states)
    alpha, a, norm, j_star = (found.cpu() for found in map(torch.hstack, (alphas, inner, norms, selected)))
    return theory.Measured(alpha, a, norm, j_star, d_hero, d_standard)


def finite_step(
    model: nn.Module, tasks: Tasks, risk: float, slope: Tensor, direction: Tensor, batch: int
) -> theory.FiniteStep:
    """γ, D, L̂ and the bound that they imply for plain steps θ ← θ + η d^H.

    γ = -⟨∇J_L, d^H⟩ and D = ‖d^H‖ here. L̂ = ‖∇J_L(θ + t d^H) - ∇J_L(θ)‖ / (t D), the larger of two values: at a t that
    moves θ by 1e-4 of its norm, and at the t = γ / (L D²) that the first admits. It is a mean curvature along the
    update segment, so a lower estimate of the constant L of the theorem and no upper bound. The step of the rate
    γ / (L̂ D²) is then taken, to see whether J_L falls by the η γ / 2 that the proof needs.
    """
    theta = vector(model.parameters())
    gamma, norm = -float(slope @ direction), float(direction.norm())
    moved = copy.deepcopy(model)

    def after(t: float) -> tuple[float, Tensor]:
        vector_to_parameters(theta + t * direction, moved.parameters())
        return long_gradient(moved, tasks, batch)

    def curvature(t: float) -> float:
        return float((after(t)[1] - slope).norm()) / (t * norm)

    smoothness = curvature(1e-4 * float(theta.norm()) / norm) if norm else math.nan
    eta = theory.largest_rate(gamma, smoothness, norm)
    if math.isfinite(eta):
        further = curvature(eta)
        smoothness = max(smoothness, further) if math.isfinite(further) else math.inf
        eta = theory.largest_rate(gamma, smoothness, norm)
    return theory.FiniteStep(
        gamma=gamma,
        direction_norm=norm,
        smoothness=smoothness,
        rate=eta,
        epsilon=TARGET * risk,
        entry_bound=theory.entry_bound(risk, TARGET * risk, eta, gamma),
        promised_decrease=eta * gamma / 2,
        measured_decrease=risk - after(eta)[0] if math.isfinite(eta) else math.nan,
    )


def check_probe(config: RunConfig, run: Path, horizon: int, longest: int) -> None:
    """Refuse a run that cannot be measured."""
    strategy, train = config.make_strategy(), config.train
    if not isinstance(strategy, HeroStrategy) or not strategy.hero.compares:
        raise HeroError(
            f"run {run.name} was trained with {config.strategy!r} and no lagged operator, so there is no alpha; "
            "probe a run of strategy hero."
        )
    if config.source.known:
        raise HeroError(f"run {run.name} is conditioned, which the probe does not know; probe another.")
    if train.bundle > 1:
        raise HeroError(f"run {run.name} makes {train.bundle} steps per call; probe one with train.bundle=1.")
    if not train.unroll <= horizon <= longest:
        raise HeroError(
            f"horizon={horizon} must be between train.unroll={train.unroll} and the {longest} steps that "
            "validation trajectories have; change it."
        )


def probe(
    run: Path, data_dir: Path, steps: Sequence[int] = (), horizon: int | None = None, windows: int = 120
) -> theory.Probe:
    """Measure the checkpoints after `steps` updates, all with a lagged operator by default; writes `probe.json`.

    The long-horizon risk is over `horizon` steps, by default 50 or as many as validation trajectories have.
    """
    config = Run(run).config
    train = config.train
    longest = config.split("val").steps + 1 - train.history
    horizon = min(HORIZON, longest) if horizon is None else horizon
    check_probe(config, run, horizon, longest)
    if windows < 2:
        raise HeroError(f"windows={windows} is too small for a covariance; use at least 2.")
    last = Run(run).state_file
    possible = sorted({*Run(run).kept_steps, *([int(load_state(last)["step"])] if last.is_file() else [])})
    if not possible:
        raise HeroError(f"run {run.name} has no checkpoint yet; train it first.")
    if missing := [step for step in steps if step not in possible]:
        raise HeroError(
            f"run {run.name} kept no checkpoint of step {missing[0]} (there are: {', '.join(map(str, possible))}); "
            "choose one of these, or train with train.keep_every set."
        )
    device = with_float64(choose_device(train.device))
    data = load_data(config, "val", data_dir, device).states.to(device)
    last_start = config.split("train").steps + 1 - train.history - train.unroll
    norm = Run(run).norm(data_dir)
    tasks = draw_tasks(data, train.history, last_start, horizon, windows, config.seed, norm)
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


def checkpoint_at(run: Run, config: RunConfig, step: int) -> tuple[nn.Module, dict[str, Tensor] | None]:
    """The operator after `step` updates, and the weights of its lagged operator, if it has one."""
    model = config.build_operator()
    if run.kept_file(step).is_file():
        return model, load_kept(run.kept_file(step), model)
    state = load_state(run.state_file)
    model.load_state_dict(state["model"])
    return model, state["strategy"]["lagged"]


def probe_step(run: Path, config: RunConfig, step: int, tasks: Tasks, device: torch.device) -> theory.ProbePoint | None:
    """All numbers of one checkpoint; None if it has no lagged operator, before s_0."""
    model, weights = checkpoint_at(Run(run), config, step)
    if not weights:
        return None
    lagged = restored_lagged(model, weights).to(device).double().eval()
    model = model.to(device).double().eval()
    strategy = config.make_strategy()
    assert isinstance(strategy, HeroStrategy)
    batch = config.train.batch
    # θ_s is what iteration s - 1 made, with the λ and the lagged operator of that iteration.
    lam = strategy.hero.weight(step - 1 - strategy.hero.start)
    risk, slope = long_gradient(model, tasks, batch)
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
        **dict(theory.FirstOrder.of(measured, slope, lam, groups)),
        finite_step=finite_step(model, tasks, risk, slope, measured.d_hero, batch),
        per_window=theory.PerWindow(
            alpha=tuple(measured.alpha.tolist()),
            a=tuple(measured.a.tolist()),
            gradient_norm=tuple(measured.norm.tolist()),
            selected=tuple(names[j] for j in measured.selected),
            trajectory=tuple(tasks.trajectory.tolist()),
        ),
    )
