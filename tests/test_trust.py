"""Code is imported where the user typed its name, now or before in this folder, or said --trust-code."""

from __future__ import annotations

import importlib
import importlib.util
import py_compile
import shutil
import sys
from pathlib import Path

import pytest
import torch

from conftest import Call, options
from hero.config import registry
from hero.config.registry import Finder, import_part
from hero.errors import HeroError
from hero.runs.config import make_config
from hero.study.plans import plan

NET = (
    "import pathlib\npathlib.Path('imported').touch()\nimport torch\n"
    "class Net(torch.nn.Conv1d):\n"
    "    def __init__(self, in_channels, out_channels):\n"
    "        super().__init__(in_channels, out_channels, 3, padding=1, padding_mode='circular')\n"
    "class Descent(torch.optim.SGD):\n    pass\n"
)
PLAIN = [f"--set={part}" for part in options() if "=" in part and not part.startswith("backbone.")]
OPENING = ("evaluate", "predict", "export", "anatomy", "doctor", "train --resume")


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of a new process: nobody typed a name, and the module is not loaded."""
    monkeypatch.setattr(registry, "_typed", set())
    monkeypatch.setattr(registry, "_allowed", set())
    monkeypatch.setattr(registry, "_all_trusted", False)
    for name in ("stranger", "helper"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if not isinstance(finder, Finder)])
    Path("imported").unlink(missing_ok=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a module in it, and nothing typed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HERO_IMPORT", raising=False)
    (tmp_path / "stranger.py").write_text(NET)
    forget(monkeypatch)
    return tmp_path


def command(name: str, run: Path, data_dir: Path) -> list[str]:
    more = ["--steps", "2"] if name == "predict" else ["--format", "folder"] if name == "export" else []
    return [*name.split(), str(run), "--data", str(data_dir), *more]


def test_a_backbone_that_only_a_run_folder_names(
    folder: Path, data_dir: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = ["train", "burgers", *PLAIN, "--set", "train.steps=2", "--data", str(data_dir)]
    typed += ["--backbone", "stranger:Net", "--strategy", "one_step"]
    for _ in range(2):  # the same command again finds its run
        assert call(*typed)[0] == 0
        assert Path("imported").exists()
        forget(monkeypatch)
    (run,) = (folder / "runs").iterdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "another user"))
    for name in (name for name in OPENING if name != "export"):
        code, _, err = call(*command(name, run, data_dir))
        assert code == 2, name
        assert "stranger:Net is code" in err
        assert "--trust-code" in err
        assert "HERO_IMPORT=stranger" in err
    for shown in (["runs"], ["report", run.name], command("export", run, data_dir)):  # these need no code
        assert call(*shown)[0] == 0
    assert call("predict", run / "export" / "model", "--data", data_dir)[0] == 2
    assert call("train", "--config", run / "config.toml", "--set", "seed=1", "--data", data_dir)[0] == 2
    assert not Path("imported").exists()
    for name in ("export", "predict", "train --resume"):
        forget(monkeypatch)
        assert call(*command(name, run, data_dir), "--trust-code")[0] == 0, name
    forget(monkeypatch)
    assert call("predict", run / "export" / "model", "--data", data_dir, "--steps", 2, "--trust-code")[0] == 0
    forget(monkeypatch)
    monkeypatch.setenv("HERO_IMPORT", "stranger")
    assert call(*command("evaluate", run, data_dir))[0] == 0


@pytest.fixture
def typed(folder: Path, data_dir: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose class, which imports a helper, was named on the command line of an earlier process."""
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    (folder / "helper.py").write_text("")
    (folder / "stranger.py").write_text("import helper\n" + NET)
    named = ["--backbone", "stranger:Net", "--strategy", "one_step", "--set", "train.steps=1"]
    assert call("train", "burgers", *PLAIN, *named, "--data", data_dir)[0] == 0
    forget(monkeypatch)
    (run,) = (folder / "runs").iterdir()
    return run


def test_a_class_that_was_typed_in_this_folder_is_remembered(
    typed: Path, folder: Path, data_dir: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    (memory,) = (folder / "state").rglob("*.json")
    assert (memory.stat().st_mode & 0o777, memory.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    for name in ("doctor", "train --resume"):
        assert call(*command(name, typed, data_dir))[0] == 0, name
        assert Path("imported").exists()
        forget(monkeypatch)
    (folder / "unseen.py").write_text("raise SystemExit")
    assert call(*command("predict", typed, data_dir))[0] == 0
    with pytest.raises(ModuleNotFoundError):  # by memory, other files of the folder do not become modules
        importlib.import_module("unseen")


def poison(folder: Path) -> None:
    """A compiled file beside an unchanged source, which Python takes without looking at the source."""
    evil = folder / "evil.py"
    evil.write_text("import pathlib\npathlib.Path('evil').touch()\n" + NET)
    compiled = importlib.util.cache_from_source(str(folder / "stranger.py"))
    py_compile.compile(str(evil), compiled, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)


def test_compiled_files_are_not_run_because_of_the_memory(
    typed: Path, folder: Path, data_dir: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(folder)
    assert call(*command("predict", typed, data_dir))[0] == 0
    assert (Path("imported").exists(), Path("evil").exists()) == (True, False)
    forget(monkeypatch)
    assert call(*command("predict", typed, data_dir), "--trust-code")[0] == 0
    assert Path("evil").exists()  # the file would have run


@pytest.mark.parametrize("change", ["class", "source", "helper", "folder", "memory of others"])
def test_the_memory_is_of_this_class_these_files_and_this_folder(
    change: str, typed: Path, folder: Path, data_dir: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    (memory,) = (folder / "state").rglob("*.json")
    if change == "class":  # of a stranger's run in this folder
        (folder / "stranger.py").rename(folder / "other.py")
        config = make_config(file=typed / "config.toml", overrides={"backbone.name": "other:Net"})
        (typed / "config.toml").write_text(config.to_toml())
        forget(monkeypatch)
    elif change in ("source", "helper"):
        with (folder / f"{'stranger' if change == 'source' else change}.py").open("a") as file:
            file.write("# theirs\n")
    elif change == "folder":
        (folder / "copy").mkdir()
        for name in ("stranger.py", "helper.py"):
            shutil.copy(folder / name, folder / "copy")
        monkeypatch.chdir(folder / "copy")
    else:
        memory.chmod(0o622)
    code, _, err = call(*command("predict", typed, data_dir))
    assert (code, "--trust-code" in err) == (2, True)
    assert not (folder / "imported").exists()
    assert not Path("imported").exists()


@pytest.mark.parametrize("content", ["", "[]", "[" * 10**5, '{"": 1}', '{"FOLDER": {"stranger:Net": {"stranger": 3}}}'])
def test_a_damaged_memory_is_none(content: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    (folder / "hero").mkdir()
    (folder / "hero" / "trusted.json").write_text(content.replace("FOLDER", str(folder)))
    assert not registry.is_trusted("stranger:Net")


def test_what_is_typed_in_python_is_not_remembered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    registry.trust("stranger:Net")
    assert import_part("backbone", "stranger:Net").__name__ == "Net"
    assert not (folder / "state").exists()


def test_a_class_in_a_package_without_init_is_remembered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    (folder / "their_nets" / "deep").mkdir(parents=True)
    (folder / "their_nets" / "deep" / "nets.py").write_text(NET)
    name = "their_nets.deep.nets:Net"
    registry.trust(name)
    with registry.command_line():
        assert import_part("backbone", name).__name__ == "Net"
    for module in ("their_nets", "their_nets.deep", "their_nets.deep.nets"):
        monkeypatch.delitem(sys.modules, module)
    forget(monkeypatch)
    assert import_part("backbone", name).__name__ == "Net"
    (folder / "their_nets" / "deep" / "more.py").write_text("raise SystemExit")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("their_nets.deep.more")


def test_an_optimizer_and_a_strategy_that_only_a_file_names(folder: Path, data_dir: Path, call: Call) -> None:
    for line in ('strategy = "stranger:Net"', '[train]\noptimizer = "stranger:Descent"'):
        Path("their.toml").write_text(line)
        code, _, err = call("train", "burgers", "--config", "their.toml", *options(), "--data", data_dir)
        assert (code, "stranger:" in err, "--trust-code" in err) == (2, True, True)
    assert not Path("imported").exists()
    assert not any(folder.glob("runs/*"))


def test_a_class_that_is_imported_already_makes_nothing_else_importable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    assert import_part("backbone", "torch.nn:Identity") is torch.nn.Identity
    with pytest.raises(ImportError):
        importlib.import_module("stranger")


def test_planning_trusts_what_was_typed_and_nothing_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study builds configurations from merged settings, which must not pass for typed ones."""
    Path("their.toml").write_text('[train]\noptimizer = "stranger:Descent"')
    planned = plan("main", file=Path("their.toml"), tasks=["burgers"], backbones=["fno"], seeds=[0])
    assert planned.groups[0].rows[0].configs[0].train.optimizer == "stranger:Descent"
    assert not registry.is_trusted("stranger:Descent")
    assert registry.import_variable(["stranger:Descent"], "mine") == "mine"
    plan("main", tasks=["burgers"], backbones=["stranger:Net"], seeds=[0])
    assert registry.import_variable(["stranger:Net", "fno", "given:Net-1f0c93ab"], "mine") == "mine,stranger"


def test_workers_import_what_the_command_names(folder: Path, data_dir: Path, call: Call) -> None:
    settings = [*PLAIN, "--set", "train.steps=2", "--set", "train.optimizer=stranger:Descent"]
    typed = ["compare", "burgers", "--strategies", "one_step", "--backbone", "stranger:Net", "--seeds", "1", *settings]
    code, out, err = call(*typed, "--workers", 1, "--data", data_dir)
    assert code == 0, out + err
    assert "failed" not in out


@pytest.mark.parametrize("name", ["a:", ":b", "a:b:c", "torch.nn:/../../../x", "a..b:c"])
@pytest.mark.parametrize("key", ["backbone.name", "strategy", "train.optimizer"])
def test_names_that_are_not_of_classes(key: str, name: str) -> None:
    with pytest.raises(HeroError, match=r"write it as package\.module:Class"):
        make_config(overrides={key: name})
