"""The training loop: pairing of seeds, reproducible bits, selection, and what a run folder holds."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import torch

from conftest import tiny
from hero.data.windows import Batch, Batches
from hero.evaluation.evaluate import evaluate
from hero.models import build_backbone
from hero.runs.checkpoint import load_state
from hero.runs.config import RunConfig, make_config
from hero.runs.folder import Run, choose_device, load_data
from hero.runs.log import read_lines
from hero.strategies import STRATEGIES, Loss
from hero.training.compile import COMPILED, compiled, compiling_pays, find_compiler, keep_compiled_code
from hero.training.journal import Journal
from hero.training.loop import Due, resume, train
from hero.training.schedule import learning_rate


def same(a: Any, b: Any) -> bool:
    """Equal to the bit, through nested containers; times are left out."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a if key != "seconds")
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def assert_same_run(one: Path, two: Path) -> None:
    assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()
    assert same(load_state(one / "last" / "state.pt"), load_state(two / "last" / "state.pt"))


def assert_resumes(
    config: RunConfig, stop: int, folder: Path, data_dir: Path, meanwhile: Callable[[], object] = lambda: None
) -> None:
    """A training that fails at update `stop` and is resumed, after `meanwhile`, has the bits of one that does not."""
    whole = train(config, folder / "whole", data_dir)
    strategy = STRATEGIES[config.strategy]
    original = strategy.loss

    def failing(self: Any, model: torch.nn.Module, batch: Batch) -> Loss:
        if batch.step == stop:
            raise MemoryError
        return original(self, model, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strategy, "loss", failing)
        with pytest.raises(MemoryError):
            train(config, folder / "parts", data_dir)
    meanwhile()
    assert_same_run(resume(folder / "parts" / config.run_id(), data_dir), whole)


def watched(config: RunConfig, runs_dir: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Train while noting the weights before the first update and the windows of every update."""
    seen: list[Any] = []
    original = STRATEGIES[config.strategy].loss

    def loss(self: Any, model: torch.nn.Module, batch: Batch) -> Loss:
        if not seen:
            seen.append({name: p.detach().clone() for name, p in model.state_dict().items()})
        seen.append((batch.step, batch.context.states.clone(), batch.truth.clone()))
        return original(self, model, batch)

    with monkeypatch.context() as patch:
        patch.setattr(STRATEGIES[config.strategy], "loss", loss)
        train(config, runs_dir, data_dir)
    return seen


def test_strategies_with_one_seed_start_alike_and_see_the_same_windows(
    runs_dir: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {name: watched(tiny(strategy=name, train__steps=9), runs_dir, data_dir, monkeypatch) for name in STRATEGIES}
    first = seen.pop("one_step")
    assert [step for step, *_ in first[1:]] == list(range(9))
    for name, other in seen.items():
        assert same(first[1:], other[1:]), name
        assert same(first[0], other[0]) == (name != "refiner"), name  # whose network has further inputs
    another_seed = watched(tiny(strategy="one_step", seed=1, train__steps=9), runs_dir, data_dir, monkeypatch)
    assert not same(first[0], another_seed[0])
    assert not same(first[1:], another_seed[1:])


def test_the_same_config_gives_the_same_bits_whatever_the_global_generator(
    finished: Path, runs_dir: Path, data_dir: Path
) -> None:
    torch.manual_seed(100)
    np.random.seed(1)  # noqa: NPY002 (the global state is what is tested)
    before = torch.get_rng_state()
    run = train(tiny(), runs_dir, data_dir)
    assert torch.equal(torch.get_rng_state(), before)
    assert_same_run(run, finished)
    assert run.name == finished.name


def test_a_run_folder_holds_what_the_design_promises(finished: Path) -> None:
    config, run, rows = tiny(), finished, Run(finished).stored_metrics
    assert run.name == config.run_id()
    files = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    promised = {"config.toml", "log.jsonl", "metrics.json", "errors.npz", "model.safetensors", "rollout.npz"}
    assert promised | {"last/state.pt"} <= files
    assert not [name for name in files if name.endswith(".tmp")]
    assert Run(run).config == config
    assert Run(run).metrics == rows
    assert json.loads((run / "metrics.json").read_text(encoding="utf-8"))["version"] == 1
    with np.load(run / "errors.npz") as errors:
        assert errors["nrmse"].shape == (2, 100)
        assert errors["nrmse"][:, 99].mean() == pytest.approx(rows.test["nrmse@100"], rel=1e-12)
        drawn = [Run(run).rollout, Run(run).first_rollout]
        for found in drawn:  # the stored fields have the stored errors
            distance, size = (np.linalg.norm(u[:, 0], axis=1) for u in (found.prediction - found.truth, found.truth))
            np.testing.assert_allclose(distance / size, errors["nrmse"][found.trajectory], rtol=1e-4)
        assert drawn[1].trajectory == 0


def test_the_log_has_every_update_once_with_all_that_the_screen_shows(runs_dir: Path, data_dir: Path) -> None:
    config = tiny(hero__start=8, hero__refresh=5)
    log = read_lines(train(config, runs_dir, data_dir) / "log.jsonl")
    updates = [record for record in log if "loss" in record]
    assert [record["step"] for record in updates] == list(range(1, 21))
    assert [record["step"] for record in log if "val_gm100" in record] == [5, 10, 15, 20]
    for record in updates:
        assert {"loss", "grad_norm", "steps_per_second", "seconds", "compiled", "device"} <= record.keys()
        assert record["lr"] == learning_rate(record["step"] - 1, 1e-3, config.train.warmup, 20)
        relative = {"lambda", "alpha", "relative_loss", "lag", "perturbed", "self"}
        assert (relative <= record.keys()) == (record["step"] > 8)
        if record["step"] > 8:
            assert record["lag"] + record["perturbed"] + record["self"] == pytest.approx(1)
            assert record["lambda"] == pytest.approx(0.02 * min((record["step"] - 1 - 8) / config.method.warmup, 1))
    assert [record["seconds"] for record in updates] == sorted(record["seconds"] for record in updates)


def test_the_best_checkpoint_is_the_one_with_the_least_logged_validation_error(runs_dir: Path, data_dir: Path) -> None:
    # A learning rate so high that validation does not fall monotonically.
    config = tiny(train__lr=0.3, train__steps=30, train__validate_every=2, train__warmup=0, strategy="one_step")
    run = train(config, runs_dir, data_dir)
    scores = {r["step"]: float(r["val_gm100"]) for r in read_lines(run / "log.jsonl") if "val_gm100" in r}
    best = min(scores, key=lambda step: scores[step])
    assert best != max(scores)
    with safetensors.safe_open(run / "model.safetensors", framework="pt") as file:
        about = json.loads(file.metadata()["hero"])
    assert (about["step"], about["val_gm100"]) == (best, str(scores[best]))
    assert evaluate(run, data_dir).val["gm100"] == pytest.approx(scores[best], rel=1e-9)
    # The stored weights are those after `best` updates: a run that stops there has the same.
    state = load_state(run / "last" / "state.pt")
    assert state["step"] == 30
    assert state["best"]["step"] == best
    assert not same(dict(state["model"]), dict(state["best"]["weights"]))


def test_one_update_is_adamw_on_the_clipped_gradient_of_the_strategys_loss(runs_dir: Path, data_dir: Path) -> None:
    """The loop beside a naive twin that writes out three updates."""
    config = tiny(strategy="push_forward", train__steps=3, train__warmup=2, train__clip=0.05, train__weight_decay=0.1)
    run = train(config, runs_dir, data_dir)
    model = build_backbone(config.backbone, (32,), 1, 1, config.seed)
    windows = Batches(load_data(config, "train", data_dir, "cpu"), 5, 5, config.seed)
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in model.parameters()]
    for step, lr in enumerate((0.5e-3, 1e-3, 1e-3)):
        batch = windows(step)
        u, losses = batch.context.states[:, 0], []
        for k in range(5):
            u = model(u)
            truth = batch.truth[:, k]
            losses.append((u - truth).flatten(1).norm(dim=1) / truth.flatten(1).norm(dim=1))
        gradients = torch.autograd.grad(torch.stack(losses).mean(), list(model.parameters()))
        norm = torch.stack([g.square().sum() for g in gradients]).sum().sqrt()
        assert norm > 0.05
        with torch.no_grad():
            for p, g, (m, v) in zip(model.parameters(), gradients, moments, strict=True):
                g = g * 0.05 / norm
                m.mul_(0.9).add_(0.1 * g)
                v.mul_(0.999).add_(0.001 * g * g)
                p.mul_(1 - lr * 0.1)
                p.sub_(lr * (m / (1 - 0.9 ** (step + 1))) / ((v / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8))
    trained = load_state(run / "last" / "state.pt")["model"]
    for name, p in model.state_dict().items():
        torch.testing.assert_close(trained[name], p, rtol=1e-4, atol=1e-5)


def test_the_learning_rate_is_linear_then_cosine() -> None:
    rates = [learning_rate(s, 1e-3, 2000, 10_000) for s in range(10_000)]
    for s in (0, 999, 1999):
        assert rates[s] == pytest.approx(1e-3 * (s + 1) / 2000)
    for s in (2000, 6000, 9999):
        assert rates[s] == pytest.approx(1e-3 * math.cos(math.pi / 2 * (s - 2000) / 8000) ** 2)
    assert max(rates) == 1e-3
    assert 0 < rates[-1] < 1e-9
    assert learning_rate(0, 1.0, 0, 1) == 1.0


def test_early_stopping_ends_a_run_that_no_longer_improves(runs_dir: Path, data_dir: Path) -> None:
    config = tiny(train__lr=1e-12, train__patience=2, train__steps=60, train__validate_every=5)
    run = Run(train(config, runs_dir, data_dir))
    scores = [record.score for record in run.log.validation]
    best = scores.index(min(scores))
    assert len(scores) == best + 3 < 12
    assert run.log.stopped_early
    assert run.status == "not evaluated"
    assert evaluate(run.path, data_dir).training.stopped_early
    assert run.status == "finished"
    state = (run.path / "last" / "state.pt").read_bytes()
    train(config, runs_dir, data_dir)  # a stopped run is finished: nothing is trained again
    assert (run.path / "last" / "state.pt").read_bytes() == state
    assert run.metrics is not None


def test_checkpoints_asked_for_later_are_made_in_the_same_folder(
    finished: Path, runs_dir: Path, data_dir: Path
) -> None:
    run = Path(shutil.copytree(finished, runs_dir / finished.name))
    weights = (run / "model.safetensors").read_bytes()
    assert train(tiny(train__keep_every=10), runs_dir, data_dir) == run
    assert Run(run).kept_steps == [10, 20]
    assert (run / "model.safetensors").read_bytes() == weights
    written = (run / "last" / "state.pt").stat().st_mtime_ns
    train(tiny(train__keep_every=10), runs_dir, data_dir)
    train(tiny(), runs_dir, data_dir)
    assert (run / "last" / "state.pt").stat().st_mtime_ns == written


def test_auto_takes_any_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("xpu"))
    assert choose_device("auto").type == "xpu"
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert choose_device("auto").type == "cpu"


@pytest.mark.parametrize(
    ("backbone", "steps", "pays"),
    [("fno", 10_000, True), ("fno", 10, False), ("transolver", 2000, False), ("transolver", 10**6, True)],
)
def test_compiling_must_save_more_than_it_takes(backbone: str, steps: int, pays: bool, data_dir: Path) -> None:
    config = make_config("paper", overrides={"task.name": "burgers", "backbone.name": backbone, "train.steps": steps,
                                             "data.train_trajectories": 4, "train.batch": 4})  # fmt: skip
    batch = config.windows(load_data(config, "train", data_dir, "cpu"))(0)
    assert compiling_pays(config, config.build_operator(), batch) is pays


def test_graphs_are_asked_of_the_compiler_on_cuda_alone(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(torch, "compile", lambda function, **options: asked.append(options) or function)
    compiled.__wrapped__(print, torch.device("cuda"), graphs=True)
    assert asked.pop() == {"dynamic": False, "mode": "reduce-overhead"}
    config = tiny(train__compile="graphs", strategy="push_forward")
    batch = config.windows(load_data(config, "train", data_dir, "cpu"))(0)
    assert find_compiler(config, config.build_operator(), batch) is not None
    assert asked
    assert not any("mode" in options for options in asked)
    assert "train.compile=graphs is for CUDA" in capsys.readouterr().out


def test_compiled_code_is_kept_by_user_and_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def kept(told: str, kernels: str) -> Path:
        monkeypatch.setenv(COMPILED, told)
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: kernels)
        keep_compiled_code()
        return Path(os.environ[COMPILED])

    own = kept("", "AVX2")
    assert own.is_relative_to(tmp_path)
    assert own.stat().st_mode & 0o077 == 0
    assert kept("/tmp/torchinductor_me", "AVX2") == own, "torch's own choice is not the user's"
    assert kept("", "AVX512") != own
    assert kept("/somewhere", "AVX2") == Path("/somewhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    assert kept("", "AVX2") == Path(), "torch's compiler fails where a path has a space"
    monkeypatch.setenv("XDG_CACHE_HOME", str(own / "file" / "below"))
    (own / "file").touch()
    assert kept("", "AVX2") == Path(), "training goes on where nothing can be kept"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    own.chmod(0o777)
    assert kept("", "AVX2") == Path(), "code that others may have written is not run"


def test_norms_are_read_rarely_where_reading_waits_for_the_device(tmp_path: Path) -> None:
    config = tiny(train__steps=20_000)
    journal = Journal(tmp_path, config, torch.device("cpu"))
    looks = {
        kind: [done for done in range(1, 201) if Due.after(done, config.train, journal, torch.device(kind), False).look]
        for kind in ("cpu", "cuda")
    }
    assert looks["cpu"] == list(range(1, 201))
    assert looks["cuda"] == [50, 100, 150, 200]
