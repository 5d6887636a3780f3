"""Anyone's own module as the backbone: neuraloperator's models for real, and clear words when it does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from conftest import Call, assert_refused, set_options, tiny
from hero.deploy.real import has_free_batch, in_real_numbers, is_complex
from hero.runs.folder import Run

NEURALOP: dict[str, dict[str, Any]] = {
    "neuralop.models:FNO": {"n_modes": [6], "hidden_channels": 4, "n_layers": 2},
    "neuralop.models:UNO": {
        "hidden_channels": 4,
        "uno_out_channels": [4, 4, 4],
        "uno_n_modes": [[4], [4], [4]],
        "uno_scalings": [[1.0], [0.5], [2.0]],
        "channel_mlp_skip": "linear",
        "n_layers": 3,
    },
}


def config_of(name: str, **changes: Any) -> Any:
    return tiny(**{"backbone.name": name, "backbone.width": None, "backbone.modes": None}, **changes)


MODULE = """
from torch import nn

class Net(nn.Conv1d):
    def __init__(self, in_channels, out_channels):
        super().__init__(in_channels, out_channels, 3, padding=1)

class Short(Net):
    def forward(self, u):
        return super().forward(u)[..., 1:]

class Half(Net):
    def forward(self, u):
        return super().forward(u).bfloat16()

class Two(Net):
    def forward(self, u):
        return super().forward(u), None

def function(u):
    return u
"""


@pytest.fixture
def module_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_models.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_package:Net", ("no_such_package", "install")),
        ("my_own_models:Nett", ("my_own_models has no 'Nett'", "package.module:Class")),
        ("my_own_models:function", ("my_own_models:function", "not a subclass", "package.module:Class")),
        ("my_own_models:Short", ("(2, 1, 32) to (2, 1, 31)", "not to (2, 1, 32)")),
        ("my_own_models:Two", ("tuple",)),
        ("my_own_models:Half", ("bfloat16", "float32")),
        ("my_own_models:Net", ("colour", "backbone.kwargs")),
    ],
)
@pytest.mark.usefixtures("module_here")
def test_what_does_not_fit_is_told_in_one_sentence(
    name: str, words: tuple[str, ...], call: Call, runs_dir: Path, data_dir: Path
) -> None:
    wrong = {"backbone.kwargs.colour": "red"} if name == "my_own_models:Net" else {}
    config = config_of(name, **wrong)
    (Path.cwd() / "config.toml").write_text(config.to_toml())
    result = call("train", "--config", "config.toml", "--runs", runs_dir, "--data", data_dir)
    assert_refused(result, *words)


class WithSlices(nn.Module):
    """A spectral layer as the first FNOs have it: two corners of the spectrum, filled by assignment."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(1, 1, 3, 3, dtype=torch.cfloat) for _ in range(2))

    def forward(self, u: Tensor) -> Tensor:
        spectrum = torch.fft.rfft2(u)
        out = torch.zeros(*u.shape[:3], u.shape[3] // 2 + 1, dtype=torch.cfloat)
        for rows, weight in zip((slice(3), slice(-3, None)), self.weights, strict=True):
            out[:, :, rows, :3] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, rows, :3], weight)
        return torch.fft.irfft2(out, s=u.shape[2:])


def foreign_module(name: str, dims: int) -> nn.Module:
    models = pytest.importorskip("neuralop.models", reason="needs `pip install neuraloperator`")
    if name == "slices":
        return WithSlices()
    own = NEURALOP[f"neuralop.models:{name}"]
    own = own | ({"n_modes": [6] * dims} if name == "FNO" else {})
    return getattr(models, name)(in_channels=1, out_channels=1, **own)


@pytest.mark.parametrize(("name", "dims"), [("FNO", 2), ("UNO", 1), ("slices", 2)])
def test_a_program_with_complex_numbers_has_a_real_twin(name: str, dims: int) -> None:
    torch.manual_seed(0)
    model = foreign_module(name, dims).eval().requires_grad_(False)
    batch = 3 if name == "slices" else 1
    shapes = ({0: torch.export.Dim("batch")},) if name == "slices" else None
    u = torch.randn(batch, 1, *(16, 12)[:dims])
    expected = model(u)
    program = in_real_numbers(torch.export.export(model, (u,), dynamic_shapes=shapes))
    assert not any(map(is_complex, program.graph.nodes))
    assert has_free_batch(program) == (name == "slices")
    torch.testing.assert_close(program.module()(u), expected, rtol=1e-4, atol=1e-5)


def test_what_has_no_rule_is_refused() -> None:
    class Derivative(nn.Module):
        def forward(self, u: Tensor) -> Tensor:
            return torch.fft.irfft(torch.fft.rfft(u) * 1j)

    with pytest.raises(ValueError, match="a complex constant"):
        in_real_numbers(torch.export.export(Derivative(), (torch.zeros(1, 1, 8),)))


def test_weights_of_neuralop_to_onnx(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.save(model.state_dict())`, `hero finetune`, `hero export`, onnxruntime."""
    ort = pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    torch.save(foreign_module("FNO", 1).state_dict(), "fno.pt")
    np.save("waves.npy", np.random.default_rng(0).normal(size=(8, 6, 1, 16)).cumsum(axis=1))
    short = {"train.steps": 2, "train.compile": "false", "train.device": "cpu", "train.lora": 2}
    short |= {f"backbone.kwargs.{key}": value for key, value in NEURALOP["neuralop.models:FNO"].items()}
    named = ("--backbone", "neuralop.models:FNO", "--data", "waves.npy", *set_options(short))
    code, _, err = call("finetune", "fno.pt", *named)
    assert code == 0, err
    (run,) = Path("runs").iterdir()
    code, _, err = call("export", run, "--format", "onnx", "--trust-code")
    assert code == 0, err
    session = ort.InferenceSession(str(run / "export" / "model.onnx"))
    u = np.load("waves.npy")[:1, 0].astype(np.float32)
    (made,) = session.run(["next"], {"states": u})
    with torch.no_grad():
        expected = Run(run).operator("cpu")(torch.from_numpy(u)).numpy()
    np.testing.assert_allclose(made, expected, rtol=1e-3, atol=1e-4)
