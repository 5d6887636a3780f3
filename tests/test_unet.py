"""U-Net: what a boundary means to it, on every number of dimensions and on grids that do not halve evenly."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d, group_norm, silu

from fakes import assert_same_function
from hero.errors import HeroError
from hero.models import UNet, build_backbone
from hero.runs.config import make_config

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
