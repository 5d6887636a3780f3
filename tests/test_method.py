"""The parts of HERO against naive loops in float64, and the properties the paper states."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor, nn

from hero.data.windows import Context
from hero.method.cache import WindowCache
from hero.method.diagnostics import DIAGNOSTICS, WORST, TrajectoryErrors, Truth, bounded, scores, worst
from hero.method.distance import EPS, norm, state_distance, trajectory_distance
from hero.method.domain import Domain, SpectralNoise
from hero.method.objective import Every, Hero, Margin, Ramp


def trajectories(*space: int, batch: int = 3, steps: int = 4, channels: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (batch, steps, channels, *space)
    truth = torch.randn(shape, generator=generator, dtype=torch.float64)
    return truth + 0.3 * torch.randn(shape, generator=generator, dtype=torch.float64), truth


def diagnose(tau: Tensor, truth: Tensor, weights: Tensor | None = None) -> Tensor:
    """All four diagnostics: (batch, diagnostic)."""
    errors = TrajectoryErrors(tau, Truth(truth, Domain(weights), WindowCache()))
    return bounded(torch.stack([diagnostic.value(errors) for diagnostic in DIAGNOSTICS.values()], dim=1))


SPACES = [(6,), (5,), (4, 6), (3, 5), (2, 3, 4)]


def naive_distance(v: np.ndarray, w: np.ndarray) -> float:
    points = v[0].size
    norm = lambda x: math.sqrt(sum(abs(value) ** 2 for value in x.ravel()) / points)  # noqa: E731
    return norm(v - w) / (norm(w) + EPS)


@pytest.mark.parametrize("space", SPACES)
def test_distances_and_energy(space: tuple[int, ...]) -> None:
    tau, truth = trajectories(*space)
    for b in range(3):
        row = [naive_distance(tau[b, k].numpy(), truth[b, k].numpy()) for k in range(4)]
        np.testing.assert_allclose(state_distance(tau, truth)[b].numpy(), row, rtol=1e-12)
        np.testing.assert_allclose(trajectory_distance(tau, truth)[b].item(), sum(row) / 4, rtol=1e-12)
        for k in range(4):
            expected = sum(value**2 for value in truth[b, k].numpy().ravel()) / truth[b, k, 0].numel()
            assert math.isclose(norm(truth)[b, k].item() ** 2, expected, rel_tol=1e-12)


def test_a_candidate_that_blows_up_is_the_worst_and_stays_finite() -> None:
    tau, truth = trajectories(6)
    exploded = tau.clone()
    exploded[1, 2:] = float("inf")
    exploded[2, 1:] = float("nan")
    values = torch.stack([diagnose(truth, truth), diagnose(exploded, truth), diagnose(tau, truth)], dim=1)
    assert bool(values.isfinite().all())
    assert worst(values)[1:].tolist() == [1, 1]
    assert values[1, 1, 0] == WORST


diagnostic_tables = arrays(np.float64, (4, 3, 4), elements=st.floats(0, 1e3))


@given(diagnostic_tables)
def test_scores_lie_in_the_unit_interval_and_match_the_formula(table: np.ndarray) -> None:
    ours = scores(torch.from_numpy(table)).numpy()
    assert (ours >= 0).all()
    assert (ours <= 1).all()
    for b in range(4):
        for j in range(3):
            terms = []
            for q in range(4):
                low, high = min(table[b, :, q]), max(table[b, :, q])
                terms.append((table[b, j, q] - low) / (high - low + EPS))
            assert math.isclose(ours[b, j], sum(terms) / 4, abs_tol=1e-12)


@given(arrays(np.float64, (5, 3, 4), elements=st.sampled_from([0.0, 1.0, 2.0])))
def test_ties_go_to_the_first_candidate(table: np.ndarray) -> None:
    s = scores(torch.from_numpy(table)).numpy()
    expected = [next(j for j in range(3) if row[j] == max(row)) for row in s]
    assert worst(torch.from_numpy(table)).tolist() == expected


@given(st.floats(0, 10), st.floats(0, 10), st.floats(1e-3, 1), st.floats(0.1, 20))
def test_margin_loss_and_activation(d_cur: float, d_fail: float, margin: float, beta: float) -> None:
    x = torch.tensor([d_cur], dtype=torch.float64, requires_grad=True)
    fail = torch.tensor([d_fail], dtype=torch.float64)
    loss, alpha = Margin(margin, beta)(x, fail)
    expected = np.logaddexp(0, beta * (d_cur - d_fail + margin)) / beta
    assert math.isclose(loss.item(), expected, rel_tol=1e-9, abs_tol=1e-9)
    assert 0 <= alpha.item() <= 1
    torch.testing.assert_close(torch.autograd.grad(loss.sum(), x)[0], alpha, rtol=1e-6, atol=1e-8)


def test_schedules_at_the_numbers_of_the_paper() -> None:
    assert Ramp()(0) == 0
    assert math.isclose(Ramp()(1000), 0.01)
    assert Ramp()(2000) == 0.02
    assert [s for s in range(10_000) if Every()(s - Hero().start)] == [4000, 6000, 8000]


@pytest.mark.parametrize("space", [(16,), (15,), (8, 6), (4, 6, 8)])
def test_spectral_noise_keeps_norm_and_phase_and_multiplies_the_mean_by_the_rescaling_alone(
    space: tuple[int, ...],
) -> None:
    u, s = torch.randn(3, 2, 1, *space, dtype=torch.float64) + 0.5, 0.05
    v = SpectralNoise(s)(Context(u), torch.Generator().manual_seed(0)).states
    axes = tuple(range(3, u.dim()))
    assert not torch.allclose(u, v)
    torch.testing.assert_close(v.flatten(3).norm(dim=3), u.flatten(3).norm(dim=3))
    spectrum, noisy = torch.fft.rfftn(u, dim=axes), torch.fft.rfftn(v, dim=axes)
    xi = torch.randn(spectrum.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gain = v.flatten(3).mean(dim=3) / u.flatten(3).mean(dim=3)  # one factor per state and channel
    assert bool(((gain - 1).abs() < s).all())
    assert bool((gain != 1).all())
    # All coefficients but the plane k = 0 and Nyquist of the last axis, which hold conjugate pairs.
    inner = slice(1, (space[-1] + 1) // 2)
    factor = gain.reshape(3, 2, 1, *(1,) * len(space)) * (1 + s * xi)
    torch.testing.assert_close(noisy[..., inner], (factor * spectrum)[..., inner])
    zero_noise = SpectralNoise(0.0)(Context(u), torch.Generator().manual_seed(0)).states
    torch.testing.assert_close(zero_noise, u)


class Scale(nn.Module):
    """u ↦ a u: an operator whose rollouts are known."""

    def __init__(self, a: float) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor(a, dtype=torch.float64))

    def forward(self, u: Tensor) -> Tensor:
        return self.a * u[:, -1:]


def test_lagged_operator_refreshes_exactly_when_the_paper_says() -> None:
    hero, model = Hero(start=4, refresh=Every(3)), Scale(0.0)
    window = torch.randn(2, 3, 1, 5, dtype=torch.float64)
    state, seen = hero.init(), {}
    for step in range(14):
        model.a.data.fill_(float(step))
        _, state, comparison = hero(model, window[:, 0], window[:, 1:], state)
        assert state.step == step + 1
        assert (comparison is None) == (state.lagged is None) == (step < 4)
        if state.lagged is not None:
            seen[step] = state.lagged.a.item()
    assert seen == {4: 4, 5: 4, 6: 4, 7: 7, 8: 7, 9: 7, 10: 10, 11: 10, 12: 10, 13: 13}
    restored = hero.load(state.state_dict(), model)
    model.a.data.fill_(99.0)
    _, restored, _ = hero(model, window[:, 0], window[:, 1:], restored)
    assert restored.step == 15
    assert restored.lagged.a.item() == 13
