"""Write the run folders that later versions must resume and report: `python tests/versions/make.py` before a tag.

For each of RUNS, tests/versions/<version>/ gets the folder of the run stopped halfway, the folder of the same run
finished and evaluated, and their data. `test_versions.py` continues the first and compares it with the second.
"""

from __future__ import annotations

import contextlib
import json
import platform
import signal
import sys
from pathlib import Path
from typing import Any

import torch

import hero
from hero.evaluation.evaluate import evaluate
from hero.runs.config import make_config
from hero.training.journal import Progress
from hero.training.loop import train

TINY: dict[str, Any] = {
    "task.resolution": 16,
    "task.substeps": 1,
    "backbone.width": 2,
    "backbone.modes": 3,
    "backbone.depth": 1,
    "data.train_trajectories": 3,
    "data.train_steps": 8,
    "data.val_trajectories": 2,
    "data.val_steps": 12,
    "data.test_trajectories": 2,
    "data.test_steps": 12,
    "train.batch": 4,
    "train.steps": 12,
    "train.validate_every": 4,
    "train.checkpoint_every": 4,
    "train.compile": "false",
    "train.device": "cpu",
}
RUNS: dict[str, dict[str, Any]] = {
    "paper": {"hero.start": 2, "hero.refresh": 20},  # its lagged operator is in the checkpoint
    "recipe": {},
}


def stop_halfway(progress: Progress) -> None:
    """Ctrl-C, upon which training saves and ends."""
    if progress.step == 5:
        signal.raise_signal(signal.SIGINT)


def machine() -> dict[str, str]:
    """The version of torch and the processor, which decide on the last bits: kernels differ by more than AVX-512."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.processor()
    return {"torch": str(torch.__version__), "cpu": torch.backends.cpu.get_cpu_capability(), "processor": processor}


def main(folder: Path) -> None:
    """Write the folders of this version."""
    torch.set_num_threads(1)
    version = folder / hero.__version__
    for preset, settings in RUNS.items():
        config = make_config(preset, overrides=TINY | settings)
        with contextlib.suppress(KeyboardInterrupt):
            train(config, version / "stopped", version / "data", callbacks=[stop_halfway])
        run = train(config, version / "finished", version / "data")
        found = evaluate(run, version / "data")
        without_machine = {**found.versions, "platform": "left out"}
        found.model_copy(update={"versions": without_machine}).write(run / "metrics.json")
    for unread in (*version.rglob(".lock"), *version.rglob("previous.pt")):
        unread.unlink()
    (version / "machine.json").write_text(json.dumps(machine()) + "\n")
    sizes = [path.stat().st_size for path in version.rglob("*") if path.is_file()]
    print(f"{version}: {len(sizes)} files of {sum(sizes) / 1000:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
