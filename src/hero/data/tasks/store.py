"""Trajectories on disk: one HDF5 file per task, settings and split, solved once and then read.

The file name carries a hash of everything that determines the numbers, so that a changed setting finds no stale file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import h5py
import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from hero.config import Settings, setting
from hero.config.registry import Registry
from hero.console import progress_bar, say
from hero.data.files.handles import memory
from hero.data.source import Source
from hero.data.tasks.solver import SOLVER_NAME, SOLVER_VERSION, frames
from hero.data.tasks.task import Task
from hero.data.trajectories import Trajectories
from hero.errors import DISTRIBUTION, HeroError
from hero.files import FIELD, UNSEALED, crash_point, is_whole, lock, open_lock, replacing, reserve, seal
from hero.parts import TASKS as ALL_TASKS

HEADER_BYTES = 2**16  # more than everything in a file but the trajectories
CHUNK_POINTS = 2**15  # grid points stepped at once by a CPU thread: its working set then stays in cache
TASKS: Registry[Task] = ALL_TASKS  # every task with its default settings
SPLITS = ("train", "val", "test")
SCORED = ("val", "test")  # the splits that rollouts are scored on


@dataclass(frozen=True)
class Split:
    """A part of a task's data: `trajectories` runs of `steps` + 1 snapshots from initial states drawn with `seed`.

    The bounds are checked where a stored card is read; the name becomes part of the name of a file.
    """

    name: Annotated[str, Field(pattern="^(train|val|test)$")]
    trajectories: Annotated[int, Field(ge=1)]
    steps: Annotated[int, Field(ge=1)]
    seed: Annotated[int, Field(ge=0, lt=2**63)]


class DataSettings(Settings):
    """Dataset sizes and seeds."""

    train_trajectories: int = setting(50, "Training trajectories.", ge=1)
    train_steps: int = setting(50, "Steps of each training trajectory (one state more).", ge=1)
    train_seed: int = setting(0, "Seed of the training initial states.", ge=0, stated=False)
    val_trajectories: int = setting(30, "Validation trajectories, used to select the checkpoint.", ge=1, stated=False)
    val_steps: int = setting(200, "Steps of each validation trajectory; GM100 reads 100.", ge=1, stated=False)
    val_seed: int = setting(1, "Seed of the validation initial states.", ge=0, stated=False)
    test_trajectories: int = setting(30, "Test trajectories, never used for selection.", ge=1)
    test_steps: int = setting(200, "Steps of each test trajectory; GM100 reads 100.", ge=1)
    test_seed: int = setting(773, "Seed of the test initial states.", ge=0, stated=False)

    def split(self, name: str) -> Split:
        """The size and seed of the split `train`, `val` or `test`."""
        return Split(name, *(getattr(self, f"{name}_{part}") for part in ("trajectories", "steps", "seed")))


def get_task(name: str, overrides: Mapping[str, object] | None = None) -> Task:
    """The task of that name, with some of its settings changed."""
    return TASKS[name].with_settings(overrides or {})


def load_trajectories(
    source: Source, split: Split, directory: Path, device: torch.device | str = "cpu"
) -> Trajectories:
    """A split of any source: read from its files, or solved on `device` and stored in `directory` if it is missing."""
    if source.files is not None:
        return source.files.load(split.name)
    assert source.task is not None
    mu = source.task.coefficients(split.trajectories, split.seed)
    return Trajectories(load_split(source.task, split, directory, device), None if mu is None else mu.float())


def split_path(task: Task, split: Split, directory: Path) -> Path:
    """<directory>/<task>-<split>-<hash>.h5."""
    content = {"task": task.name, "settings": task.settings(), "split": asdict(split), "solver": SOLVER_VERSION}
    if task.channels > 1:  # names of files are older than tasks with several
        content["channels"] = task.channels
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
    return Path(directory) / f"{task.name}-{split.name}-{digest}.h5"


def load_split(task: Task, split: Split, directory: Path, device: torch.device | str = "cpu") -> Tensor:
    """(trajectories, steps+1, channels, *space), float32, on the CPU; solved on `device` and stored if missing."""
    path = split_path(task, split, directory)
    remove_leftovers(path.parent)
    if path.exists():
        return _read(path, task, split)
    size = 4 * split.trajectories * (split.steps + 1) * task.channels * math.prod(task.space)
    if size > memory():
        raise HeroError(
            f"split {split.name} of {task.name} has {size / 1e9:,.0f} GB, more than the memory; lower "
            f"data.{split.name}_trajectories."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            if path.exists():  # another process solved it while we waited
                return _read(path, task, split)
            data = generate(task, split, device)
            _write(path, data, task, split)
    except OSError as error:
        raise HeroError(f"cannot store {path} ({error.strerror or error}); choose another data folder.") from error
    return data


def generate(task: Task, split: Split, device: torch.device | str = "cpu") -> Tensor:
    """Solve the split: (trajectories, steps+1, channels, *space), float32."""
    initial = task.initial_states(split.trajectories, split.seed)
    data = torch.empty(split.trajectories, split.steps + 1, *initial.shape[1:])
    on_cpu = torch.device(device).type == "cpu"
    chunk = max(1, CHUNK_POINTS // task.resolution**task.dims) if on_cpu else split.trajectories
    shared = None if task.ranges else task.stepper(device)
    parts = [
        (member, rows[start : start + chunk])
        for member, rows in members(task, split)
        for start in range(0, len(rows), chunk)
    ]
    stopped = threading.Event()

    def run(member: Task, part: list[int], advance: Callable[[int], None]) -> None:
        stepper = shared or member.stepper(device)
        for i, u in enumerate(frames(stepper, initial[part].to(device), split.steps, task.warmup)):
            if stopped.is_set():
                return
            snapshot = u.to("cpu", torch.float32)  # rounded at once, to bound the memory
            if not bool(torch.isfinite(snapshot).all()):
                step = f"step {i - task.warmup}" if i >= task.warmup else f"warm-up step {i} of {task.warmup}"
                raise HeroError(
                    f"the solution of task {task.name!r} (split {split.name!r}) left the finite range at {step}; raise "
                    f"task.substeps (now {task.substeps}), or check the coefficients if you changed them."
                )
            if i >= task.warmup:
                data[part, i - task.warmup] = snapshot
            if i > 0:
                advance(1)

    total = len(parts) * (task.warmup + split.steps)
    with progress_bar(f"{task.title}, {split.name}", total) as advance, _worker_threads() as pool:
        try:  # Ctrl-C may come while jobs are handed out; the pool waits for all that it has
            jobs = [pool.submit(torch.no_grad()(run), member, part, advance) for member, part in parts]
            for job in as_completed(jobs):
                job.result()
        finally:
            stopped.set()
    return data


def members(task: Task, split: Split) -> list[tuple[Task, list[int]]]:
    """The task without ranges and its trajectories; with ranges, one for each set of coefficients."""
    mu = task.coefficients(split.trajectories, split.seed)
    if mu is None:
        return [(task, list(range(split.trajectories)))]
    groups: dict[tuple[float, ...], list[int]] = {}
    for i, row in enumerate(mu.tolist()):
        groups.setdefault(tuple(row), []).append(i)
    return [(task.with_settings(dict(zip(task.ranges, row, strict=True))), rows) for row, rows in groups.items()]


@contextlib.contextmanager
def _worker_threads() -> Iterator[ThreadPoolExecutor]:
    """As many threads as torch may use, each with single-threaded operations: trajectories side by side scale.

    Threads inside of these short operations do not; on a busy machine they measured up to a hundred times slower.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            yield pool
    finally:
        torch.set_num_threads(threads)


def data_summary(path: Path) -> dict[str, Any]:
    """The provenance and shape of a stored split."""
    with _opened(path) as file:
        attributes = {name: v.item() if isinstance(v, np.generic) else v for name, v in file.attrs.items()}
        attributes["settings"] = json.loads(attributes["settings"])
        attributes.pop(FIELD, None)
        return {"file": Path(path).name, "shape": list(file["u"].shape), **attributes}


def _write(path: Path, data: Tensor, task: Task, split: Split) -> None:
    u = data.contiguous().numpy()
    provenance: dict[str, str | int] = {
        "task": task.name,
        "equation": task.equation,
        "settings": json.dumps(task.settings()),
        "split": split.name,
        "trajectories": split.trajectories,
        "steps": split.steps,
        "seed": split.seed,
        "layout": "trajectory, time, channel, space",
        "solver": SOLVER_NAME,
        "solver_version": SOLVER_VERSION,
        "hero_version": version(DISTRIBUTION),
        "torch_version": str(torch.__version__),
        "numpy_version": np.__version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    with replacing(path) as temporary:
        reserve(temporary, HEADER_BYTES + u.nbytes)  # where a disk fills up under HDF5, the process dies
        crash_point(f"half-hdf5 {path.name}", lambda: temporary.write_bytes(u.tobytes()[: u.nbytes // 2]))
        with h5py.File(temporary, "w") as file:
            file["u"] = u
            mu = task.coefficients(split.trajectories, split.seed)
            if mu is not None:
                file.create_dataset("mu", data=mu.numpy()).attrs["names"] = list(task.ranges)
            file.attrs.update(provenance | {FIELD: UNSEALED})
        with temporary.open("r+b") as raw:
            seal(raw)


def _read(path: Path, task: Task, split: Split) -> Tensor:
    expected = (split.trajectories, split.steps + 1, task.channels, *(task.resolution,) * task.dims)
    with _opened(path) as file:
        u = file["u"]
        if u.shape != expected or u.dtype != np.float32:
            raise HeroError(f"{path} holds {u.dtype} {u.shape}, not float32 {expected}; delete it and repeat.")
        return torch.from_numpy(u[...])


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    if not Path(path).is_file():
        raise HeroError(f"there is no data file {path}; create it with `hero data make`.")
    try:
        if not is_whole(path):
            raise ValueError("its checksum differs")
        with h5py.File(path, "r") as file:
            yield file
    except (AttributeError, OSError, RuntimeError, KeyError, ValueError) as error:
        raise HeroError(f"{path} is damaged or not written by hero; delete it and repeat the command.") from error


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one process at a time make `path`. Where locks do not exist, both make it and the last rename wins."""
    name = path.with_suffix(".lock")
    with open_lock(name) as file:
        if not lock(file, wait=False):
            say(f"waiting for {path}, which another process is making", style="dim")
            lock(file, wait=True)
        try:
            yield
        finally:
            name.unlink(missing_ok=True)


def remove_leftovers(directory: Path) -> None:
    """Remove the temporary files of processes that were killed: those whose lock nobody holds."""
    for leftover in directory.glob(".*.h5.*.tmp"):
        name = leftover.name[1:].rpartition(".h5.")[0]
        with contextlib.suppress(OSError), open_lock(directory / f"{name}.lock") as file:  # a folder only for reading
            if lock(file, wait=False):
                leftover.unlink(missing_ok=True)
                Path(file.name).unlink(missing_ok=True)
