"""FNO against a twin that uses the FFT, what every registered backbone must do, and networks by size."""

from __future__ import annotations

import copy
import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._inductor.mkldnn_ir import LinearUnary
from torch.nn.functional import gelu, pad

from conftest import Call, assert_refused
from fakes import assert_same_function
from hero.config import Facts
from hero.data.invariants import Rule
from hero.data.windows import Context
from hero.errors import HeroError
from hero.method.rollout import as_stepper, rollout, unroll
from hero.models import BACKBONES, FNO, Transolver, build_backbone, count_parameters, fno, spectral
from hero.models.build import check_shapes
from hero.models.fno import added_points
from hero.models.rolling import Rolling
from hero.models.settings import SIZES, FNOSettings, TransolverSettings, UNetSettings
from hero.models.spectral import SpectralConv
from hero.models.wrappers import Kept, MixedPrecision, Residual
from hero.runs.config import RunConfig, make_config, stored_config
from hero.study.cost.count import network_sentence
from hero.training import products
from hero.training.compile import compiled

OPTIONS = {"lifting": 6, "projection": 5, "coordinates": True, "final_activation": False}
TASK_OF_DIM = {1: "burgers", 2: "kolmogorov_flow", 3: "swift_hohenberg"}


def fft_spectral(conv: SpectralConv, u: Tensor) -> Tensor:
    """The layer as FNO papers write it: FFT, one slice per corner, scatter, inverse FFT."""
    dims = len(conv.modes)
    axes = tuple(range(2, 2 + dims))
    weight = torch.complex(conv.weight[0], conv.weight[1])
    spectrum = torch.fft.rfftn(u, dim=axes)
    out = torch.zeros(u.shape[0], weight.shape[1], *spectrum.shape[2:], dtype=spectrum.dtype)
    for negative in itertools.product((False, True), repeat=dims - 1):
        source: list[slice] = [slice(None), slice(None)]
        of_weight: list[slice] = [slice(None), slice(None)]
        for m, minus in zip(conv.modes, negative, strict=False):
            source.append(slice(-m, None) if minus else slice(0, m))
            of_weight.append(slice(m, None) if minus else slice(0, m))
        source.append(slice(0, conv.modes[-1]))
        of_weight.append(slice(None))
        corner = torch.einsum("bi...,io...->bo...", spectrum[tuple(source)], weight[tuple(of_weight)])
        out[tuple(source)] = corner
    return torch.fft.irfftn(out, s=u.shape[2:], dim=axes)


def fft_fno(model: FNO, u: Tensor) -> Tensor:
    """The whole operator with its options, layer by layer, with nothing folded."""
    space, dims = u.shape[2:], u.dim() - 2

    def constant(values: Tensor) -> Tensor:
        return values.reshape(-1, *(1,) * dims)

    def pointwise(layer: nn.Module, v: Tensor) -> Tensor:
        if hasattr(layer, "second"):
            return pointwise(layer.second, gelu(pointwise(layer.first, v), approximate="tanh"))
        return torch.einsum("oi,bi...->bo...", layer.weight, v) + constant(layer.bias)

    if model.coordinates:
        x = torch.zeros(dims, *space, dtype=u.dtype)
        for point in itertools.product(*map(range, space)):
            x[(slice(None), *point)] = torch.tensor(point) / torch.tensor(space, dtype=u.dtype)
        u = torch.cat([u, x.expand(len(u), *x.shape)], dim=1)
    v = pointwise(model.lifting, u)
    longer = [math.ceil(n * (1 + share)) for n, share in zip(space, model.padding, strict=True)]
    v = pad(v, [side for n, more in reversed(list(zip(space, longer, strict=True))) for side in (0, more - n)])
    for block in model.blocks:
        v = fft_spectral(block.spectral, v) + pointwise(block.bypass, v)
        v = v if block.spectral_bias is None else v + constant(block.spectral_bias)
        v = gelu(v, approximate="tanh") if block.activated else v
    return pointwise(model.projection, v[(slice(None), slice(None), *map(slice, space))])


GRIDS = [
    ((4,), (12,)),
    ((7,), (12,)),
    ((3, 2), (8, 9)),
    ((4, 4), (9, 6)),
    ((2, 3, 2), (6, 7, 5)),
    ((3, 2, 3), (6, 4, 5)),
]


@pytest.mark.parametrize(("modes", "space"), GRIDS, ids=str)
@pytest.mark.parametrize(("batch", "channels"), [(3, 2), (1, 1), (1, 2)])
@pytest.mark.parametrize("final_activation", [True, False])
def test_a_rollout_takes_the_steps_of_the_network(
    modes: tuple[int, ...],
    space: tuple[int, ...],
    batch: int,
    channels: int,
    final_activation: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In float64, and in float32 as exactly as the general form."""
    model = FNO(channels, channels, 3, modes, depth=2, final_activation=final_activation, spectral_bias=True).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    context, steps = Context(torch.randn(batch, 1, channels, *space, dtype=torch.float64)), 3
    trained = unroll(model, context, steps)
    made = []
    monkeypatch.setattr(fno, "Rolling", lambda *given: made.append(Rolling(*given)) or made[-1])
    with torch.no_grad():
        assert torch.equal(unroll(model, context, steps), trained)
        assert not made, "training keeps its bits"
        rolled = rollout(as_stepper(model), context, steps)
    assert len(made) == 1, "prepared once per rollout"
    torch.testing.assert_close(rolled, trained, rtol=1e-12, atol=1e-12 * float(trained.detach().abs().max()))
    assert rollout(as_stepper(model), context, steps).requires_grad
    with torch.no_grad():
        model.float()
        single = rollout(as_stepper(model), Context(context.states.float()), steps)
    largest = float(trained.detach().abs().max())
    torch.testing.assert_close(single.double(), trained.detach(), rtol=1e-5, atol=1e-5 * largest)


def test_a_rollout_sees_changed_weights_and_keeps_no_output() -> None:
    """In several threads at once, with a step that needs what several calls of the network returned."""
    model = FNO(1, 1, 4, (3, 3), depth=2).double()
    keeping = Kept(Residual(model), [Rule("mean", (0,))], channels=1)
    context = Context(torch.randn(2, 1, 1, 8, 8, dtype=torch.float64))

    def heun(z: Context) -> Tensor:
        u = z.inputs()
        first = model(u)
        return u + (first + model(u + first)) / 2

    for _ in range(2):
        with torch.no_grad():
            expected = unroll(keeping, context, 5)
            twice = torch.stack([heun(context), heun(Context(heun(context)[:, None]))], dim=1)
            with ThreadPoolExecutor(4) as pool:
                calls = [pool.submit(torch.no_grad()(rollout), as_stepper(keeping), context, 5) for _ in range(8)]
            assert all(torch.allclose(call.result(), expected, rtol=1e-12, atol=1e-12) for call in calls)
            torch.testing.assert_close(rollout(heun, context, 2), twice, rtol=1e-12, atol=1e-12)
            for parameter in model.parameters():
                parameter.mul_(1.1)


def test_the_size_that_has_the_parameters_of_the_papers_table_of_costs() -> None:
    def parameters(**settings: object) -> int:
        overrides = {"task.name": "decaying_turbulence", **{f"backbone.{k}": v for k, v in settings.items()}}
        return count_parameters(make_config(overrides=overrides).build_operator())

    assert parameters(size="paper_count") == 30_541
    assert parameters(size="paper_count", spectral_bias=False) == 30_541 - 20
    assert parameters(size="paper_count", modes=8) == 30_541 + 3 * 25_600  # an explicit setting wins
    assert parameters(size="apebench") == parameters() == 102_881
    with pytest.raises(HeroError, match=r"backbone.size=paper_count exists in 2D only"):
        make_config(overrides={"task.name": "burgers", "backbone.size": "paper_count"})


@pytest.mark.parametrize(
    ("space", "modes", "depth", "options"),
    [
        ((17,), (5,), 2, {}),
        ((12,), (7,), 1, {}),  # the Nyquist mode is kept
        ((9, 14), (3, 8), 2, {}),
        ((8, 10, 12), (3, 2, 4), 2, {}),
        ((8, 8, 8), (4, 4, 5), 1, {}),
        ((8, 9), (3, 2), 2, {"spectral_bias": True}),  # also where the lifting is folded into the first block
        ((8, 10), (3, 4), 2, {"padding": (0.0, 0.25)}),  # 2.5 points, rounded up
        *(((8, 9, 10)[:dims], (2, 3, 2)[:dims], 2, OPTIONS) for dims in (1, 2, 3)),
    ],
    ids=str,
)
@pytest.mark.parametrize("large", [False, True], ids=["matrices", "FFT, wide"])
def test_fno_equals_its_fft_twin(
    space: tuple[int, ...],
    modes: tuple[int, ...],
    depth: int,
    options: dict[str, Any],
    large: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also in the forms that large grids and wide networks get, which the thresholds give to small ones here."""
    if large:
        monkeypatch.setattr(spectral, "GEMM_OVER_FFT", 0)
        monkeypatch.setattr(spectral, "WIDE", 1)
    torch.manual_seed(0)
    model = FNO(2, 2, width=5, modes=modes, depth=depth, **options).double()
    with torch.no_grad():  # weights of order one, so that every mode matters
        for block in model.blocks:
            for weight in (block.spectral.weight, *([block.spectral_bias] if "spectral_bias" in options else [])):
                weight.normal_()
    u = torch.randn(3, 2, *space, dtype=torch.float64)
    assert_same_function(model, lambda x: fft_fno(model, x), u, rtol=1e-10)


def test_the_compiled_unroll_is_the_same_function() -> None:
    """Compiled code takes other forms of the same formulas; value and gradients stay within float32."""
    torch.manual_seed(2)
    model = FNO(1, 1, width=4, modes=(3,), depth=2)
    context = Context(torch.randn(3, 1, 1, 8))
    model(context.inputs())
    results = []
    for function in (unroll, compiled(unroll, context.states.device)):
        tau = function(model, context, 2)
        results.append([tau.detach(), *torch.autograd.grad(tau.square().sum(), list(model.parameters()))])
        with torch.no_grad():
            torch.testing.assert_close(function(model, context, 2), results[-1][0])
    for eager, fused in zip(*results, strict=True):
        torch.testing.assert_close(fused, eager, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
def test_large_products_by_onednn_are_the_same_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward, with and without an added vector."""
    made, create = [], LinearUnary.create
    monkeypatch.setattr(products, "LARGE", 1)
    monkeypatch.setattr(LinearUnary, "create", lambda *given: made.append(given[2] is None) or create(*given))
    w, bias = torch.randn(6, 5), torch.randn(6)

    def function(x: Tensor) -> Tensor:
        return torch.addmm(bias, x @ w, w.T).tanh()

    options = {"post_grad_custom_post_pass": products.onednn_pass(), "fx_graph_cache": False}
    results = []
    for form in (function, torch.compile(function, dynamic=False, options=options)):
        x = torch.randn(40, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
        value = form(x)
        results.append((value.detach(), *torch.autograd.grad(value.square().sum(), x)))
    assert sorted(made) == [False, True, True, True]
    assert not products.is_large(x.double(), w.double()), "oneDNN has no float64"
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)


SMALL: dict[str, dict[str, int]] = {
    "fno": {"backbone.width": 4, "backbone.modes": 3},
    "transolver": {"backbone.width": 8, "backbone.heads": 2, "backbone.slices": 4, "backbone.depth": 2},
    "unet": {"backbone.width": 4, "backbone.levels": 2},
}
EQUIVARIANT = {"fno"}
"""Backbones that commute with translations; the others see coordinates."""


@pytest.mark.parametrize(
    ("name", "dims"), [(name, d) for place, name in enumerate(sorted(BACKBONES)) for d in (1, 2, 3) if d != place + 1]
)
class TestEveryBackbone:
    """The conformance suite: a new backbone is tested by being registered."""

    def build(self, name: str, dims: int, seed: int = 0) -> torch.nn.Module:
        small = {"task.name": TASK_OF_DIM[dims], "backbone.name": name, **SMALL[name]}
        return build_backbone(make_config(overrides=small).backbone, (16,) * dims, 2, 1, seed)

    def test_shapes_and_finite_gradients(self, name: str, dims: int) -> None:
        model = self.build(name, dims)
        for n in (8, 10):
            y = model(torch.randn(2, 2, *(n,) * dims))
            assert y.shape == (2, 1, *(n,) * dims)
            y.square().sum().backward()
        assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())

    def test_moves_between_devices(self, name: str, dims: int) -> None:
        """Nothing it keeps may stay behind; the meta device shows that without an accelerator."""
        model, u = self.build(name, dims), torch.randn(2, 2, *(8,) * dims)
        before, weights = model(u), copy.deepcopy(model.state_dict())
        elsewhere = model.to("meta")(u.to("meta"))
        assert (elsewhere.device.type, elsewhere.shape) == ("meta", before.shape)
        model.to_empty(device="cpu").load_state_dict(weights)
        assert torch.equal(model(u), before)

    def test_mixed_precision_stays_near(self, name: str, dims: int) -> None:
        model = self.build(name, dims)
        u = torch.randn(2, 2, *(8,) * dims)
        mixed = MixedPrecision(model)(u)
        assert mixed.dtype == torch.float32
        assert not torch.equal(mixed, model(u))
        torch.testing.assert_close(mixed, model(u), rtol=0.05, atol=0.05)

    def test_translation_equivariance(self, name: str, dims: int) -> None:
        model = self.build(name, dims).double()
        u = torch.randn(1, 2, *(8,) * dims, dtype=torch.float64)
        shift, axes = tuple(range(1, dims + 1)), tuple(range(2, dims + 2))
        same = torch.allclose(model(u.roll(shift, axes)), model(u).roll(shift, axes), rtol=1e-9, atol=1e-9)
        assert same == (name in EQUIVARIANT)

    def test_samples_do_not_mix(self, name: str, dims: int) -> None:
        model = self.build(name, dims).double()
        u = torch.randn(3, 2, *(8,) * dims, dtype=torch.float64)
        torch.testing.assert_close(model(u)[1:2], model(u[1:2]))


def test_autocast_leaves_transforms_in_full_precision() -> None:
    conv, u = SpectralConv(2, 3, (4, 4)), torch.randn(2, 2, 16, 16)
    with torch.autocast("cpu", torch.bfloat16):
        under = conv(u)
    assert torch.equal(under, conv(u))
    assert under.dtype == torch.float32


class Stateful(nn.Module):
    """A recurrent cell that keeps its state in an attribute; its head starts at zero."""

    def __init__(self, keeps: bool) -> None:
        super().__init__()
        self.cell, self.head = nn.Conv1d(2, 1, 3, padding=1), nn.Conv1d(1, 1, 1)
        nn.init.zeros_(self.head.weight)
        self.keeps, self.hidden = keeps, torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        before = self.hidden if self.keeps and self.hidden.dim() else torch.zeros_like(x)
        self.hidden = torch.tanh(self.cell(torch.cat([x, before], dim=1)))
        return self.head(self.hidden)


class Restless(nn.Sequential):
    """Whatever differs between two calls without being a state: noise, statistics, a cache, the last input."""

    def __init__(self) -> None:
        super().__init__(nn.Conv1d(1, 4, 1), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Conv1d(4, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        self.last = x
        if not hasattr(self, "grid"):
            self.grid = torch.linspace(0, 1, x.shape[-1])
        return super().forward(x + self.grid + torch.randn_like(x))


def test_a_module_that_keeps_a_state_is_refused_and_a_restless_one_is_not() -> None:
    for module in (Stateful(keeps=False), Restless(), Restless().eval()):
        weights = {name: x.clone() for name, x in module.state_dict().items() if "running" not in name}
        was_training = module.training
        check_shapes(module, "theirs", 1, 1, (8,))
        assert module.training == was_training
        assert all(torch.equal(module.state_dict()[name], x) for name, x in weights.items() if "num" not in name)
    with pytest.raises(HeroError, match="keeps a state from one call to the next"):
        check_shapes(Stateful(keeps=True), "theirs", 1, 1, (8,))


def fno_settings(periodic: tuple[bool, ...], **given: object) -> FNOSettings:
    return FNOSettings.from_values("backbone", given, Facts(dims=len(periodic), periodic=periodic))


def test_points_are_rounded_up_but_not_by_the_rounding_of_a_product() -> None:
    assert added_points((0.25, 0.25, 0.0), (8, 9, 100)) == (2, 3, 0)
    assert added_points((0.07, 0.1), (100, 30)) == (7, 3)  # 0.07 * 100 = 7.000000000000001


def test_the_default_follows_the_boundary_and_is_stored_as_numbers() -> None:
    assert fno_settings((True, True)).padding == (0.0, 0.0)
    assert fno_settings((True, False)).padding == (0.0, 0.25)
    assert fno_settings((True, False), padding=0.5).padding == (0.0, 0.5)
    assert fno_settings((True, False), padding=[0.5, 0]).padding == (0.5, 0.0)
    assert fno_settings((True, False), padding="0.1, 0.2").padding == (0.1, 0.2)
    assert fno_settings((True, True), padding=0.5).padding == (0.5, 0.5)
    config = make_config(overrides={"task.name": "decaying_turbulence"})
    assert config.to_dict()["backbone"]["padding"] == (0.0, 0.0)
    mixed = build_backbone(fno_settings((True, False), modes=[2, 3]), (8, 8), 1, 1, 0)
    assert mixed.padding == (0.0, 0.25)


@pytest.mark.parametrize("value", [-0.1, 1.5, "much", [], True, [0.1, "x"], [0.1, 0.2, 0.3]])
def test_other_shares_are_refused(value: object) -> None:
    with pytest.raises(HeroError, match=r"backbone\.padding="):
        fno_settings((False, False), padding=value)


def test_modes_are_checked_on_the_padded_grid() -> None:
    """12 points carry 7 modes, 15 points 8."""
    fno_settings((False,), modes=8).check((12,))
    for refused in (fno_settings((False,), modes=9), fno_settings((True,), modes=8)):
        with pytest.raises(HeroError, match=r"backbone.modes=\d does not fit"):
            refused.check((12,))


def test_the_reach_is_counted_in_the_box_of_the_data() -> None:
    assert fno_settings((True, False), modes=[10, 10]).reach == (10, 8)
    assert fno_settings((True, True), modes=[10, 10]).reach == (10, 10)


def test_transolver_on_scattered_points_knows_no_order_of_them() -> None:
    """Coordinates come as conditioning channels; permuted points give permuted values."""
    made = TransolverSettings.from_values(
        "backbone", {"name": "transolver", "width": 8, "heads": 2, "slices": 4}, Facts()
    )
    model = build_backbone(made, (30,), 3, 1, seed=0, cloud=True).double()
    assert isinstance(model, Transolver)
    u, order = torch.randn(2, 3, 30, dtype=torch.float64), torch.randperm(30)
    torch.testing.assert_close(model(u[..., order]), model(u)[..., order], rtol=1e-11, atol=1e-12)


WORDS = ("small", "base", "large")
LENGTHS = (4, 5, 7, 8, 16, 21, 48, 64, 96, 129, 256, 1024)
QUICK = ["train.steps=2", "train.batch=2", "train.unroll=1", "train.compile=false", "data.rollout=2"]


def written(folder: Path, *space: int, channels: int = 2, count: int = 6, states: int = 8) -> Path:
    """A file of smooth random states."""
    rng = np.random.default_rng(0)
    states_of = rng.normal(size=(count, states, channels, *space)).cumsum(axis=1)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "u.npy", states_of.astype(np.float32))
    return folder / "u.npy"


def of_file(path: Path, dims: int, **settings: Any) -> RunConfig:
    more = {name.replace("__", "."): value for name, value in settings.items()}
    return make_config("recipe", overrides={"data.path": str(path), "data.layout": "btcxyz"[: 3 + dims], **more})


def test_the_words_are_the_same_everywhere() -> None:
    assert get_args(FNOSettings.model_fields["size"].annotation) == tuple(SIZES)
    assert tuple(SIZES)[:3] == WORDS == get_args(UNetSettings.model_fields["size"].annotation)


@pytest.mark.parametrize("size", WORDS)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_the_rule_fits_every_grid(size: str, dims: int) -> None:
    for space in itertools.product(LENGTHS, repeat=dims):
        for wraps, channels in ((True, 1), (False, 4), (True, 12)):
            facts = Facts(dims=dims, space=space, periodic=(wraps,) * dims, channels=channels)
            found = FNOSettings.from_values("backbone", {"size": size}, facts)
            found.check(space)
            assert len(found.modes) == dims
            assert min(found.width, found.depth, *found.modes) >= 1
            UNetSettings.from_values("backbone", {"name": "unet", "size": size}, facts).check(space)


@pytest.mark.parametrize("space", [(4,), (4, 4), (5, 9), (4, 5, 4)])
@pytest.mark.parametrize("backbone", sorted(BACKBONES))
def test_the_smallest_grids_are_trained_on(space: tuple[int, ...], backbone: str, tmp_path: Path) -> None:
    config = of_file(written(tmp_path, *space), len(space), backbone__name=backbone, backbone__size="small")
    u = torch.randn(2, 2, *space)
    assert config.build_operator()(u).shape == u.shape


@pytest.mark.parametrize("backbone", sorted(BACKBONES))
@pytest.mark.parametrize("space", [(96,), (24, 40), (8, 8, 12)])
def test_a_larger_size_has_more_parameters(space: tuple[int, ...], backbone: str, tmp_path: Path) -> None:
    path = written(tmp_path, *space)
    sizes = [of_file(path, len(space), backbone__name=backbone, backbone__size=size) for size in WORDS]
    counts = [count_parameters(config.build_operator()) for config in sizes]
    assert counts[0] < counts[1] < counts[2]
    assert of_file(path, len(space), backbone__name=backbone) == sizes[1]


def test_a_stored_run_on_a_file_keeps_its_network(tmp_path: Path) -> None:
    """Earlier versions trained the paper's network on files; their configurations hold its numbers."""
    path = written(tmp_path, 24, 24)
    old = of_file(path, 2, backbone__size="apebench")
    file = tmp_path / "run" / "config.toml"
    file.parent.mkdir()
    file.write_text(old.to_toml(), encoding="utf-8")
    assert stored_config(file) == old
    assert (old.backbone.width, old.backbone.depth, old.backbone.modes) == (20, 1, (8, 8))
    changed = file.read_text().replace('size = "apebench"\n', "")  # as another backbone of an earlier version
    file.write_text(changed, encoding="utf-8")
    assert make_config(file=file).backbone.width == 20


def test_the_option_is_short_for_the_setting(tmp_path: Path, call: Call) -> None:
    path, places = written(tmp_path, 16), ("--runs", tmp_path / "runs", "--data", tmp_path / "data")
    given = [part for text in (*QUICK, "data.layout=btcx") for part in ("--set", text)]
    code, out, err = call("train", path, "--size", "large", *given, *places)
    assert code == 0, err
    (run,) = (tmp_path / "runs").iterdir()
    config = stored_config(run / "config.toml")
    assert config.backbone.own() == of_file(path, 1, backbone__size="large").backbone.own()
    assert network_sentence(config) in " ".join((out + err).split())
    assert_refused(call("train", path, "--size", "huge", *given, *places), "huge", "base, large")
    assert_refused(call("finetune", run, "--size", "small", *places[:2]), "backbone.size=small")
    for command in (("describe",), ("compare", "--seeds", 1, "--strategies", "push_forward", "--workers", 0)):
        code, out, err = call(command[0], path, *command[1:], "--size", "small", *given, *places)
        assert code == 0, err
    (compared,) = set((tmp_path / "runs").glob("*/config.toml")) - {run / "config.toml"}
    assert stored_config(compared).backbone.size == "small"
