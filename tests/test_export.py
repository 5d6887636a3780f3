"""An exported file is the operator of its run, whatever is around it is refused in one sentence."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import hero as hero_module
from conftest import Call, assert_refused, hero, tiny
from fakes import fake_card
from hero.data.windows import Context
from hero.deploy import export
from hero.deploy import exported as exported_files
from hero.deploy.export import Step, check, compiling_pays, export_run, in_float32, trace
from hero.deploy.exported import FORMATS, decode, explained, load_stepper, processor
from hero.errors import HeroError
from hero.method.rollout import as_stepper, rollout
from hero.models import BACKBONES
from hero.runs.checkpoint import read_weights
from hero.runs.config import RunConfig, make_config
from hero.runs.folder import load_data
from hero.training.loop import train

FILES = [kind.file for kind in FORMATS.values()]
CHANGES = {"train__history": 2, "train__normalise": True, "data__test_trajectories": 3}
CHANGES |= {"data__test_steps": 110, "data__val_steps": 110, "train__steps": 5, "backbone__keep": "mean,norm_cap"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> tuple[Path, tuple[int, str, str]]:
    """A run with history, normalisation and invariants, exported in all formats by the command, and what that said."""
    run = train(tiny(**CHANGES), tmp_path_factory.mktemp("runs"), data_dir)
    command = ("export", run.name[-8:], "--runs", run.parent, "--data", data_dir)
    assert hero(*command, "--format", "aot")[0] == 0
    return run, hero(*command)


@pytest.fixture(scope="module")
def trained(exported: tuple[Path, tuple[int, str, str]]) -> Path:
    return exported[0]


@pytest.fixture
def files(trained: Path, tmp_path: Path) -> Path:
    """Copies of the exported files, to be damaged."""
    return Path(shutil.copytree(trained / "export", tmp_path / "export"))


@pytest.fixture(scope="module")
def states(data_dir: Path, trained: Path) -> np.ndarray:
    return load_data(tiny(**CHANGES), "test", data_dir, "cpu").states[:, :2].numpy()


def test_the_command_shows_the_differences_and_nothing_else(exported: tuple[Path, tuple[int, str, str]]) -> None:
    run, (code, out, err) = exported
    assert (code, err) == (0, "")
    assert sorted(path.name for path in (run / "export").iterdir()) == sorted(FILES)
    for words in ("model.onnx", "model.pt2", "step 1 ", "step 10 ", "step 100", "nRMSE@100", str(run)):
        assert words in out
    assert len(out.splitlines()) < 20
    assert max(map(len, out.replace(str(run.parent), "").splitlines())) <= 80


def test_predictions_of_the_run_and_of_both_files_agree(
    trained: Path, data_dir: Path, tmp_path: Path, call: Call, states: np.ndarray
) -> None:
    np.save(tmp_path / "one.npy", states[:1].astype(np.float64))
    np.savez(tmp_path / "three.npz", states=states, other=np.zeros(2))
    folders = ("--runs", trained.parent, "--data", data_dir)
    for given, batch in (((), 3), ((tmp_path / "one.npy",), 1), ((tmp_path / "three.npz",), 3)):
        rolled = []
        for model in (trained.name, *(trained / "export" / name for name in FILES)):
            source = ("--input", *given) if given else ()
            trust = () if str(model).endswith(".onnx") else ("--trust-code",)
            options = (*source, *trust, "--steps", 12, "--out", tmp_path / "out.npz")
            code, out, err = call("predict", model, *folders, *options)
            assert (code, err) == (0, "")
            assert f"prediction {batch}×12×1×32" in out
            assert f"0 of {batch} trajectories left the finite range" in out
            with np.load(tmp_path / "out.npz", allow_pickle=False) as arrays:
                rolled.append(arrays["prediction"])
        assert rolled[0].shape == (batch, 12, 1, 32)
        assert rolled[0].dtype == np.float32
        for other in rolled[1:]:
            np.testing.assert_allclose(other, rolled[0], rtol=1e-5, atol=1e-6)
    assert call("predict", trained, *folders, "--steps", 3, "--out", tmp_path / "out.npy")[0] == 0
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), rolled[0][:, :3], rtol=1e-5, atol=1e-6)


def test_long_rollouts_are_compiled_and_give_the_same(
    trained: Path, data_dir: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not compiling_pays(30 * 160, 200)
    assert compiling_pays(30 * 160, 200_000)
    folders, rolled = ("--runs", trained.parent, "--data", data_dir, "--steps", 7), []
    for long in (False, True):
        monkeypatch.setattr("hero.deploy.model_folder.compiling_pays", lambda *_, long=long: long)
        code, out, _ = call("predict", trained.name, *folders, "--out", tmp_path / "out.npy")
        assert (code, "compiling" in out) == (0, long)
        rolled.append(np.load(tmp_path / "out.npy"))
    np.testing.assert_allclose(rolled[1], rolled[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FILES)
def test_a_file_describes_itself_and_steps_in_python(
    name: str, trained: Path, states: np.ndarray, data_dir: Path
) -> None:
    step = load_stepper(trained / "export" / name, trust_code=True)
    train = load_data(tiny(**CHANGES), "train", data_dir, "cpu").states
    own = {"band": ((float(train.min()), float(train.max())),), "processor": processor() if name == "model.aot" else ""}
    assert step.card == fake_card(tiny(**CHANGES), trained.name, 5, **own)
    data = (trained / "export" / name).read_bytes()
    with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(trained / "export" / name) as archive:
        data = b"".join(map(archive.read, archive.namelist()))
    assert str(Path(hero_module.__file__).parent).encode() not in data  # no path of this machine
    assert rollout(step, Context(torch.from_numpy(states)), 4).shape == (3, 4, 1, 32)
    with pytest.raises(HeroError, match=r"\(3, 1, 32\) do not fit .* \(batch, 2, 32\)"):
        step(Context(torch.zeros(3, 1, 1, 32)))


def test_compiled_code_of_another_processor_is_refused(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its instructions could end the process."""
    monkeypatch.setattr("platform.machine", lambda: "another")
    with pytest.raises(HeroError, match="another"):
        load_stepper(files / "model.aot", trust_code=True)


def test_onnx_has_no_normalisation_left_outside(trained: Path) -> None:
    """Physical units go in: a plain onnxruntime session without our code gives what the run gives."""
    import onnxruntime

    session = onnxruntime.InferenceSession(trained / "export" / "model.onnx")
    (given,), (result,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.shape) == ("states", ["batch", 2, 32])
    assert (result.name, result.shape) == ("next", ["batch", 1, 32])
    x = torch.randn(7, 2, 32, generator=torch.Generator().manual_seed(0))
    model = tiny(**CHANGES).build_operator()
    model.load_state_dict(read_weights(trained / "model.safetensors")[0])
    np.testing.assert_allclose(session.run(None, {"states": x.numpy()})[0], model(x).detach(), rtol=1e-4, atol=1e-6)


def small(task: str, backbone: str) -> RunConfig:
    settings = {"task.name": task, "task.resolution": 8, "task.cutoff": 1, "backbone.name": backbone}
    settings |= {"train.bundle": 2, "backbone.padding": 0.25} if task == "unbalanced_advection" else {}
    settings |= {"backbone.width": 8, "backbone.depth": 1}
    settings |= {"fno": {"backbone.modes": 2}, "unet": {"backbone.levels": 1}}.get(backbone, {})
    return make_config(overrides=settings | ({"task.forcing_mode": 1} if task == "kolmogorov_flow" else {}))


def untrained(config: RunConfig) -> Step:
    model = config.build_operator().eval().requires_grad_(False)
    return Step(model, as_stepper(model), config.train.history)


@pytest.mark.parametrize(
    ("task", "backbone"), [("unbalanced_advection" if name == "fno" else "dispersion", name) for name in BACKBONES]
)
def test_every_backbone_exports(task: str, backbone: str) -> None:
    config = small(task, backbone)
    card, step = fake_card(config), untrained(config)
    data = 0.1 * torch.randn(3, 21, 1, *card.grid, generator=torch.Generator().manual_seed(0))
    program = trace(step, card)
    for kind in (FORMATS["onnx"], FORMATS["torch"]):  # compiling takes minutes for some
        with explained("this format", "see the reason"):
            content = kind.encode(program, card.model_dump_json())
        exported = decode(content, kind, Path(kind.file))
        assert check(exported, as_stepper(step), data, 1, Path(kind.file)).one_step < 1e-5
        for batch in (1, 5):
            shape = exported(Context(torch.ones(batch, 1, 1, *card.grid))).shape
            assert shape == (batch, card.bundle, *card.grid)


def test_a_refused_export_leaves_the_earlier_file(
    trained: Path, data_dir: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (files / "model.pt2").read_bytes()
    program = trace(untrained(tiny(**CHANGES, seed=1)), fake_card(tiny(**CHANGES)))
    monkeypatch.setattr(export, "trace", lambda *_: program)
    with pytest.raises(HeroError, match="is not the operator"):
        export_run(trained, data_dir, files, ["torch"])
    assert (files / "model.pt2").read_bytes() == before
    with pytest.raises(HeroError, match="is not the operator"):
        export_run(trained, data_dir, files / "new", ["torch"])
    assert not (files / "new").exists()


def linear(factor: float, error: float = 0.0) -> Callable[[Context], Tensor]:
    return lambda context: factor * context.states[:, -1] + error


def test_the_check_judges_single_steps_on_the_scale_of_the_rollout() -> None:
    data, path = torch.ones(4, 101, 1, 8), Path("f")
    # A state decayed below the rounding of larger ones has no digits to compare; a growing one hides no early error.
    assert check(linear(0.5, 1e-7), linear(0.5), data, 1, path).one_step == pytest.approx(1e-7, rel=0.3)
    assert check(linear(0.5, 1e-7), linear(0.5), data, 1, path).rollout[100] > 1
    wrong = (linear(1.0, 1e-3), 1.0), (linear(2.0, 1e-3), 2.0), (linear(float("nan")), 1.0), (linear(10.1), 10.0)
    for file, factor in wrong:
        with pytest.raises(HeroError, match="one step differs"):
            check(file, linear(factor), data, 1, path)
    # The original may diverge, and the file with it; what came before is still compared.
    assert check(linear(10.0), linear(10.0), data, 1, path).original_error == float("inf")
    with pytest.raises(HeroError, match="cannot be checked"):
        check(linear(float("inf")), linear(float("inf")), data, 1, path)


def test_an_export_computes_in_float32_where_the_run_has_mixed_precision() -> None:
    changes = {"backbone__residual": True, "train__normalise": True}
    config = tiny(**changes, backbone__precision="bfloat16")
    x = torch.randn(2, 1, 32, generator=torch.Generator().manual_seed(0))
    plain = tiny(**changes).build_operator()(x)
    mixed = config.build_operator()
    assert not torch.equal(mixed(x), plain)
    assert torch.equal(in_float32(mixed)(x), plain)


def test_a_model_too_large_for_one_onnx_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exported_files, "ONNX_LIMIT", 100)
    model = torch.nn.Linear(32, 32)
    program = trace(Step(model, as_stepper(model), 1), fake_card(tiny()))
    with pytest.raises(HeroError, match=r"2 GB; use the format torch\.$"), explained("it", "try"):
        FORMATS["onnx"].encode(program, "{}")


def cut(share: float) -> Callable[[Path], object]:
    return lambda path: os.truncate(path, int(share * path.stat().st_size))


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def without_description(path: Path) -> None:
    if path.suffix in (".pt2", ".aot"):
        torch.export.save(torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),)), path)
        return
    import onnx

    model = onnx.load(path)
    del model.metadata_props[:]
    onnx.save(model, path)


EVERYWHERE: dict[str, Callable[[Path], object]] = {
    "cut": cut(0.999),
    "one bit": flip_a_bit,
    "other format": lambda path: shutil.copy(path.with_name(FILES[path.name == FILES[0]]), path),
    "foreign": without_description,
}
DAMAGES = EVERYWHERE | {
    "empty": cut(0),
    "half": cut(0.5),
    "noise": lambda path: path.write_bytes(np.random.default_rng(0).bytes(5000)),
    "missing": lambda path: path.unlink(),
}


@pytest.mark.parametrize(
    ("name", "damage"), [(name, d) for number, name in enumerate(FILES) for d in (EVERYWHERE if number else DAMAGES)]
)
def test_a_damaged_file_is_refused(name: str, damage: str, files: Path, data_dir: Path, call: Call) -> None:
    with warnings.catch_warnings(action="ignore"):
        DAMAGES[damage](files / name)
    out = files / "out.npz"
    assert_refused(call("predict", files / name, "--data", data_dir, "--out", out, "--trust-code"), name, "export")
    assert not out.exists()


INPUTS: dict[str, tuple[Callable[[Path, np.ndarray], object], str]] = {
    "no history": (lambda path, u: np.save(path, u[:, 0]), "(3, 1, 32)"),
    "another grid": (lambda path, u: np.save(path, u[..., :16]), "(batch, 2, 1, 32)"),
    "complex": (lambda path, u: np.save(path, u + 1j), "complex64"),
    "nan": (lambda path, u: np.save(path, np.where(np.arange(3)[:, None, None, None] == 1, np.nan, u)), "sample 1"),
    "beyond float32": (lambda path, u: np.save(path, 1e300 * np.ones(u.shape)), "sample 0"),
    "pickle": (lambda path, u: np.save(path, np.array([{}, u], dtype=object), allow_pickle=True), "Python objects"),
    "text": (lambda path, u: path.write_text("1 2 3"), "holds no states"),
    "missing": (lambda path, u: None, "there is no file"),
}


@pytest.mark.parametrize("kind", INPUTS)
def test_wrong_states_are_refused(kind: str, trained: Path, tmp_path: Path, states: np.ndarray, call: Call) -> None:
    path, out = tmp_path / "states.npy", tmp_path / "out.npz"
    out.write_bytes(b"earlier")
    make, words = INPUTS[kind]
    make(path, states)
    model = trained / "export" / "model.onnx"
    assert_refused(call("predict", model, "--input", path, "--out", out), str(path), words)
    assert out.read_bytes() == b"earlier"


def test_mistakes_in_the_options(trained: Path, data_dir: Path, tmp_path: Path, states: np.ndarray, call: Call) -> None:
    source = tmp_path / "states.npy"
    np.save(source, states)
    assert_refused(call("predict", trained, "--out", tmp_path / "x.csv"), "x.csv", ".npz, .npy")
    assert_refused(call("predict", trained, "--input", source, "--out", source), "overwritten")
    assert_refused(call("predict", trained, "--steps", 0), "--steps 0")
    assert_refused(call("predict", source), str(source))
    assert_refused(call("predict", "nothing", "--runs", tmp_path), "'nothing'", "hero runs")
    assert_refused(call("export", "nothing", "--runs", tmp_path), "'nothing'", "hero runs")
    with pytest.raises(HeroError, match="unknown format 'onx'"):
        export_run(trained, data_dir, tmp_path, ["onx"])
    assert list(tmp_path.iterdir()) == [source]


def test_a_full_disk_leaves_no_partial_file(
    trained: Path, data_dir: Path, tmp_path: Path, file_size_limit: Any, call: Call
) -> None:
    file_size_limit(4096)
    folders = ("--runs", trained.parent, "--data", data_dir)
    result = call("export", trained.name, *folders, "--format", "torch", "--out", tmp_path / "out")
    assert_refused(result, str(tmp_path / "out" / "model.pt2"), "disk space")
    assert list((tmp_path / "out").iterdir()) == []
    assert_refused(call("predict", trained, *folders, "--out", tmp_path / "p.npz"), str(tmp_path / "p.npz"))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_without_the_onnx_packages_the_torch_format_still_works(
    trained: Path, data_dir: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders, out = ("--runs", trained.parent, "--data", data_dir), tmp_path / "out"
    for name in ("onnx", "onnxscript", "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None)
    needs = "hero: ONNX files need the package {}; pip install 'hero-operators[onnx]'"
    assert_refused(call("export", trained.name, *folders, "--out", out), needs.format("onnx"))
    refused = call("predict", trained / "export" / "model.onnx", *folders, "--out", tmp_path / "out.npz")
    assert_refused(refused, needs.format("onnxruntime"))
    assert call("export", trained.name, *folders, "--out", out, "--format", "torch")[0] == 0
    exported = ("predict", out / "model.pt2", *folders, "--out", tmp_path / "out.npz", "--steps", 2, "--trust-code")
    assert call(*exported)[0] == 0


def test_an_exported_operator_keeps_invariants(trained: Path) -> None:
    u = torch.randn(2, 2, 1, 32)
    made = load_stepper(trained / "export" / "model.onnx")(Context(u))
    torch.testing.assert_close(made.mean(dim=-1), u[:, -1].mean(dim=-1), rtol=0, atol=1e-6)
