"""Files made to fill the memory or to be misread, and files that may not be read: one sentence each."""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import resource
import shutil
import struct
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from conftest import options, tiny
from foreign_arrays import matlab
from forked import in_fork
from hero.cli import main
from hero.data.tasks.store import split_path
from hero.deploy.model_folder import write_folder
from hero.files import FIELD, sealed_archive, write_atomic, write_json
from hero.runs.folder import Run
from hero.runs.records import read_arrays, write_arrays
from hero.training.loop import train

ROOM = 2**30
"""Bytes that reading may take beyond what the process has: PyTorch reserves some of them for itself."""


def npy_header(shape: str, version: int = 1) -> bytes:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text


def forged_zip(path: Path, name: str, content: bytes) -> None:
    """A zip file whose member claims 4 GB less one block."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", pickle.dumps(None))
        file.writestr(name, content)
    data = bytearray(path.read_bytes())
    place = data.rindex(b"PK\x01\x02")
    data[place + 24 : place + 28] = struct.pack("<I", 2**32 - 2**16)
    path.write_bytes(data)


def mat_of_claims(path: Path) -> None:
    matlab.savemat(path, {"usol": np.zeros((13, 17))})
    path.write_bytes(path.read_bytes().replace(struct.pack("<ii", 13, 17), struct.pack("<ii", 2**20, 2**20)))


def zeros(count: int) -> bytes:
    """So many zero bytes in zlib's format: one block of 16 MB again and again, which takes no time to pack."""
    packer = zlib.compressobj(wbits=-15)
    block = packer.compress(bytes(2**24)) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = struct.pack(">I", count % 65521 << 16 | 1)
    return b"\x78\x9c" + block * (count >> 24) + packer.flush() + checksum


def chunk_bomb(path: Path) -> None:
    """One chunk of 2.1 GB."""
    shape = (4, 2, 1, 2**26)
    with h5py.File(path, "w") as file:
        file.create_dataset("u", shape, "f4", chunks=shape, compression="gzip")
        file["u"].id.write_direct_chunk((0, 0, 0, 0), zeros(2**31))


def zarr_bomb(path: Path) -> None:
    """The same in Zarr."""
    import numcodecs
    import zarr

    shape = (4, 2, 1, 2**26)
    zarr.create_array(path, shape=shape, chunks=shape, dtype="f4", compressors=numcodecs.Zlib(), zarr_format=2)
    (path / "0.0.0.0").write_bytes(zeros(2**31))


def elsewhere(kind: str) -> Callable[[Path], None]:
    """A file whose values lie in another one."""

    def make(path: Path) -> None:
        secret = path.with_name(f"{kind}.secret")
        with h5py.File(secret, "w") as file:
            file["u"] = np.zeros((4, 9, 1, 8), "f4")
        with h5py.File(path, "w") as file:
            if kind == "link":
                file["u"] = h5py.ExternalLink(secret, "/u")
            elif kind == "storage":
                file.create_dataset("u", (4, 9, 1, 8), "f4", external=[(secret, 0, h5py.h5f.UNLIMITED)])
            else:
                layout = h5py.VirtualLayout((4, 9, 1, 8), "f4")
                layout[:] = h5py.VirtualSource(path.with_name("missing.h5"), "u", (4, 9, 1, 8))
                file.create_virtual_dataset("u", layout)
        secret.rename(path.parent.parent / secret.name)

    return make


def empty_hdf5(path: Path) -> None:
    """A dataset of 16 TB of which nothing is stored."""
    with h5py.File(path, "w") as file:
        file.create_dataset("u", (4, 2**20, 1, 2**20), "f4", chunks=(1, 1, 1, 2**20))


ATTACKS: dict[str, Callable[[Path], Any]] = {
    "claims.npy": lambda path: path.write_bytes(npy_header("(1000000, 1000, 1, 1000000)")),
    "overflows.npy": lambda path: path.write_bytes(npy_header(f"({2**62}, {2**62}, 1, 4)")),
    "negative.npy": lambda path: path.write_bytes(npy_header("(-1, 4, 1, 4)") + bytes(64)),
    "header.npy": lambda path: path.write_bytes(b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 100),
    "nested.npy": lambda path: path.write_bytes(npy_header("(" * 3000 + ")" * 3000, 2)),
    "bomb.npz": lambda path: forged_zip(path, "u.npy", npy_header("(4, 1000, 1, 268435456)")),
    "bomb.pt": lambda path: forged_zip(path, "archive/data/0", bytes(100)),
    "claims.mat": mat_of_claims,
    "claims.h5": empty_hdf5,
    "chunk.h5": chunk_bomb,
    **({"chunk.zarr": zarr_bomb} if find_spec("zarr") else {}),
    **{f"{kind}.h5": elsewhere(kind) for kind in ("link", "storage", "virtual")},
}

SWAPPED = ["tensor", "u", "x-coordinate", "t-coordinate", "t0_fields", "dimensions", "boundary_conditions", "train"]
SWAPPED += ["valid", "test", "sims", "data", "0000", "velocity", "particles", "uu", "measured_data", "fields"]


def limit_memory(room: int) -> None:
    """So much more than this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 2**20
    limit = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def told(*arguments: object) -> tuple[int, str]:
    """Exit code and stderr of a command in this process, or the exception that it ends with."""
    out, err = StringIO(), StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main([str(argument) for argument in arguments])
    except BaseException as error:
        return -1, repr(error)
    return code, err.getvalue()


def attack(folder: Path) -> dict[str, tuple[int, str]]:
    """What `hero doctor` says to each file, in a process of little memory."""
    os.chdir(folder)
    for name, make in ATTACKS.items():
        make(folder / name)
    for number, name in enumerate(SWAPPED):
        with h5py.File(folder / f"swapped{number}.h5", "w") as file:
            file.create_group(name).create_group("inside")
        with h5py.File(folder / f"flat{number}.h5", "w") as file:
            file[name] = np.zeros(3, "f4")
    limit_memory(ROOM)
    return {path.name: told("doctor", path, "--layout", "btcx") for path in sorted(folder.iterdir())}


def test_files_of_strangers_fill_nothing(tmp_path: Path) -> None:
    answers = in_fork(attack, tmp_path)
    assert len(answers) == len(ATTACKS) + 2 * len(SWAPPED)
    wrong = {name: answer for name, answer in answers.items() if answer[0] != 2 or answer[1].count("\n") != 1}
    assert wrong == {}
    assert [name for name, answer in answers.items() if "memory is too small" in answer[1]] == []


@pytest.fixture(scope="module")
def own_run(tmp_path_factory: pytest.TempPathFactory, finished: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path_factory.mktemp("attacked") / finished.name))


def oversize(run: Path) -> list[tuple[int, str]]:
    """Records and configurations of impossible size, which hold nothing, in a process of little memory."""
    limit_memory(ROOM)
    answers = []
    for name, command in {"metrics.json": "report", "config.toml": "evaluate"}.items():
        with aside(run / name):
            with (run / name).open("wb") as file:
                file.truncate(2**33)
            answers.append(told(command, run, "--runs", run.parent))
            (run / name).write_bytes(b"[" * 2**20)
            answers.append(told(command, run, "--runs", run.parent))
    with aside(run / "rollout.npz"):
        buffer = BytesIO()
        np.savez(buffer, allow_pickle=False, initial=np.zeros(3))
        forged_zip(run / "rollout.npz", "truth.npy", buffer.getvalue())
        answers.append(told("animate", run, "--runs", run.parent))
    whole = read_arrays(run / "rollout.npz")
    with aside(run / "rollout.npz"):
        write_arrays(run / "rollout.npz", {**whole, "more": np.zeros(2**25, np.float32)})
        answers.append(told("animate", run, "--runs", run.parent))
    state = (run / "last" / "state.pt").read_bytes()
    (run / "last" / "previous.pt").unlink(missing_ok=True)
    with aside(run / "last" / "state.pt"):
        (run / "last" / "state.pt").write_bytes(packed(state))
        answers.append(told("train", "--resume", run, "--runs", run.parent))
        answers.append(told("train", "burgers", "--set", f"train.init={run / 'last' / 'state.pt'}"))
    return answers


def packed(state: bytes) -> bytes:
    """A file of torch.save that is deflated, as torch never does."""
    buffer = BytesIO()
    with zipfile.ZipFile(BytesIO(state)) as whole, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name in whole.namelist():
            file.writestr(name, whole.read(name))
        file.writestr("archive/data/more", bytes(2**20))
    return sealed_archive(buffer)


@contextmanager
def aside(path: Path) -> Iterator[None]:
    """Keep a file elsewhere for a while."""
    kept = path.rename(path.with_name("aside"))
    try:
        yield
    finally:
        kept.replace(path)


def test_oversized_records_are_refused(own_run: Path) -> None:
    for code, err in in_fork(oversize, own_run):
        assert (code, err.count("\n")) == (2, 1), err
        assert "memory is too small" not in err


CLAIMS: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("is damaged", lambda stored: stored["card"]["test"].update(name="/../../../escaped/x")),
    ("more than the memory", lambda stored: stored["card"]["test"].update(trajectories=10**12)),
    ("is damaged", lambda stored: stored["card"].update(history=0)),
    ("is damaged", lambda stored: stored["card"].update(grid=[])),
    ("unknown setting 'backbone'", lambda stored: stored["config"].update(backbone=3)),
    ("another model", lambda stored: stored["config"]["backbone"].update(width=20_000)),
    ("task.resolution", lambda stored: stored["config"]["task"].update(resolution=2**31)),
    ("backbone.depth", lambda stored: stored["config"]["backbone"].update(depth=10**9)),
]


def open_claims(folder: Path, data: Path) -> list[tuple[str, int, str]]:
    """What `hero predict` says to model folders that claim too much, in a process of little memory."""
    limit_memory(ROOM)
    whole, answers = (folder / "config.json").read_text(), []
    for words, change in CLAIMS:
        stored = json.loads(whole)
        change(stored)
        write_json(folder / "config.json", {name: value for name, value in stored.items() if name != FIELD})
        answer = told("predict", folder, "--data", data, "--steps", 2, "--out", folder / "out.npz")
        answers.append((words, *answer))
    return answers


def test_a_model_folder_neither_fills_the_memory_nor_writes_elsewhere(own_run: Path, tmp_path: Path) -> None:
    folder, data = write_folder(own_run, tmp_path / "model"), tmp_path / "a" / "b" / "data"
    for words, code, err in in_fork(open_claims, folder, data):
        assert (code, err.count("\n"), words in err) == (2, 1, True), err
    assert {path.name for path in tmp_path.iterdir()} <= {"model", "a"}
    assert list(tmp_path.rglob("*.h5")) == []


def test_no_name_writes_to_the_terminal(own_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(own_run, tmp_path / "\x1b]0;mine\x07")
    assert main(["runs", "--runs", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "\\x1b]0;mi" in out  # a narrow column cuts the rest
    assert [letter for letter in out + err if not letter.isprintable() and letter != "\n"] == []


def test_a_lock_that_is_a_link_leaves_its_target(own_run: Path, tmp_path: Path) -> None:
    run, target = tmp_path / "runs" / own_run.name, tmp_path / "diary"
    shutil.copytree(own_run, run)
    target.write_text("dear diary")
    (run / ".lock").unlink(missing_ok=True)
    (run / ".lock").symlink_to(target)
    code, err = told("train", "--resume", run, "--runs", run.parent, "--data", tmp_path / "data")
    assert (code, err.count("\n")) == (2, 1), err
    assert target.read_text() == "dear diary"


def obey_permissions() -> None:
    """Give up root's right to read and write whatever the permissions of files say, for this process."""
    if os.geteuid() != 0:
        return
    library = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert library.capget(header, sets) == 0
    for place in range(3):  # effective, permitted, inheritable
        sets[place] &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    assert library.capset(header, sets) == 0


def forbidden(run: Path, data: Path, other: Path) -> dict[str, tuple[int, str]]:
    """What commands say to files without permission."""
    obey_permissions()
    os.chdir(other)
    where, answers = ("--runs", run.parent, "--data", data), {}
    (other / "given.toml").write_text("seed = 1\n")
    np.save(other / "flow.npy", np.zeros((4, 9, 1, 8), "f4"))
    locked = other / "locked"
    locked.mkdir()
    config = Run(run).config
    stored = split_path(config.source.task, config.split("test"), data)  # type: ignore[arg-type]
    commands: dict[Path, tuple[object, ...]] = {
        run / "config.toml": ("evaluate", run),
        run / "model.safetensors": ("evaluate", run),
        run / "last" / "state.pt": ("train", "--resume", run),
        run / "metrics.json": ("report", run),
        run / "errors.npz": ("animate", run),
        run / "rollout.npz": ("animate", run),
        stored: ("evaluate", run),
        other / "given.toml": ("settings", "--config", other / "given.toml"),
        other / "flow.npy": ("doctor", other / "flow.npy"),
        locked: ("describe", "burgers", *options(strategy="push_forward"), "--json", locked / "x.json"),
    }
    for path, command in commands.items():
        mode = path.stat().st_mode
        path.chmod(0)
        placed = where if command[0] not in ("settings",) else ()
        answers[path.name] = told(*command, *placed)
        path.chmod(mode)
    answers["listing"] = told("runs", *where[:2])
    return answers


@pytest.mark.skipif(sys.platform != "linux", reason="root gives up its rights by a call of Linux")
def test_no_permission_is_not_called_damage(own_run: Path, data_dir: Path, tmp_path: Path) -> None:
    answers = in_fork(forbidden, own_run, data_dir, tmp_path)
    assert answers.pop("listing")[0] == 0
    for name, (code, err) in answers.items():
        assert (name, code, err.count("\n")) == (name, 2, 1), err
        assert "permission" in err.lower(), err
        assert "damage" not in err, err
        assert "delete" not in err, err


def modes(umask: int) -> set[int]:
    """The permissions of the files that a run writes."""
    os.umask(umask)
    with tempfile.TemporaryDirectory() as folder:
        train(tiny(train__steps=1), Path(folder) / "runs", Path(folder) / "data")
        write_atomic(Path(folder) / "x", b"")
        return {path.stat().st_mode & 0o777 for path in Path(folder).rglob("*") if path.is_file()}


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_permissions_follow_the_umask(umask: int) -> None:
    assert in_fork(modes, umask) == {0o666 & ~umask}
