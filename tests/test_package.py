"""The distribution: wheel and source archive are built, installed in a clean environment, and work there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from conftest import options
from hero.errors import DISTRIBUTION

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files that would be published, by suffix; built from a copy, since a build leaves folders."""
    folder = tmp_path_factory.mktemp("build")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    build = "from setuptools import build_meta as b; b.build_wheel('dist'); b.build_sdist('dist')"
    subprocess.run([sys.executable, "-c", build], cwd=folder, check=True, capture_output=True)
    return {path.suffix: path for path in (folder / "dist").iterdir()}


def test_both_archives_hold_all_files_of_the_package(built: dict[str, Path]) -> None:
    source = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "hero").rglob("*") if path.is_file()}
    expected = {name for name in source if "__pycache__" not in name}
    with zipfile.ZipFile(built[".whl"]) as wheel:
        assert expected <= set(wheel.namelist())
    with tarfile.open(built[".gz"]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {f"src/{name}" for name in expected} | {"pyproject.toml", "README.md", "LICENSE"} <= names


def test_the_wheel_works_in_a_clean_environment(built: dict[str, Path], tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--quiet", "--no-index",
                    built[".whl"]], check=True)  # fmt: skip
    (packages,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    ours = {path.name for path in packages.iterdir()}
    for path in Path(sysconfig.get_path("purelib")).iterdir():  # what it depends on, without downloading it again
        if path.name not in ours and "hero" not in path.name and not path.name.endswith(".pth"):
            (packages / path.name).symlink_to(path)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HERO"))}

    def run(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=clean, check=True, capture_output=True, text=True)
        assert (done.stderr, "\x1b" in done.stdout) == ("", False)
        return done.stdout

    assert run(tmp_path / "venv/bin/hero", "--version") == f"hero {PROJECT['version']}\n"
    assert str(packages) in run(python, "-c", "import hero; print(hero.__file__)")
    settings = options(train__steps=4, strategy="one_step")
    assert "Test GM100" in run(tmp_path / "venv/bin/hero", "train", "burgers", *settings)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "runs", "venv"]
    (page,) = (tmp_path / "runs").glob("*/report.html")
    assert page.parent.name in run(tmp_path / "venv/bin/hero", "runs")


def test_extras_name_the_distribution() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    for extra, needed in PROJECT["optional-dependencies"].items():
        for requirement in needed:
            name, bracket, names = requirement.partition("[")
            if bracket and name.startswith("hero"):
                assert name == DISTRIBUTION, extra
                assert set(names.rstrip("]").split(",")) <= set(PROJECT["optional-dependencies"]), extra
