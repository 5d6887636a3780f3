"""HeroObjective as a user meets it: in a plain loop, with parts replaced, cached, with weights, and resumed."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import tiny
from hero import Context, HeroObjective
from hero.data.windows import Windows
from hero.errors import HeroError
from hero.method.cache import LIMIT, WindowTable, is_stochastic
from hero.method.candidates import CANDIDATES, Scene
from hero.method.objective import RelativeTerm
from hero.method.rollout import energy, norm, state_distance, trajectory_distance, unroll
from hero.models import FNO, Normalised

EARLY: dict[str, Any] = {"start": 3, "refresh": 4, "warmup": 2, "lambda_max": 0.3}


def data(trajectories: int = 4, steps: int = 9, channels: int = 1, space: tuple[int, ...] = (12,)) -> Tensor:
    return torch.randn(trajectories, steps, channels, *space, generator=torch.Generator().manual_seed(0))


def model_of(in_channels: int = 1, out_channels: int = 1, dims: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return FNO(in_channels, out_channels, width=4, modes=(3,) * dims, depth=1)


def train(objective: HeroObjective, model: nn.Module, windows: Windows, first: int, last: int, optimiser: Any) -> None:
    """The loop of a user, numbering its windows."""
    for step in range(first, last):
        batch = windows(step)
        loss = objective(model, batch.context, batch.truth, batch.index)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def weights_after(steps: int, **options: Any) -> tuple[list[Tensor], HeroObjective]:
    model = model_of()
    objective = HeroObjective(**EARLY, **options)
    train(objective, model, Windows(data(), 4, 6, seed=0), 0, steps, torch.optim.Adam(model.parameters(), lr=1e-2))
    return [p.detach() for p in model.parameters()], objective


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_the_cache_is_exact_to_the_bit(dims: int) -> None:
    def run(cached: bool) -> tuple[list[Tensor], HeroObjective]:
        model = model_of(dims=dims)
        objective = HeroObjective(**EARLY, cached=cached)
        windows = Windows(data(space=(12,) * dims), 4, 6, seed=0)
        train(objective, model, windows, 0, 30, torch.optim.Adam(model.parameters(), lr=1e-2))
        return [p.detach() for p in model.parameters()], objective

    kept, objective = run(cached=True)
    plain, uncached = run(cached=False)
    assert all(torch.equal(a, b) for a, b in zip(kept, plain, strict=True))
    coefficients = 12 ** (dims - 1) * 7
    # 20 windows of 4 steps: D and four diagnostics, an energy and the amplitudes per step, 4 bytes each
    assert objective.cache_bytes() == 20 * 4 * (5 + 4 + 4 * coefficients)
    assert uncached.cache_bytes() == 0


def test_the_cache_saves_rollouts_of_the_lagged_operator() -> None:
    """Twenty windows and a refresh every twelve steps: the lag is rolled out about once per window and refresh."""
    calls = {"lagged": 0, "current": 0}
    model = model_of()
    objective = HeroObjective(start=0, refresh=40, warmup=1)

    def counting(operator: nn.Module, context: Context, steps: int) -> Tensor:
        calls["current" if operator is model else "lagged"] += 1
        return unroll(operator, context, steps)

    objective.unroll = counting
    windows = Windows(data(), 4, 5, seed=0)  # 20 windows, 4 batches an epoch
    train(objective, model, windows, 0, 40, torch.optim.SGD(model.parameters(), lr=1e-3))
    assert calls == {"lagged": 4, "current": 80}


def test_without_numbers_or_with_dropout_nothing_is_cached() -> None:
    class Dropping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.drop = model_of(), nn.Dropout(0.5)

        def forward(self, u: Tensor) -> Tensor:
            return self.drop(self.inner(u))

    for model, index in ((model_of(), None), (Dropping(), torch.arange(5))):
        objective = HeroObjective(**{**EARLY, "start": 0})
        window = data(5, 5)
        objective(model, window[:, 0], window[:, 1:], index)
        assert objective.cache_bytes() == 0
    assert is_stochastic(Dropping())
    assert not is_stochastic(Dropping().eval())
    assert not is_stochastic(model_of())


def test_window_table_grows_and_respects_its_limit() -> None:
    table = WindowTable()
    rows = torch.arange(30.0).reshape(10, 3)
    first = torch.tensor([2, 0])
    assert torch.equal(table.get(first, lambda: rows[first]), rows[first])
    second = torch.tensor([0, 9])
    assert torch.equal(table.get(second, lambda: rows[second]), rows[second])
    for index in (first, second, torch.tensor([9, 2, 0])):
        assert torch.equal(table.get(index, lambda: pytest.fail("computed twice")), rows[index])
    table.clear()
    calls = []
    table.get(first, lambda: calls.append(1) or rows[first])
    assert calls
    huge = WindowTable()
    huge.get(torch.tensor([LIMIT]), lambda: rows[:1])
    assert huge.nbytes() == 0


def test_a_plain_loop_saves_and_resumes_with_torch_save() -> None:
    def fresh() -> tuple[nn.Module, HeroObjective, Any]:
        model = model_of()
        return model, HeroObjective(**EARLY, seed=7), torch.optim.Adam(model.parameters(), lr=1e-2)

    windows = Windows(data(), 4, 6, seed=0)
    whole, objective, optimiser = fresh()
    train(objective, whole, windows, 0, 16, optimiser)

    part, objective, optimiser = fresh()
    train(objective, part, windows, 0, 9, optimiser)
    buffer = io.BytesIO()
    state = {"model": part.state_dict(), "optimiser": optimiser.state_dict(), "objective": objective.state_dict()}
    torch.save(state, buffer)
    buffer.seek(0)
    state = torch.load(buffer, weights_only=True)
    model, objective, optimiser = fresh()
    model.load_state_dict(state["model"])
    optimiser.load_state_dict(state["optimiser"])
    objective.load_state_dict(state["objective"], model)
    assert objective.step == 9
    train(objective, model, windows, 9, 16, optimiser)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), model.parameters(), strict=True))


def test_a_state_is_as_good_as_a_context() -> None:
    window = data(3, 5)
    values = [
        HeroObjective(**{**EARLY, "start": 0})(model_of(), context, window[:, 1:])
        for context in (window[:, 0], Context(window[:, :1]))
    ]
    assert torch.equal(*values)


@pytest.mark.parametrize(
    ("names", "single"),
    [
        (("self",), True),
        (("lag",), True),
        (("perturbed", "self"), False),
        (("lag", "self"), False),
        (("lag", "perturbed"), False),
    ],
)
def test_each_ablation_of_the_paper_is_one_replacement(names: tuple[str, ...], single: bool) -> None:
    seen: list[RelativeTerm] = []
    weights_after(12, candidates=names, single_candidate=single, callback=lambda step, term: seen.append(term))
    assert len(seen) == 9
    for term in seen:
        assert term.candidates == names
        assert bool((term.selected < len(names)).all())
        assert term.diagnostics.shape[1:] == (len(names), 4)
        if names == ("self",):
            assert torch.equal(term.d_fail, term.d_cur)


def test_without_the_relative_term_training_is_push_forward() -> None:
    without, objective = weights_after(12, schedule=lambda step: 0.0)
    assert objective.term is not None  # candidates and diagnostics are still made
    model = model_of()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    windows = Windows(data(), 4, 6, seed=0)
    for step in range(12):
        batch = windows(step)
        optimiser.zero_grad()
        trajectory_distance(unroll(model, batch.context, 4), batch.truth).mean().backward()
        optimiser.step()
    for a, b in zip(without, model.parameters(), strict=True):
        torch.testing.assert_close(a, b.detach())


def test_too_few_candidates_and_unknown_parts_are_refused() -> None:
    with pytest.raises(HeroError, match="leaves nothing to select from; give at least two"):
        HeroObjective(candidates=("lag",))
    with pytest.raises(HeroError, match="leaves nothing to select from"):
        HeroObjective(candidates=(), single_candidate=True)
    with pytest.raises(HeroError, match="unknown candidate 'lagg'; did you mean 'lag'"):
        HeroObjective(candidates=("lagg", "self"))
    with pytest.raises(HeroError, match="unknown diagnostic 'spek'; did you mean 'spec'"):
        HeroObjective(diagnostics=("spek",))
    with pytest.raises(HeroError, match="no candidate can be ranked"):
        HeroObjective(diagnostics=("spec",), spectrum=None)
    with pytest.raises(HeroError, match=r"hero.single_candidate=true"):
        tiny(hero__candidates="lag")
    assert tiny(hero__candidates="lag", hero__single_candidate=True).hero.candidates == ("lag",)


def test_order_of_names_does_not_change_the_priority() -> None:
    assert list(HeroObjective(candidates=("self", "lag")).candidates) == ["lag", "self"]
    assert tiny(hero__candidates="self,lag").run_id() == tiny(hero__candidates=["lag", "self"]).run_id()


def test_parts_of_ones_own() -> None:
    """A candidate, a diagnostic, a selector and a perturbation that the paper does not name."""

    def frozen(scene: Scene) -> Tensor:  # persistence: the last state, repeated
        return scene.context.states[:, -1:].expand_as(scene.current)

    def largest(reading: Any) -> Tensor:
        return reading.tau.abs().flatten(1).amax(dim=1)

    seen: list[RelativeTerm] = []
    _, objective = weights_after(
        8,
        candidates={"persistence": frozen, "lag": CANDIDATES["lag"]},
        diagnostics={"largest": largest},
        selector=lambda table: torch.zeros(len(table), dtype=torch.int64),
        perturbation=lambda context, generator: context,
        callback=lambda step, term: seen.append(term),
    )
    assert seen
    assert all(bool((term.selected == 0).all()) for term in seen)
    assert set(seen[0].statistics()) >= {"persistence", "lag", "persistence.largest", "alpha", "alpha_std", "margin"}
    assert objective.instrument.spectrum is None  # nobody asks for spectra, so none are made


def test_leaving_out_the_spectrum_leaves_out_its_diagnostic() -> None:
    assert list(HeroObjective(spectrum=None).instrument.diagnostics) == ["roll", "energy", "growth"]


def test_quadrature_weights() -> None:
    """On a graded grid the weighted norm is the integral, and equal weights are the default."""
    x = torch.linspace(0, 1, 401, dtype=torch.float64) ** 2
    w = torch.zeros_like(x)
    w[:-1] += x.diff() / 2
    w[1:] += x.diff() / 2
    u = torch.sin(2 * torch.pi * x)[None, None, None]
    assert abs(energy(u, w).item() - 0.5) < 1e-3
    torch.testing.assert_close(energy(u, torch.full_like(x, 1 / 401)), energy(u))
    v = u + 0.1
    naive = ((v - u) ** 2 * w).sum().sqrt() / ((u**2 * w).sum().sqrt() + 1e-12)
    torch.testing.assert_close(state_distance(v, u, w)[0, 0], naive)
    assert norm(torch.zeros_like(u), w).item() == 0


def test_conditioning_is_never_perturbed() -> None:
    seen: list[Tensor] = []

    class Spy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model_of(in_channels=2 * 2 + 3, out_channels=2)

        def forward(self, x: Tensor) -> Tensor:
            seen.append(x[:, 4:].detach())
            return self.inner(x)

    window = data(3, 7, channels=2)
    for mu in (torch.randn(3, 3), torch.randn(3, 3, 12)):
        seen.clear()
        objective = HeroObjective(**{**EARLY, "start": 0})
        objective(Spy(), Context(window[:, :2], mu), window[:, 2:])
        field = mu[:, :, None].expand(3, 3, 12) if mu.dim() == 2 else mu
        assert len(seen) == 3 * 5
        assert all(torch.equal(x, field) for x in seen)


def test_windows_with_history_and_conditioning() -> None:
    trajectories, mu = data(3, 8), torch.randn(3, 2)
    windows = Windows(trajectories, unroll=3, batch=4, seed=0, history=2, mu=mu)
    assert windows.count == 3 * 4
    for step in range(windows.per_epoch):
        batch = windows(step)
        for row, number in enumerate(windows.indices(step).tolist()):
            trajectory, start = divmod(number, 4)
            assert torch.equal(batch.context.states[row], trajectories[trajectory, start : start + 2])
            assert torch.equal(batch.truth[row], trajectories[trajectory, start + 2 : start + 5])
            assert torch.equal(batch.context.mu[row], mu[trajectory])


@pytest.mark.parametrize("history", [1, 3])
def test_normalisation_lives_inside_the_operator(history: int) -> None:
    """Rescaled data give the rescaled prediction, and the conditioning passes untouched."""
    backbone = model_of(in_channels=2 * history + 1, out_channels=2)
    scale, shift = torch.tensor([10.0, 0.1]), torch.tensor([5.0, -2.0])
    raw = data(4, 6, channels=2)
    moved = raw * scale[:, None] + shift[:, None]
    mu = torch.randn(4, 1, 12)
    outputs = []
    for values in (raw, moved):
        model = Normalised(copy.deepcopy(backbone), channels=2, history=history)
        model.fit(values)
        outputs.append(model(Context(values[:, :history], mu).inputs()))
    torch.testing.assert_close(outputs[1], outputs[0] * scale[:, None] + shift[:, None], rtol=1e-4, atol=1e-4)
    values = raw.movedim(2, 0).flatten(1)
    torch.testing.assert_close(values.mean(1)[0], raw[:, :, 0].mean())


@pytest.mark.parametrize("name", ["hero", "refiner"])  # the conformance suite has all, without files
def test_history_and_normalisation_in_the_trainer(name: str, data_dir: Any, runs_dir: Any) -> None:
    from hero import evaluate
    from hero import train as train_run

    config = tiny(strategy=name, train__history=2, train__normalise=True, data__val_steps=101, data__test_steps=101)
    run = train_run(config, runs_dir, data_dir)
    rows = evaluate(run, data_dir)
    assert rows["test"]["nrmse@100"] > 0
    with pytest.raises(HeroError, match=r"data.val_steps=100 leaves less than the 100 steps"):
        tiny(train__history=2)
