"""Hero as a user meets it: in a plain loop, with parts replaced, cached, with weights, and resumed."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor, nn

from hero import CANDIDATES, DIAGNOSTICS, Candidate, Context, Domain, FailureReference, Hero
from hero.data.windows import Batches
from hero.errors import HeroError
from hero.method.cache import WindowCache, is_cacheable
from hero.method.candidates import Cached, CandidateInputs, lag
from hero.method.diagnostics import WORST, TrajectoryErrors, Truth, bounded, measure, scores, worst
from hero.method.distance import EPS, trajectory_distance
from hero.method.domain import SpectralNoise
from hero.method.objective import Every, FixedWeight, HeroState, Margin, Ramp, RelativeTerm
from hero.method.rollout import unroll
from hero.models import FNO

EARLY = Hero(start=3, refresh=Every(4), weight=Ramp(2, 0.3))
AT_ONCE = replace(EARLY, start=0)


def data(trajectories: int = 4, steps: int = 9, channels: int = 1, space: tuple[int, ...] = (12,)) -> Tensor:
    return torch.randn(trajectories, steps, channels, *space, generator=torch.Generator().manual_seed(0))


def model_of(in_channels: int = 1, out_channels: int = 1, dims: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return FNO(in_channels, out_channels, width=4, modes=(3,) * dims, depth=1)


def train(
    hero: Hero, model: nn.Module, windows: Batches, state: HeroState, last: int, optimiser: Any, **options: Any
) -> tuple[HeroState, list[RelativeTerm]]:
    """The loop of a user, numbering its windows."""
    comparisons = []
    for step in range(state.step, last):
        batch = windows(step)
        loss, state, comparison = hero(model, batch.context, batch.truth, state, index=batch.index, **options)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        comparisons += [] if comparison is None else [comparison]
    return state, comparisons


def trained(hero: Hero, steps: int, dims: int = 1) -> tuple[list[Tensor], HeroState, list[RelativeTerm]]:
    """Weights, state and comparisons after `steps` updates of a small operator."""
    model = model_of(dims=dims)
    windows = Batches(data(space=(12,) * dims), 4, 6, seed=0)
    state, comparisons = train(hero, model, windows, hero.init(), steps, torch.optim.Adam(model.parameters(), lr=1e-2))
    return [p.detach() for p in model.parameters()], state, comparisons


def uncached(hero: Hero) -> Hero:
    """The same with every candidate measured at every update."""
    candidates = {name: Candidate(c.title, c.rollout, c.perturbs) for name, c in hero.reference.candidates.items()}
    return replace(hero, reference=replace(hero.reference, candidates=candidates))


@pytest.mark.parametrize("dims", [1, 3])
def test_the_cache_is_exact_to_the_bit(dims: int) -> None:
    kept, state, _ = trained(EARLY, 30, dims)
    plain, plain_state, _ = trained(uncached(EARLY), 30, dims)
    assert all(torch.equal(a, b) for a, b in zip(kept, plain, strict=True))
    coefficients = 12 ** (dims - 1) * 7
    # 20 windows of 4 steps, 4 bytes each: D and four diagnostics, and the amplitudes per step
    assert state.cache.nbytes() == 20 * 4 * (5 + 4 * coefficients)
    assert not plain_state.cache.lagged


class Normalising(nn.Module):
    """A convolution and a normalisation layer, with a buffer that no state dict holds."""

    def __init__(self, layer: nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.layer = nn.Conv1d(1, 3, 3, padding=1), layer or nn.BatchNorm1d(3)
        self.outer = nn.Conv1d(3, 1, 1)
        self.register_buffer("scale", torch.ones(()), persistent=False)

    def forward(self, u: Tensor) -> Tensor:
        return u + 0.1 * self.scale * self.outer(torch.tanh(self.layer(self.inner(u))))


def test_without_numbers_or_where_samples_mix_no_candidate_is_cached() -> None:
    window = data(5, 5)
    for model, index in ((model_of(), None), (Normalising(), torch.arange(5))):
        _, state, _ = AT_ONCE(model, window[:, 0], window[:, 1:], AT_ONCE.init(), index=index)
        assert not state.cache.lagged


def saying(attribute: str) -> nn.Module:
    """A module that says itself that it must not be cached."""
    layer = nn.Identity()
    setattr(layer, attribute, True)
    return layer


def test_modules_that_draw_or_mix_samples_are_not_cached() -> None:
    norm, attention = nn.BatchNorm1d, nn.MultiheadAttention
    mixing = (norm(3), norm(3, track_running_stats=False).eval(), nn.SyncBatchNorm(3), saying("mixes_batch"))
    drawing = (nn.Dropout(0.5), attention(4, 2, dropout=0.1), nn.RReLU(), saying("stochastic"))
    quiet = (nn.Dropout(0.0), nn.Dropout(0.5).eval(), norm(3).eval(), nn.InstanceNorm1d(3), nn.GroupNorm(1, 3))
    for layer in (*mixing, *drawing, *quiet, attention(4, 2), nn.Identity()):
        cacheable = layer not in (*mixing, *drawing)
        assert is_cacheable(nn.Sequential(nn.Linear(3, 3), layer)) == cacheable, layer


def test_a_candidate_is_cached_for_what_it_is_and_not_for_its_name() -> None:
    """A user's candidate called "lag" that draws noise is drawn at every update; another name may be cached."""
    calls = {"lag": 0, "frozen": 0}

    def noisy(inputs: CandidateInputs) -> Tensor:
        calls["lag"] += 1
        return inputs.current + torch.randn(inputs.current.shape, generator=inputs.generator)

    def frozen(inputs: CandidateInputs) -> Tensor:
        calls["frozen"] += 1
        return lag(inputs)

    candidates = {"lag": Candidate("noise", noisy), "frozen": Cached("frozen", frozen)}
    hero = replace(EARLY, start=0, refresh=Every(100), reference=FailureReference(candidates))
    window, state, seen = data(5, 5), hero.init(), []
    for _ in range(4):
        _, state, comparison = hero(model_of(), window[:, 0], window[:, 1:], state, index=torch.arange(5))
        seen.append(comparison.reference.E[:, 0])
    assert calls == {"lag": 4, "frozen": 1}
    assert not any(torch.equal(seen[0], other) for other in seen[1:])


def test_a_curriculum_with_numbered_windows_finds_the_rows_of_its_length() -> None:
    window, model = data(5, 6), model_of()
    state = AT_ONCE.init()
    for steps in (2, 5, 2, 3):
        args = (model, window[:, 0], window[:, 1 : 1 + steps])
        expected = AT_ONCE(*args, HeroState(state.step, state.lagged))[0]
        loss, state, _ = AT_ONCE(*args, state, index=torch.arange(5))
        assert torch.equal(loss, expected)


def test_a_plain_loop_saves_and_resumes_with_torch_save() -> None:
    hero = replace(EARLY, seed=7)

    def fresh() -> tuple[nn.Module, Any]:
        model = model_of()
        return model, torch.optim.Adam(model.parameters(), lr=1e-2)

    windows = Batches(data(), 4, 6, seed=0)
    whole, optimiser = fresh()
    train(hero, whole, windows, hero.init(), 16, optimiser)

    part, optimiser = fresh()
    state, _ = train(hero, part, windows, hero.init(), 9, optimiser)
    buffer = io.BytesIO()
    torch.save({"model": part.state_dict(), "optimiser": optimiser.state_dict(), "hero": state.state_dict()}, buffer)
    buffer.seek(0)
    saved = torch.load(buffer, weights_only=True)
    model, optimiser = fresh()
    model.load_state_dict(saved["model"])
    optimiser.load_state_dict(saved["optimiser"])
    state = hero.load(saved["hero"], model)
    assert state.step == 9
    train(hero, model, windows, state, 16, optimiser)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), model.parameters(), strict=True))
    assert hero.load(hero.init().state_dict(), model).lagged is None


def push_forward(steps: int) -> list[Tensor]:
    """The weights of plain training on D."""
    model = model_of()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    windows = Batches(data(), 4, 6, seed=0)
    for step in range(steps):
        batch = windows(step)
        optimiser.zero_grad()
        trajectory_distance(unroll(model, batch.context, 4), batch.truth).mean().backward()
        optimiser.step()
    return [p.detach() for p in model.parameters()]


def test_without_the_relative_term_training_is_push_forward_to_the_bit_and_makes_no_candidate() -> None:
    weights, state, seen = trained(replace(EARLY, relative=None), 12)
    assert all(torch.equal(a, b) for a, b in zip(weights, push_forward(12), strict=True))
    assert not seen
    assert state.lagged is None


def test_statistics_are_means_over_the_batch() -> None:
    _, _, seen = trained(EARLY, 6)
    comparison = seen[-1]
    reference, values = comparison.reference, comparison.statistics()
    assert values["lambda"] == 0.3
    torch.testing.assert_close(values["alpha"], comparison.alpha.mean())
    torch.testing.assert_close(values["alpha_std"], comparison.alpha.std(correction=0))
    torch.testing.assert_close(values["margin"], (reference.d_fail - comparison.d_cur).mean())
    torch.testing.assert_close(values["relative_loss"], comparison.loss.detach().mean())
    for j, candidate in enumerate(("lag", "perturbed", "self")):
        assert values[candidate].item() == pytest.approx((reference.j_star == j).double().mean().item())
        for q, diagnostic in enumerate(("roll", "spec", "energy", "growth")):
            torch.testing.assert_close(values[f"{candidate}.{diagnostic}"], reference.E[:, j, q].mean())


@pytest.mark.parametrize("compiled", [False, True])
def test_running_statistics_are_changed_by_the_trained_rollout_alone(compiled: bool) -> None:
    """Candidates leave BatchNorm as the K calls of the current rollout made it, and the lagged copy stays frozen."""
    roll = torch.compile(unroll, dynamic=False, backend="aot_eager") if compiled else unroll
    window, model, alone = data(5, 5), Normalising(), Normalising()
    hero = replace(AT_ONCE, refresh=lambda since: False)
    state = HeroState(lagged=copy.deepcopy(model))
    before = copy.deepcopy(state.lagged.state_dict())
    for _ in range(3):
        loss, state, _ = hero(model, window[:, 0], window[:, 1:], state, unroll=roll)
        loss.backward()  # the graph of the current rollout is intact
        unroll(alone, Context(window[:, :1]), 4)
    torch.testing.assert_close(model.layer.running_mean, alone.layer.running_mean)
    torch.testing.assert_close(model.layer.running_var, alone.layer.running_var)
    assert model.layer.num_batches_tracked == alone.layer.num_batches_tracked == 12
    assert all(torch.equal(value, before[name]) for name, value in state.lagged.state_dict().items())


def test_a_refresh_copies_every_buffer_and_so_does_a_checkpoint() -> None:
    hero, model, window = replace(AT_ONCE, refresh=Every(2)), Normalising(), data(5, 5)
    state, seen = hero.init(), []
    for step in range(4):
        model.scale.fill_(1.0 + step)
        _, state, _ = hero(model, window[:, 0], window[:, 1:], state)
        seen.append(state.lagged.scale.item())
    assert seen == [1, 1, 3, 3]
    model.scale.fill_(9.0)
    restored = hero.load(state.state_dict(), model)
    assert restored.lagged.scale.item() == 3
    assert all(torch.equal(a, b) for a, b in zip(restored.lagged.buffers(), state.lagged.buffers(), strict=True))


def test_the_lagged_operator_of_another_model_is_refused() -> None:
    window = data(5, 5)
    _, state, _ = AT_ONCE(model_of(), window[:, 0], window[:, 1:], AT_ONCE.init())
    with pytest.raises(HeroError, match=r"lagged operator has no parameter lifting.weight of shape \(4, 2\)"):
        AT_ONCE.load(state.state_dict(), model_of(in_channels=2))


@pytest.mark.parametrize(
    "make",
    [
        lambda: FailureReference(candidates={}),
        lambda: FailureReference(diagnostics={}),
        lambda: CANDIDATES.only("lagg", "self"),
        lambda: DIAGNOSTICS.only("spek"),
        lambda: Hero(domain=Domain(spectrum=None)),  # which the diagnostic `spec` reads
        lambda: Hero(start=True),
        lambda: Ramp(warmup=0),
        lambda: Ramp(warmup=2.5),
        lambda: Ramp(lambda_max=math.nan),
        lambda: Every(0),
        lambda: Margin(beta=math.inf),
        lambda: Margin(m=0),
        lambda: FixedWeight(-1.0),
        lambda: SpectralNoise(-0.1),
        lambda: Domain(weights=torch.tensor([0.5, math.nan])),
    ],
)
def test_parts_refuse_bad_numbers_and_names(make: Callable[[], object]) -> None:
    with pytest.raises(HeroError):
        make()
    assert Hero(domain=Domain(spectrum=None), reference=FailureReference(diagnostics=DIAGNOSTICS.only("roll")))


@pytest.mark.parametrize(
    ("context", "steps", "options"),
    [
        ((3, 12), 4, {}),
        ((3, 1, 1, 12), 4, {}),
        ((2, 1, 12), 4, {}),
        ((3, 1, 12), 0, {}),
        ((3, 1, 12), 4, {"index": torch.arange(2)}),
        ((3, 1, 12), 4, {"index": torch.zeros(3)}),
        ((3, 2, 12), 4, {}),  # two channels, of which the model makes one
    ],
)
def test_tensors_that_do_not_belong_together_are_refused(
    context: tuple[int, ...], steps: int, options: dict[str, Tensor]
) -> None:
    class OneChannel(nn.Module):
        def forward(self, u: Tensor) -> Tensor:
            return u[:, :1]

    truth = torch.zeros(3, steps, 2 if context == (3, 2, 12) else 1, 12)
    with pytest.raises(HeroError):
        AT_ONCE(OneChannel(), torch.zeros(context), truth, AT_ONCE.init(), **options)


class Scale(nn.Module):
    """u ↦ a u: an operator whose rollouts are known."""

    def __init__(self, a: float) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor(a, dtype=torch.float64))

    def forward(self, u: Tensor) -> Tensor:
        return self.a * u[:, -1:]


@pytest.mark.parametrize("a", [1e12, math.nan])
def test_a_current_rollout_that_explodes_is_bounded_like_its_reference(a: float) -> None:
    """d_cur and d_fail are at most WORST, so the relative term of such a sample is finite; L_roll says the truth."""
    window = data(3, 5)
    hero = replace(AT_ONCE, refresh=lambda since: False)
    loss, _, comparison = hero(Scale(a), window[:, 0], window[:, 1:], HeroState(lagged=Scale(0.5)))
    assert torch.equal(comparison.d_cur, torch.full((3,), WORST))
    assert bool((comparison.reference.d_fail <= WORST).all())
    assert bool(comparison.loss.isfinite().all())
    assert all(math.isfinite(float(value)) for value in comparison.statistics().values())
    assert not loss < WORST


def test_a_bounded_distance_has_no_gradient_and_a_small_one_all_of_it() -> None:
    window = data(3, 5)
    hero = replace(AT_ONCE, refresh=lambda since: False, weight=lambda since: 0.3)
    for a, share in ((1e3, 0.0), (0.7, 0.3)):
        model = Scale(a)
        loss, _, comparison = hero(model, window[:, 0], window[:, 1:], HeroState(lagged=Scale(0.5)))
        d = trajectory_distance(unroll(model, Context(window[:, :1]), 4), window[:, 1:])
        expected = torch.autograd.grad(((1 + share * comparison.alpha) * d).mean(), model.a)[0]
        torch.testing.assert_close(torch.autograd.grad(loss, model.a)[0], expected)


def test_a_candidate_that_blows_up_is_the_worst_and_stays_finite() -> None:
    truth = data(3, 4)
    exploded = truth + 0.3
    exploded[1, 2:], exploded[2, 1:] = math.inf, math.nan
    errors = [TrajectoryErrors(tau, Truth(truth, Domain(), WindowCache())) for tau in (truth, exploded, truth + 0.3)]
    values = bounded(torch.stack([measure(one, tuple(DIAGNOSTICS.values()))[:, 1:] for one in errors], dim=1))
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
