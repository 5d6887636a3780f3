"""The participants of the benchmarks are the same network: the peers' weights in our FNO give the peers' outputs.

Everything is compared in float64. neuraloperator writes its spectrum into a `torch.cfloat` array whatever the input is,
so that name stands for complex128 here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.participant import Workload
from benchmarks.participants_torch import neuralop_model
from benchmarks.peers import PAPER
from conftest import Later
from hero.models import FNO, count_parameters

jax, eqx, pdequinox = Later("jax"), Later("equinox"), Later("pdequinox")


@pytest.fixture(autouse=True)
def in_float64() -> None:
    pytest.importorskip("neuralop")
    jax.config.update("jax_enable_x64", True)


DIMS = pytest.mark.parametrize("dims", [1, 2, 3])


def small(dims: int) -> Workload:
    """Depth 2, so that the order of activation and blocks counts; few modes and points."""
    return Workload("inference", dims, points={1: 20, 2: 12, 3: 10}[dims], width=3, modes=3, depth=2, batch=2, steps=1)


def fields(work: Workload, channels: int) -> Tensor:
    return torch.randn(work.batch, channels, *work.space, generator=torch.Generator().manual_seed(1)).double()


def ours(work: Workload) -> FNO:
    return FNO(1, 1, work.width, (work.modes,) * work.dims, work.depth).double()


def load(target: Tensor, source: Any) -> None:
    """Copy the numbers; a wrong size must not broadcast."""
    values = source.detach() if isinstance(source, Tensor) else torch.from_numpy(np.array(source))
    assert values.numel() == target.numel()
    with torch.no_grad():
        target.copy_(values.reshape(target.shape))


def relative(a: Tensor, b: Tensor) -> float:
    return ((a - b).norm() / b.norm()).item()


def apebench_model(work: Workload) -> Any:
    """With weights of ours: JAX would compile every single draw of its own."""
    names = {"hidden_channels": work.width, "num_modes": work.modes, "num_blocks": work.depth}
    shapes = eqx.filter_eval_shape(pdequinox.arch.ClassicFNO, work.dims, 1, 1, **names, key=jax.random.key(0))
    draw = np.random.default_rng(0)
    return jax.tree.map(lambda s: draw.normal(size=s.shape) / 3 if hasattr(s, "shape") else s, shapes)


def apebench_spectrum(layer: Any, work: Workload) -> np.ndarray:
    """(group of signs, out, in, m, ..) -> our (2, in, out, kept, ..): each group has its corner of the spectrum."""
    from pdequinox.conv._spectral_conv import generate_modes_slices

    m, d = work.modes, work.dims
    weight = np.zeros((2, work.width, work.width, *(2 * m,) * (d - 1), m))
    for group, (_, *corner) in enumerate(generate_modes_slices((m,) * d)):
        for part, values in enumerate((layer.weights_real, layer.weights_imag)):
            weight[part][(slice(None), slice(None), *corner)] = np.asarray(values[group]).swapaxes(0, 1)
    return weight


@DIMS
def test_the_network_of_apebench_is_ours(dims: int) -> None:
    work = small(dims)
    theirs, model = apebench_model(work), ours(work)
    for layer, convolution in ((model.lifting, theirs.lifting), (model.projection, theirs.projection)):
        load(layer.weight, convolution.weight)
        load(layer.bias, convolution.bias)
    for block, other in zip(model.blocks, theirs.blocks, strict=True):
        load(block.spectral.weight, apebench_spectrum(other.spectral_conv, work))
        load(block.bypass.weight, other.by_pass_conv.weight)
        load(block.bypass.bias, other.by_pass_conv.bias)
    u = fields(work, 1)
    expected = torch.from_numpy(np.array(jax.jit(jax.vmap(theirs))(u.numpy())))
    assert expected.dtype == torch.float64
    assert relative(model(u), expected) < 1e-10


def neuralop_spectrum(weight: Tensor) -> Tensor:
    """Rows -m .. m-1 around zero -> our order 0 .. m-1, -m .. -1; complex -> real and imaginary part."""
    rows = list(range(2, weight.dim() - 1))
    return torch.view_as_real(torch.fft.ifftshift(weight, dim=rows) if rows else weight).movedim(-1, 0)


@DIMS
def test_the_network_of_neuraloperator_is_ours(dims: int, monkeypatch: pytest.MonkeyPatch) -> None:
    work = small(dims)
    theirs, model = neuralop_model(work).double(), ours(work)
    lifting, *inner, projection = theirs
    for layer, mlp in ((model.lifting, lifting), (model.projection, projection)):
        load(layer.weight, mlp.fcs[0].weight)
        load(layer.bias, mlp.fcs[0].bias)
    for block, other in zip(model.blocks, inner[::2], strict=True):
        load(block.spectral.weight, neuralop_spectrum(other.convs[0].weight.tensor))
        load(block.bypass.weight, other.fno_skips[0].conv.weight)
        load(block.bypass.bias, other.convs[0].bias)
    for parameter in theirs.parameters():
        if parameter.is_complex():  # `double` leaves them
            parameter.data = parameter.data.to(torch.complex128)
    monkeypatch.setattr(torch, "cfloat", torch.complex128)
    u = fields(work, 1)
    assert relative(model(u), theirs(u)) < 1e-10


@DIMS
def test_all_have_the_same_number_of_parameters(dims: int) -> None:
    work = Workload("training", dims, **PAPER[dims], batch=20, steps=5)
    count = count_parameters(FNO(1, 1, work.width, (work.modes,) * dims, work.depth))
    assert count == {1: 44801, 2: 102881, 3: 327793}[dims]
    assert sum(leaf.size for leaf in jax.tree.leaves(apebench_model(work)) if hasattr(leaf, "size")) == count
    assert sum(p.numel() * (2 if p.is_complex() else 1) for p in neuralop_model(work).parameters()) == count
