"""Shared by the tests of the flow: a run small enough to train in a moment, its data, and the command as a process."""

from __future__ import annotations

import gc
import importlib
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

# Torch and hero are imported where they are used: the process that hands out the tests needs neither.
if TYPE_CHECKING:
    from forked import Forked
    from hero.runs.config import RunConfig

Call = Callable[..., tuple[int, str, str]]

# Some virtual machines announce AMX and end the process when bfloat16 products use it; oneDNN reads this once.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# Libraries stay in memory: looking through them for garbage took a seventh of all the time.
gc.disable()

# One thread: tiny tensors gain nothing from more, and the tests stay quick beside other work on the machine.
os.environ["OMP_NUM_THREADS"] = "1"

# A shell starts commands in the background with Ctrl-C ignored, and their children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

TINY: dict[str, Any] = {"task.resolution": 32, "task.substeps": 1, "backbone.width": 4, "backbone.modes": 6}
TINY |= {"data.train_trajectories": 4, "data.val_trajectories": 2, "data.test_trajectories": 2}
TINY |= {"data.train_steps": 10, "data.val_steps": 100, "data.test_steps": 100, "train.batch": 5, "train.steps": 20}
TINY |= {"train.validate_every": 5, "train.checkpoint_every": 5, "train.compile": "false"}

SHORT = {"backbone.width": 4, "backbone.modes": 3, "train.batch": 4, "train.steps": 4, "train.unroll": 2}
SHORT |= {"train.compile": "false"}
"""Settings of a few updates on a small file."""

# The longest files, in the order of their time: a worker that begins one of them last would let the other wait.
FIRST = ("cluster", "export", "studies", "resume", "examples", "parallel", "sweep", "files", "bench", "page", "report",
         "finetune", "forcing", "loggers", "snapshots", "tasks", "cli", "backbones", "foreign", "doctor", "pictures",
         "strategies", "own_loop")  # fmt: skip
# Files that one worker runs, because they need the same slow library: ONNX; JAX and neuraloperator.
TOGETHER = {"tutorials": "export", "exponax": "peers", "metrics": "peers", "own_loop": "peers"}


def pytest_collectstart(collector: pytest.Collector) -> None:
    if isinstance(collector, pytest.Dir):
        import hypothesis

        # A slow moment of the machine is no failure of a property.
        hypothesis.settings.register_profile("hero", deadline=None)
        hypothesis.settings.load_profile("hero")


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {f"test_{name}": place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(FIRST)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile` a worker runs whole files, and all that are `TOGETHER`."""
    from xdist.scheduler import LoadFileScheduling

    class TogetherScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            name = Path(nodeid.partition("::")[0]).stem.removeprefix("test_")
            return TOGETHER.get(name, name)

    return TogetherScheduling(config, log) if config.getoption("dist") == "loadfile" else None


class Later:
    """A library that is imported where it is first used, in one worker, and whose absence skips the test."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith(("_", "pytest")):  # what pytest looks for in everything that it collects
            raise AttributeError(attribute)
        return getattr(pytest.importorskip(self.name), attribute)


def tiny(**changes: Any) -> RunConfig:
    """The tiny run with settings changed; `train__lr=1` stands for train.lr=1."""
    from hero.runs.config import make_config

    return make_config(overrides={**TINY, **{key.replace("__", "."): value for key, value in changes.items()}})


def set_options(settings: Mapping[str, Any]) -> list[str]:
    """Settings as command-line options."""
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]


def options(**changes: Any) -> list[str]:
    """The tiny run as command-line options."""
    return set_options({**TINY, **{key.replace("__", "."): value for key, value in changes.items()}})


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Classes that tests name on command lines are remembered here, not in the home of whoever runs the tests.

    Compiled code of these tests is kept for one processor: that of other programs may be for another setting of it.
    """
    import torch

    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    folder = Path(__file__).parent.parent / ".pytest_cache" / f"compiled-{torch.backends.cpu.get_cpu_capability()}"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of the tiny run, made once by whichever test asks first."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    """The tiny run, trained and evaluated once; whoever changes it takes a copy."""
    from hero.evaluation.evaluate import evaluate
    from hero.training.loop import train

    run = train(tiny(), tmp_path_factory.mktemp("finished"), data_dir)
    evaluate(run, data_dir)
    return run


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def file_size_limit() -> Iterator[Callable[[int], None]]:
    """A function that makes every larger file fail to be written, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture
def foresight(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """examples/foresight.py, whose strategy is registered for one test."""
    from hero.strategies import STRATEGIES

    monkeypatch.setitem(STRATEGIES, "foresight", None)
    module = importlib.import_module("foresight")
    STRATEGIES["foresight"] = module.Foresight
    return module


@pytest.fixture(autouse=True)
def forgetting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Modules that a test wrote and imported, and what it trusted, are unknown to the next one, as to a new process."""
    from hero.config import registry
    from hero.config.registry import Finder

    modules, finders, written = set(sys.modules), list(sys.meta_path), str(tmp_path_factory.getbasetemp())
    names = [(known, set(known)) for known in (registry._typed, registry._allowed)]
    yield
    for name in sys.modules.keys() - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(written):
            del sys.modules[name]
    for known, before in names:
        known.intersection_update(before)
    # Ours alone: a library that a test imports may leave its own, without which the metadata of packages are not found.
    sys.meta_path[:] = [one for one in sys.meta_path if one in finders or not isinstance(one, Finder)]
    registry._all_trusted = False


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command in this process, on a wide screen: exit code, stdout, stderr."""
    from hero.cli import main
    from hero.console import console

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        return main([str(argument) for argument in arguments]), *capsys.readouterr()

    monkeypatch.setattr(console, "_width", 200)
    return run


def parse(*arguments: str) -> dict[str, Any]:
    """The values of the options of a command, which is not run."""
    import typer
    from typer.core import TyperGroup

    from hero.cli import app

    command = typer.main.get_command(app)
    context = command.make_context("hero", list(arguments))
    while isinstance(command, TyperGroup) and (words := [*context._protected_args, *context.args]):
        name, command, rest = command.resolve_command(context, words)
        context = command.make_context(name, rest, parent=context)
    return context.params


def fork_hero(*arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Forked:
    """The command in a process of its own, without the seconds that a new interpreter needs."""
    from forked import Forked

    return Forked([str(argument) for argument in arguments], cwd, env)


def hero(*arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Run the command in a process of its own to its end: exit code, stdout, stderr."""
    process = fork_hero(*arguments, cwd=cwd, env=env)
    out, err = process.communicate(timeout=300)
    return process.wait(), out, err


def wait_until(condition: Callable[[], bool], process: Forked) -> None:
    """Poll `condition` while `process` runs; fails if the process ends first."""
    while not condition():
        if process.poll() is not None:
            out, err = process.communicate()
            pytest.fail(f"the process ended with {process.returncode} before the awaited state\n{out}\n{err}")
        time.sleep(0.005)


def assert_refused(result: tuple[int, str, str], *words: str) -> None:
    """Exit code 2 and one sentence on stderr that holds `words`, without a traceback."""
    code, _, err = result
    assert code == 2, err
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if line.strip()]
    assert len(lines) == 1, err
    assert lines[0].startswith("hero: ")
    assert lines[0].endswith((".", "?")), err
    for word in words:
        assert word in err
