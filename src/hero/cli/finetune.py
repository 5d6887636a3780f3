"""`hero finetune`: train an existing checkpoint along its own rollouts, and compare before and after."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from hero.cli.options import Configuration, Folders, Size, TrustCode, allow_code, argument, option
from hero.cli.runs import measure, show_result
from hero.console import say
from hero.errors import HeroError
from hero.parts import SIZES
from hero.ranks import RANKS

WEIGHT_FILES = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".mdlus")


@dataclass
class FinetuneFolders:
    """Where runs and benchmark data are; `--data` names the data to train on here."""

    panel: ClassVar = "Folders"
    runs: Annotated[Path, option("DIR", "Folder of the runs.", envvar="HERO_RUNS")] = Path("runs")
    data_dir: Annotated[Path, option("DIR", "Folder of the benchmark data.", envvar="HERO_DATA")] = Path("data")
    trust_code: TrustCode = False

    def __post_init__(self) -> None:
        allow_code(self.trust_code)


def finetune(
    checkpoint: Annotated[
        str, argument("CHECKPOINT", "Run, or weights: .safetensors, .pt, .ckpt, .mdlus, or a folder with them.", "run")
    ],
    settings: Configuration,
    where: FinetuneFolders,
    data: Annotated[
        str | None, option("TASK|FILE", "Benchmark or file of trajectories (default: the data of the run).", "task")
    ] = None,
    backbone: Annotated[
        str | None, option("NAME", "One of: NAMES, or package.module:Class (default: as in the run).", "backbone")
    ] = None,
    size: Size = None,
    strategy: Annotated[
        str | None, option("NAME", "One of: NAMES (default: push_forward, as we recommend).", "strategy")
    ] = None,
    unroll: Annotated[
        str | None, option("STAGES", "Steps of a window, or stages LENGTH:UPDATES, as 1:500,2:500,4:1000.")
    ] = None,
    seed: Annotated[int | None, option("N", "Seed of the batch order (default: of the run, or 0).")] = None,
) -> None:
    """Fine-tune a checkpoint along its own rollouts; compare before and after.

    Weights without a run need --backbone and --data, and their module gets states as they are: train.normalise and
    backbone.residual are off unless set.

    By default 2,000 updates at a tenth of the optimizer's learning rate. The same command continues a run that was
    stopped.
    """
    SIZES.check(size)
    from hero.evaluation.evaluate import measure_before
    from hero.runs.finetune import finetune_config
    from hero.runs.folder import Run
    from hero.training import loop

    named: dict[str, Any] = {"task": data, "strategy": strategy, "backbone": backbone, "size": size, "seed": seed}
    if unroll is not None:
        named["train.stages" if ":" in unroll else "train.unroll"] = unroll if ":" in unroll else whole(unroll)
    values = settings.values(**named)
    found = find_checkpoint(checkpoint, Folders(where.runs, where.data_dir))
    config = finetune_config(found, values, settings.preset or settings.implied_preset(values), settings.config)
    say(*settings.recommendation(config, **named), style="dim")
    if RANKS.is_first:
        measure_before(config, where.runs, where.data_dir)
    folder = loop.train(config, where.runs, where.data_dir)
    if RANKS.is_first:
        show_result(Run(folder).metrics or measure(folder, where.data_dir), folder)


def find_checkpoint(name: str, where: Folders) -> Path:
    """The file or folder of weights, or the folder of the run."""
    if Path(name).exists():
        return Path(name)
    if Path(name).suffix in WEIGHT_FILES:
        raise HeroError(f"there is not a file {name}; check the path.")
    return where.find(name)


def whole(text: str) -> int:
    """A number of steps."""
    if not text.isdecimal() or len(text) > 18:
        raise HeroError(f"--unroll {text} is not a number of steps or stages; write it as in 4, or 1:500,4:1500.")
    return int(text)
