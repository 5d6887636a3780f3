"""Optimizers: slow twins in float64, the reference library, resuming, names."""

from __future__ import annotations

import io
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from hero.errors import HeroError
from hero.optimizers import OPTIMIZERS, SOAP, get_optimizer


class Weights(nn.Module):
    """Parameters of given shapes with reproducible values."""

    def __init__(self, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(3)
        self.weights = nn.ParameterList(torch.randn(shape, generator=draw, dtype=dtype) for shape in shapes)


def gradients(model: Weights, step: int) -> None:
    """The gradient of Σ ⟨a, w⟩² / 2 + |w|⁴ / 4 with another `a` in each update: correlated and noisy."""
    draw = torch.Generator().manual_seed(step)
    for w in model.weights:
        a = torch.randn(w.shape, generator=draw, dtype=w.dtype)
        w.grad = a * (a.conj() * w).sum() + w.detach() * w.detach().abs() ** 2


def make(
    name: str, model: nn.Module, lr: float = 0.02, decay: float = 0.1, **settings: object
) -> torch.optim.Optimizer:
    return get_optimizer(name).make(get_optimizer(name).Settings(**settings), model, lr, decay, None)


def run(optimizer: torch.optim.Optimizer, model: Weights, steps: range) -> None:
    for step in steps:
        gradients(model, step)
        optimizer.step()


def unfold(x: Tensor, axis: int) -> Tensor:
    return x.movedim(axis, 0).reshape(x.shape[axis], -1)


def naive_rotation(x: Tensor, bases: dict[int, Tensor]) -> Tensor:
    """Σ x[.., j, ..] q[j, k] along each axis, by one dense matrix over all entries."""
    dense = torch.ones(1, 1, dtype=x.dtype)
    for axis, n in enumerate(x.shape):
        dense = torch.kron(dense, bases.get(axis, torch.eye(n, dtype=x.dtype)).T.contiguous())
    return (dense @ x.flatten()).reshape(x.shape)


def naive_soap(w: Tensor, gradient: Callable[[Tensor, int], Tensor], steps: int, every: int, longest: int) -> Tensor:
    """The paper's algorithm for gradients of full rank, whose basis is unique; the momentum is not rotated."""
    lr, decay, beta, eps = 0.02, 0.1, 0.95, 1e-8
    axes = [1, 2] if w.dim() > 3 and len(w) == 2 else list(range(w.dim())) if w.dim() > 1 else []
    axes = [i for i in axes if 1 < w.shape[i] <= longest]
    mean, square = torch.zeros_like(w), torch.zeros_like(w)
    cs = {i: torch.zeros(w.shape[i], w.shape[i], dtype=w.dtype) for i in axes}
    qs: dict[int, Tensor] = {}
    for t in range(steps):
        g = gradient(w, t)
        if t:
            mean = beta * mean + (1 - beta) * g
            square = beta * square + (1 - beta) * naive_rotation(g, qs) ** 2
            m_hat = naive_rotation(mean, qs) / (1 - beta**t)
            v_hat = (square / (1 - beta**t)).sqrt() + eps / math.sqrt(1 - beta**t)
            w = w - lr * naive_rotation(m_hat / v_hat, {i: q.T for i, q in qs.items()})
            w = w - lr * decay * w
        for i in axes:
            cs[i] = beta * cs[i] + (1 - beta) * unfold(g, i) @ unfold(g, i).T
            if t == 0:
                qs[i] = torch.linalg.eigh(cs[i])[1].flip(1)
            elif t % every == 0:
                eigenvalues = torch.stack([q @ cs[i] @ q for q in qs[i].T])
                order = eigenvalues.argsort(descending=True)
                qs[i] = torch.linalg.qr(cs[i] @ qs[i][:, order])[0]
                square = torch.stack([square.select(i, int(j)) for j in order], dim=i)
    return w


@pytest.mark.parametrize("shape", [(5,), (6, 6), (5, 1, 5), (4, 3, 5, 2), (2, 4, 5, 3)], ids=str)
@pytest.mark.parametrize("longest", [1024, 4])
def test_soap_is_its_naive_twin(shape: tuple[int, ...], longest: int) -> None:
    model = Weights(shape)
    start = model.weights[0].detach().clone()

    def gradient(w: Tensor, step: int) -> Tensor:
        other = Weights(shape)
        other.weights[0].data.copy_(w)
        gradients(other, step)
        return other.weights[0].grad

    wanted = naive_soap(start, gradient, 31, 4, longest)
    run(make("soap", model, refresh=4, longest_axis=longest), model, range(31))
    torch.testing.assert_close(model.weights[0].detach(), wanted, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("every", [40, 5])
def test_soap_is_the_library(every: int) -> None:
    """Without a refresh to rounding; the library does its QR in single precision."""
    library = pytest.importorskip("pytorch_optimizer")
    shapes = (6, 6), (3, 4, 5, 3), (5,)
    ours, theirs = Weights(*shapes), Weights(*shapes)
    run(make("soap", ours, refresh=every), ours, range(30))
    settings = {"lr": 0.02, "weight_decay": 0.1, "precondition_frequency": every}
    run(library.SOAP(theirs.parameters(), **settings), theirs, range(30))
    accuracy = 1e-9 if every > 30 else 1e-4
    torch.testing.assert_close(list(ours.parameters()), list(theirs.parameters()), rtol=accuracy, atol=accuracy)


@pytest.mark.parametrize("name", [*OPTIMIZERS, "sgd", "nadam"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_resuming_continues_bit_for_bit(name: str, dtype: torch.dtype) -> None:
    shapes = (4, 6), (2, 4, 5, 3), (5,)
    whole, parts = Weights(*shapes, dtype=dtype), Weights(*shapes, dtype=dtype)
    run(make(name, whole, lr=1e-3), whole, range(25))
    first = make(name, parts, lr=1e-3)
    run(first, parts, range(13))
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = make(name, parts, lr=1e-3)
    second.load_state_dict(torch.load(file, weights_only=True))
    run(second, parts, range(13, 25))
    for one, other in zip(whole.parameters(), parts.parameters(), strict=True):
        assert one.isfinite().all()
        assert torch.equal(one, other)


def test_compiled_soap_is_soap() -> None:
    """Traced once, though the learning rate and the bases change."""
    traced = []

    def compile_with(function: Callable[..., object]) -> Callable[..., object]:
        def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
            traced.append(graph)
            return graph.forward

        return torch.compile(function, dynamic=False, backend=backend)

    shapes = (6, 6), (2, 4, 5, 3), (5,)
    plain, compiled = Weights(*shapes), Weights(*shapes)
    settings = get_optimizer("soap").Settings(refresh=4)
    optimizers = (
        make("soap", plain, refresh=4),
        get_optimizer("soap").make(settings, compiled, 0.02, 0.1, compile_with),
    )
    for step in range(12):
        for optimizer, model in zip(optimizers, (plain, compiled), strict=True):
            for group in optimizer.param_groups:
                group["lr"] = 0.02 / (1 + step)
            run(optimizer, model, range(step, step + 1))
    torch.testing.assert_close(list(compiled.parameters()), list(plain.parameters()))
    assert len(traced) == 1


@pytest.mark.parametrize("value", [0.0, 1e-25, math.nan, math.inf])
def test_zero_tiny_and_broken_gradients(value: float) -> None:
    """Weights stay finite, or are not a number, which the loop reports; nothing raises."""
    model = Weights((4, 6), (2, 3, 4, 5), (5,), dtype=torch.float32)
    optimizer = make("soap", model, refresh=2)
    for _ in range(6):
        for w in model.weights:
            w.grad = torch.full_like(w, value)
        optimizer.step()
    assert all(bool(w.isfinite().all()) == math.isfinite(value) for w in model.weights)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_parameters_without_gradient_stay(name: str) -> None:
    model = Weights((4, 6), (4, 6))
    optimizer = make(name, model)
    before = [w.detach().clone() for w in model.weights]
    for step in range(3):
        gradients(model, step)
        model.weights[1].grad = None
        optimizer.step()
    assert not torch.equal(model.weights[0], before[0])
    assert torch.equal(model.weights[1], before[1])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_complex_weights_are_pairs_of_real_ones(name: str) -> None:
    """A spectral weight moves alike as complex (in, out, *modes) and as real (2, in, out, *modes)."""
    model, pairs = Weights((4, 5, 3, 2), dtype=torch.complex128), Weights((2, 4, 5, 3, 2))
    (w,), (pair,) = model.weights, pairs.weights
    pair.data.copy_(torch.stack([w.detach().real, w.detach().imag]))
    optimizers = make(name, model), make(name, pairs)
    for step in range(25):
        gradients(model, step)
        pair.grad = torch.stack([w.grad.real, w.grad.imag])
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(torch.complex(*pair.detach()), w.detach(), rtol=1e-9, atol=1e-9)


def quadratic(model: nn.Module) -> Tensor:
    return sum((p - 1).square().sum() for p in model.parameters())  # type: ignore[return-value]


def test_soap_in_a_loop_of_torch() -> None:
    """Defaults, a closure that returns the loss, groups with their own learning rate, a scheduler that turns betas."""
    model = Weights((6, 5), (4,))
    first, second = model.weights
    optimizer = SOAP([{"params": [first]}, {"params": [second], "lr": 0.0}])
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, [0.05, 0.0], total_steps=60)
    still = second.detach().clone()

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = quadratic(model)
        loss.backward()
        return loss

    losses = []
    for _ in range(60):
        losses.append(float(optimizer.step(closure)))
        scheduler.step()
    assert losses[-1] < 0.7 * losses[0]
    assert optimizer.param_groups[0]["betas"][1] == 0.95
    torch.testing.assert_close(second.detach(), still)


def test_arguments_of_an_optimizer_of_torch() -> None:
    optimizer = make("sgd", Weights((3,)), kwargs={"momentum": 0.9, "nesterov": True})
    assert optimizer.defaults["momentum"] == 0.9
    assert make("nadam", Weights((3,)), kwargs={"betas": [0.5, 0.6]}).defaults["betas"] == (0.5, 0.6)
    with pytest.raises(HeroError, match=r"optimizer SGD refuses .*nonsense.*optimizer\.kwargs\.NAME"):
        make("sgd", Weights((3,)), kwargs={"nonsense": 1})
    assert get_optimizer("adadelta").lr == 1.0


def test_unknown_name() -> None:
    for name, near in (("soup", "soap"), ("rmspro", "RMSprop")):
        with pytest.raises(HeroError, match=f"unknown optimizer '{name}'; did you mean '{near}'"):
            get_optimizer(name)
    with pytest.raises(HeroError, match="unknown optimizer 'lbfgs'"):  # which evaluates the loss itself
        get_optimizer("lbfgs")
