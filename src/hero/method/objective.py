"""Stage 5 of HERO, and the whole objective put together from its parts: L_total = L_roll + λ_s L_rel.

`HeroObjective` works in anyone's training loop; our trainer uses the same class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import softplus

from hero.data.windows import Context
from hero.errors import HeroError, unknown_name
from hero.method.cache import WindowTable, is_stochastic
from hero.method.candidates import CANDIDATES, Candidate, Scene
from hero.method.diagnostics import DIAGNOSTICS, Diagnostic, Instrument, Spectrum, Truth, fourier_amplitudes
from hero.method.lagged import LaggedOperator
from hero.method.perturbations import Perturbation, SpectralNoise
from hero.method.rollout import Unroll, trajectory_distance, unroll
from hero.method.schedule import relative_weight
from hero.method.selection import select
from hero.seeding import seed_of

Part = TypeVar("Part")


def margin_loss(d_cur: Tensor, d_fail: Tensor, margin: float, beta: float) -> Tensor:
    """ℓ_rel = (1/β) log(1 + exp(β [d_cur - d_fail + m])), per sample."""
    return softplus(d_cur - d_fail + margin, beta=beta)


def activation(d_cur: Tensor, d_fail: Tensor, margin: float, beta: float) -> Tensor:
    """α = σ(β [d_cur - d_fail + m]), the factor by which the relative term scales the gradient of d_cur."""
    return torch.sigmoid(beta * (d_cur - d_fail + margin))


@dataclass(frozen=True)
class RelativeTerm:
    """What one comparison with the failure reference gives; all but `loss` is detached."""

    loss: Tensor  # ℓ_rel per sample, (batch,)
    alpha: Tensor  # (batch,)
    d_cur: Tensor  # (batch,)
    d_fail: Tensor  # (batch,)
    selected: Tensor  # index into `candidates` per sample, (batch,)
    diagnostics: Tensor  # (batch, candidate, diagnostic)
    candidates: tuple[str, ...]
    diagnostic_names: tuple[str, ...]

    def statistics(self) -> dict[str, Tensor]:
        """Scalars for the log, still on the device: α, the margin d_fail - d_cur, shares, and E_q per candidate."""
        out = {
            "relative_loss": self.loss.detach().mean(),
            "alpha": self.alpha.mean(),
            "alpha_std": self.alpha.std(correction=0),
            "margin": (self.d_fail - self.d_cur).mean(),
        }
        means = self.diagnostics.mean(dim=0)
        for j, candidate in enumerate(self.candidates):
            out[candidate] = (self.selected == j).float().mean()
            for q, diagnostic in enumerate(self.diagnostic_names):
                out[f"{candidate}.{diagnostic}"] = means[j, q]
        return out


class HeroObjective:
    """HERO as a loss: `loss = objective(model, context, truth)`, once per optimiser step.

    Every part can be replaced: candidates and diagnostics by name or as a mapping of callables, the selector, the
    perturbation, the schedule. Numbers default to the paper's. State (step, lagged weights) is in `state_dict`.
    """

    def __init__(
        self,
        start: int = 4000,
        refresh: int = 2000,
        warmup: int = 2000,
        lambda_max: float = 0.02,
        margin: float = 0.02,
        beta: float = 5.0,
        *,
        candidates: Sequence[str] | Mapping[str, Candidate] = tuple(CANDIDATES),
        diagnostics: Sequence[str] | Mapping[str, Diagnostic] = tuple(DIAGNOSTICS),
        perturbation: Perturbation | None = None,
        selector: Callable[[Tensor], Tensor] = select,
        schedule: Callable[[int], float] | None = None,
        absolute: Callable[[Tensor, Tensor], Tensor] | None = None,
        weights: Tensor | None = None,
        spectrum: Spectrum | None = fourier_amplitudes,
        single_candidate: bool = False,
        cached: bool = True,
        callback: Callable[[int, RelativeTerm], None] | None = None,
        seed: int = 0,
    ) -> None:
        """`weights`: quadrature weights ω; `spectrum`: |F u|, or None to leave "spec" out; `absolute`: replaces mean D;
        `single_candidate`: allow M = 1, as two ablations need; `callback(step, term)`: sees each comparison."""
        self.start, self.margin, self.beta, self.seed = start, margin, beta, seed
        self.schedule = schedule or (lambda step: relative_weight(step, start, warmup, lambda_max))
        self.candidates = named_parts("candidate", candidates, CANDIDATES)
        if len(self.candidates) < (1 if single_candidate else 2):
            raise HeroError(
                f"candidates={list(self.candidates)} leaves nothing to select from; "
                "give at least two, or set single_candidate (hero.single_candidate=true) for an ablation."
            )
        active = named_parts("diagnostic", diagnostics, DIAGNOSTICS)
        if spectrum is None:
            active.pop("spec", None)
        if not active:
            raise HeroError("diagnostics is empty, so no candidate can be ranked; give at least one.")
        self.instrument = Instrument(active, weights, spectrum if "spec" in active else None)
        self.perturbation = perturbation or SpectralNoise()
        self.selector, self.callback, self.cached = selector, callback, cached
        self.absolute = absolute or (lambda tau, truth: trajectory_distance(tau, truth, weights).mean())
        self.lagged = LaggedOperator(start, refresh)
        self.unroll: Unroll = unroll
        self.step = 0
        self.term: RelativeTerm | None = None
        self._lag_table, self._energy_table, self._amplitude_table = WindowTable(), WindowTable(), WindowTable()

    def __call__(
        self,
        model: nn.Module,
        context: Context | Tensor,
        truth: Tensor,
        index: Tensor | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        """L_total of one batch: a context or state (batch, channel, *space) and its future (batch, K, channel, *space).

        `index` numbers the windows of a finite training set (int64, on the CPU); with it, what depends on a window
        alone is computed once per refresh. The comparison is left in `self.term`, None before s_0.
        """
        if isinstance(context, Tensor):
            context = Context(context[:, None])
        current = self.unroll(model, context, truth.shape[1])
        loss = self.absolute(current, truth)
        self.term = None
        if self.step >= self.start:
            if generator is None:
                generator = Generator(device=truth.device).manual_seed(seed_of(self.seed, "noise", self.step))
            if self.lagged.update(model, self.step):
                self._lag_table.clear()
            assert self.lagged.model is not None
            self.term = self.compare(model, self.lagged.model, context, current, truth, generator, index)
            loss = loss + self.weight() * self.term.loss.mean()
            if self.callback is not None:
                self.callback(self.step, self.term)
        self.step += 1
        return loss

    def weight(self) -> float:
        """λ_s of the present step."""
        return self.schedule(self.step)

    def compare(
        self,
        model: nn.Module,
        lagged: nn.Module,
        context: Context,
        current: Tensor,
        truth: Tensor,
        generator: Generator,
        index: Tensor | None = None,
    ) -> RelativeTerm:
        """Stages 2 to 5: candidates, diagnostics, selection, margin loss of τ_θ = `current`."""
        if not self.cached or is_stochastic(model):
            index = None
        true = self._truth(truth, index)
        scene = Scene(model, lagged, context, current, self.perturbation, generator, self.unroll)
        rows = [self._measure(name, scene, true, index) for name in self.candidates]
        table = torch.stack(rows, dim=1)  # (batch, candidate, 1 + diagnostics)
        selected = self.selector(table[:, :, 1:])
        d_fail = table[:, :, 0].gather(1, selected[:, None])[:, 0]
        d_cur = trajectory_distance(current, truth, self.instrument.weights)
        return RelativeTerm(
            loss=margin_loss(d_cur, d_fail, self.margin, self.beta),
            alpha=activation(d_cur.detach(), d_fail, self.margin, self.beta),
            d_cur=d_cur.detach(),
            d_fail=d_fail,
            selected=selected,
            diagnostics=table[:, :, 1:],
            candidates=tuple(self.candidates),
            diagnostic_names=tuple(self.instrument.diagnostics),
        )

    @torch.no_grad()
    def _measure(self, name: str, scene: Scene, truth: Truth, index: Tensor | None) -> Tensor:
        def fresh() -> Tensor:
            return self.instrument.measure(self.candidates[name](scene), truth)

        return self._lag_table.get(index, fresh) if name == "lag" and index is not None else fresh()

    @torch.no_grad()
    def _truth(self, states: Tensor, index: Tensor | None) -> Truth:
        instrument = self.instrument
        if index is None:
            return Truth(states, instrument.energy(states), instrument.amplitudes(states))
        energy = self._energy_table.get(index, lambda: instrument.energy(states))
        spectrum = instrument.spectrum
        amplitudes = None if spectrum is None else self._amplitude_table.get(index, lambda: spectrum(states))
        return Truth(states, energy, amplitudes)

    def cache_bytes(self) -> int:
        """Memory of everything that is kept per window."""
        return sum(t.nbytes() for t in (self._lag_table, self._energy_table, self._amplitude_table))

    def state_dict(self) -> dict[str, Any]:
        """What resuming needs. The caches are not in it: they fill again with the same bits."""
        return {"step": self.step, "lagged": self.lagged.state_dict()}

    def load_state_dict(self, state: dict[str, Any], model: nn.Module) -> None:
        """Undo `state_dict`; `model` gives the architecture of the lagged operator."""
        self.step = state["step"]
        self.lagged.load_state_dict(state["lagged"], model)
        self._lag_table.clear()


def named_parts(kind: str, chosen: Sequence[str] | Mapping[str, Part], known: dict[str, Part]) -> dict[str, Part]:
    """The chosen parts by name: known ones in the order of their registry, which is their priority, or one's own."""
    if isinstance(chosen, Mapping):
        return dict(chosen)
    for name in chosen:
        if name not in known:
            raise unknown_name(kind, name, known)
    return {name: part for name, part in known.items() if name in chosen}
