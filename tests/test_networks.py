"""Transolver and U-Net against twins written from their formulas; their parameters, and what a boundary means."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d, group_norm, silu

from fakes import assert_same_function
from hero.errors import HeroError
from hero.models import UNet, build_backbone
from hero.models.transolver import PhysicsAttention, Transolver
from hero.runs.config import make_config

# (C, H, S, L, r) of the counts taken from the authors' models: coordinates and one function channel in, one out.

CASES = [
    pytest.param(None, (11,), True, id="irregular"),
    pytest.param(1, (7,), True, id="1d"),
    pytest.param(2, (4, 5), True, id="2d"),
    pytest.param(2, (4, 5), False, id="2d-open"),
    pytest.param(2, (1, 2), True, id="2d-thin"),
    pytest.param(3, (3, 2, 4), False, id="3d-open"),
]


def small(dims: int | None, periodic: bool = True, **changes: Any) -> Transolver:
    """A model of few channels in float64 with weights of order one, so that every term matters."""
    torch.manual_seed(0)
    settings = {"width": 6, "depth": 2, "heads": 2, "slices": 3, "mlp_ratio": 2, **changes}
    model = Transolver(2, 2, dims, periodic=periodic, **settings).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.5)
            if name.endswith("temperature"):
                parameter.copy_(torch.linspace(0.06, 0.7, parameter.numel()).view_as(parameter))
    return model


def mlp(layers: Any, v: Tensor) -> Tensor:
    hidden = layers[0](v)
    return layers[2](hidden / 2 * (1 + torch.erf(hidden / math.sqrt(2))))


def convolution(layer: Any, v: Tensor, periodic: bool) -> Tensor:
    """Σ_o W_o v(p + o) over the 3^D offsets o: (batch, *space, in) -> (batch, *space, out)."""
    space = v.shape[1:-1]
    axes = tuple(range(1, v.dim() - 1))
    out = layer.bias.expand(*v.shape[:-1], -1)
    for offset in itertools.product((-1, 0, 1), repeat=len(space)):
        neighbour = v.roll(tuple(-o for o in offset), axes)
        if not periodic:
            for point in itertools.product(*map(range, space)):
                if any(not 0 <= p + o < n for p, o, n in zip(point, offset, space, strict=True)):
                    inside = torch.ones(*space, 1, dtype=v.dtype)
                    inside[point] = 0
                    neighbour = neighbour * inside
        weight = layer.weight[(slice(None), slice(None), *(o + 1 for o in offset))]
        out = out + torch.einsum("oi,b...i->b...o", weight, neighbour)
    return out


def attention(layer: PhysicsAttention, v: Tensor, dims: int | None, periodic: bool) -> Tensor:
    """Step by step as the paper writes it, on (batch, *space, C)."""
    structured = dims in (2, 3)
    if structured:
        x = convolution(layer.in_project_x, v, periodic).flatten(1, -2)
        f = convolution(layer.in_project_fx, v, periodic).flatten(1, -2)
    else:
        x, f = layer.in_project_x(v).flatten(1, -2), layer.in_project_fx(v).flatten(1, -2)
    count, d = layer.temperature.numel(), layer.to_q.in_features
    out = []
    for h in range(count):
        tau = layer.temperature[0, h, 0, 0]
        if structured:
            tau = torch.where((tau >= 0.1) & (tau <= 5), tau, tau.detach().clamp(0.1, 5))
        w = torch.softmax(layer.in_project_slice(x[..., h * d : (h + 1) * d]) / tau, -1)  # (batch, points, slices)
        z = torch.einsum("bps,bpd->bsd", w, f[..., h * d : (h + 1) * d]) / (w.sum(1)[..., None] + 1e-5)
        q, k, values = (to(z) for to in (layer.to_q, layer.to_k, layer.to_v))
        z = torch.softmax(torch.einsum("bsd,btd->bst", q, k) / math.sqrt(d), -1) @ values
        out.append(torch.einsum("bps,bsd->bpd", w, z))
    return layer.to_out(torch.cat(out, -1)).reshape(v.shape)


def twin(model: Transolver, u: Tensor) -> Tensor:
    """The whole model on (batch, *space, channel), nothing folded and nothing cached."""
    v = u.movedim(1, -1)
    if model.dims is not None:
        space = u.shape[2:]
        x = torch.zeros(*space, model.dims, dtype=u.dtype)
        for point in itertools.product(*map(range, space)):
            for axis, (i, n) in enumerate(zip(point, space, strict=True)):
                x[(*point, axis)] = i / n if model.periodic else i / max(n - 1, 1)
        v = torch.cat([x.expand(u.shape[0], *x.shape), v], -1)
    v = mlp(model.preprocess, v) + model.placeholder
    for block in model.blocks:
        v = v + attention(block.attention, block.ln_1(v), model.dims, model.periodic)
        v = v + mlp(block.mlp, block.ln_2(v))
    return model.head(model.ln_3(v)).movedim(-1, 1)


@pytest.mark.parametrize(("dims", "space", "periodic"), CASES)
def test_transolver_equals_its_twin(dims: int | None, space: tuple[int, ...], periodic: bool) -> None:
    model = small(dims, periodic)
    u = torch.randn(3, 2, *space, dtype=torch.float64)
    assert_same_function(model, lambda x: twin(model, x), u, rtol=1e-9)


@pytest.mark.parametrize(("dims", "count"), [(None, 634_729), (1, 634_729), (2, 5_677_857), (3, 45_459_225)])
def test_parameter_counts_of_the_paper(dims: int | None, count: int) -> None:
    sizes = {2: (256, 4, 8, 128), 3: (512, 3, 8, 256)}
    with torch.device("meta"):
        model = Transolver(1 if dims else 2, 1, dims, *sizes.get(dims or 1, (224, 2, 4, 64)))
    assert sum(p.numel() for p in model.parameters()) == count


def test_initialisation_is_the_effective_one_of_the_authors() -> None:
    torch.manual_seed(0)
    model = Transolver(1, 1, 2, width=64, depth=1, heads=2, slices=64)
    for module in model.modules():
        if isinstance(module, torch.nn.Linear) and module.bias is not None:
            assert not module.bias.any()
    layer = model.blocks[0].attention
    for weight in (layer.in_project_slice.weight, layer.to_out.weight, layer.to_q.weight, model.preprocess[2].weight):
        assert weight.std().item() == pytest.approx(0.02, rel=0.1)
        assert abs(weight.mean().item()) < 0.002
    assert torch.equal(layer.temperature, torch.full((1, 2, 1, 1), 0.5))
    bound = (64 * 9) ** -0.5  # of PyTorch's convolutions: uniform
    assert layer.in_project_x.weight.abs().max().item() <= bound
    assert layer.in_project_x.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert model.placeholder.min().item() >= 0
    assert 0.5 / 64 < model.placeholder.max().item() <= 1 / 64


@pytest.mark.parametrize("heads", [4, 0])
def test_settings_that_make_no_model_are_refused(heads: int) -> None:
    with pytest.raises(HeroError, match=f"backbone.width=6 does not split into backbone.heads={heads}"):
        small(2, heads=heads)


TASK_OF_DIM = {1: "burgers", 2: "decaying_turbulence", 3: "swift_hohenberg"}


def unet(periodic: tuple[bool, ...], width: int = 4, levels: int = 2, depth: int = 1) -> UNet:
    torch.manual_seed(0)
    return UNet(1, 1, periodic, width, levels, depth).double()


def local(model: UNet) -> UNet:
    """Without its norms, whose statistics join all points."""
    for block in model.modules():
        for name, part in list(block.named_children()):
            if isinstance(part, nn.GroupNorm):
                setattr(block, name, nn.Identity())
    return model


@pytest.mark.parametrize(("dims", "levels"), [(1, 3), (2, 2), (3, 1)])
def test_a_periodic_grid_turns_by_multiples_of_its_coarsest_cell(dims: int, levels: int) -> None:
    model, cell = unet((True,) * dims, levels=levels), 2**levels
    u = torch.randn(1, 1, *(2 * cell,) * dims, dtype=torch.float64)
    axes = tuple(range(2, 2 + dims))
    for shift in ((cell,) * dims, (cell, *(0,) * (dims - 1))):
        torch.testing.assert_close(model(u.roll(shift, axes)), model(u).roll(shift, axes), rtol=1e-11, atol=1e-12)
    assert not torch.allclose(model(u.roll(1, 2)), model(u).roll(1, 2), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_change_at_one_end_reaches_the_other_only_around_a_periodic_axis(axis: int) -> None:
    """Along the other axis, which is of the other kind, nothing changes in that."""
    for wraps in (True, False):
        periodic = (wraps, not wraps) if axis == 0 else (not wraps, wraps)
        model, u = local(unet(periodic, levels=1)), torch.randn(1, 1, 48, 48, dtype=torch.float64)
        changed = u.clone()
        changed.select(2 + axis, 0).add_(1.0)
        difference = (model(changed) - model(u)).detach().abs().amax(dim=[2, 3][1 - axis]).flatten()
        assert float(difference[0]) > 1e-6
        assert float(difference[24]) == 0.0  # beyond the receptive field
        assert (float(difference[-1]) > 1e-6) == wraps


def test_a_grid_that_does_not_halve_continues_around_a_periodic_axis() -> None:
    """Both ends see their true neighbours: away from the seam a shift of the input is a shift of the output."""
    model = local(unet((True,), levels=1))
    u = torch.randn(1, 1, 51, dtype=torch.float64)
    assert model(u).shape == u.shape
    moved = model(u.roll(2, 2)).roll(-2, 2)
    torch.testing.assert_close(moved[..., 16:34], model(u)[..., 16:34], rtol=1e-11, atol=1e-12)
    extended = model.extended(torch.arange(5.0)[None, None], [3])
    assert extended.flatten().tolist() == [4, 0, 1, 2, 3, 4, 0, 1]
    walls = unet((False,)).extended(torch.arange(1.0, 6.0)[None, None], [3])
    assert walls.flatten().tolist() == [0, 1, 2, 3, 4, 5, 0, 0]
    for periodic in ((True, False, True), (False, True, False)):
        v = torch.randn(2, 1, 5, 6, 7, dtype=torch.float64)
        assert unet(periodic)(v).shape == v.shape


def test_the_whole_network_equals_its_formula() -> None:
    """One level in 1D with walls, written out with the weights by name."""
    model = unet((False,), width=8, levels=1, depth=2)
    w = dict(model.named_parameters())

    def convolve(name: str, v: Tensor, stride: int = 1) -> Tensor:
        return conv1d(v, w[f"{name}.convolution.weight"], w[f"{name}.convolution.bias"], stride, padding=1)

    def block(name: str, v: Tensor) -> Tensor:
        change = v
        for i in (1, 2):
            groups = {8: 2, 16: 4}[change.shape[1]]
            change = group_norm(change, groups, w[f"{name}.norm_{i}.weight"], w[f"{name}.norm_{i}.bias"])
            change = convolve(f"{name}.convolution_{i}", silu(change))
        skip = f"{name}.skip.weight"
        return change + (conv1d(v, w[skip], w[f"{name}.skip.bias"]) if skip in w else v)

    u = torch.randn(3, 1, 12, dtype=torch.float64)
    fine = block("down_blocks.0.1", block("down_blocks.0.0", convolve("stem", u)))
    coarse = block("middle.1", block("middle.0", convolve("down.0", fine, stride=2)))
    up = convolve("up.0", coarse.repeat_interleave(2, dim=2))
    v = block("up_blocks.0.1", block("up_blocks.0.0", torch.cat([up, fine], dim=1)))
    torch.testing.assert_close(model(u), conv1d(v, w["head.weight"], w["head.bias"]), rtol=1e-12, atol=1e-13)


def test_the_boundary_comes_from_the_data() -> None:
    settings = make_config(overrides={"task.name": TASK_OF_DIM[2], "backbone.name": "unet"}).backbone
    for periodic in (None, (True, False)):
        model = build_backbone(settings, (16, 16), 1, 1, 0, periodic)
        assert model.periodic == (periodic or (True, True))
    with pytest.raises(HeroError, match=r"backbone.name=unet needs a grid.*transolver, package.module:Class"):
        build_backbone(settings, (100,), 1, 1, 0, cloud=True)


def test_a_grid_that_cannot_be_halved_so_often_is_refused() -> None:
    with pytest.raises(HeroError, match=r"backbone.levels=4 halves an axis of 12 points below one; use at most 3"):
        unet((True,), levels=4)(torch.zeros(1, 1, 12, dtype=torch.float64))


def test_it_is_traced_as_one_graph() -> None:
    """As `torch.compile` traces it; `aot_eager` leaves out the C++ compiler, which takes a minute."""
    model = unet((False, True), levels=1)
    traced = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=False)
    assert_same_function(model, traced, torch.randn(3, 1, 9, 7, dtype=torch.float64), rtol=1e-9)
