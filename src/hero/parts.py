"""The parts that hero brings, by name. Names load nothing, so help and completion are immediate; a part is imported
when it is first taken.

An entry `package.module:NAME` is the object of that name, or its item of the same key if it is a dictionary. More parts
are registered as `STRATEGIES["mine"] = Mine`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hero.config.registry import Registry

BENCHMARKS = """
dispersion burgers kdv kuramoto_sivashinsky anisotropic_diffusion kolmogorov_flow decaying_turbulence swift_hohenberg
unbalanced_advection kdv_difficulty
"""
TASKS: Registry[Any] = Registry("task", dict.fromkeys(BENCHMARKS.split(), "hero.data.tasks.benchmarks:BY_NAME"))
STRATEGIES: Registry[Any] = Registry(
    "strategy",
    {
        "one_step": "hero.strategies.absolute:OneStep",
        "push_forward": "hero.strategies.absolute:PushForward",
        "recurrent": "hero.strategies.absolute:Recurrent",
        "diverted_chain": "hero.strategies.absolute:DivertedChain",
        "hero": "hero.strategies.hero:HeroStrategy",
        "fixed_weight": "hero.strategies.hero:FixedWeightStrategy",
        "refiner": "hero.strategies.refiner:Refiner",
    },
    other="hero.strategies:user_strategy",
)
BACKBONES: Registry[Any] = Registry(
    "backbone",
    dict.fromkeys(("fno", "transolver", "unet"), "hero.models.build:OURS"),
    other="hero.models.build:user_backbone",
)
SIZES: Registry[Any] = Registry(
    "size", dict.fromkeys(("small", "base", "large", "apebench", "paper_count"), "hero.models.settings:SIZES")
)
OF_PAPER = "main complete recipe ablation ood start_step refresh cost rollout_figure landscape"
STUDIES: Registry[Any] = Registry("study", {name: f"hero.paper.studies:{name.upper()}" for name in OF_PAPER.split()})
PUBLICATIONS: Registry[Any] = Registry("publication", {"paper": "hero.paper.numbers:PAPER"})
STUDY_FIGURES: Registry[Any] = Registry(
    "kind of figures",
    {
        "curves": "hero.report.figures.runs:curves",
        "rollout": "hero.report.figures.runs:rollouts",
        "landscape": "hero.paper.landscape:landscape_figures",
    },
)
ANALYSES: Registry[Any] = Registry(
    "analysis",
    {
        "probe": "hero.paper.probe_report:PROBE",
        "landscape": "hero.paper.landscape:LANDSCAPE",
        "anatomy": "hero.report.figures.anatomy:ANATOMY",
    },
)
LOGGERS: Registry[Any] = Registry(
    "logger",
    {
        "tensorboard": "hero.training.loggers:TensorBoard",
        "wandb": "hero.training.loggers:WeightsAndBiases",
        "mlflow": "hero.training.loggers:MLflow",
    },
)
FORMATS: Registry[Any] = Registry("format", dict.fromkeys(("onnx", "torch", "aot"), "hero.deploy.exported:FORMATS"))
PRESETS: Registry[dict[str, Any]] = Registry(
    "preset",
    {
        "paper": {},
        # One set for every task, chosen on validation (docs/method/tuning.md); its numbers are the defaults of these
        # parts.
        "recipe": {
            "strategy": "push_forward",
            "train.optimizer": "soap",
            "backbone.keep": ("auto",),
            "backbone.residual": "auto",
        },
        "quick": {"train.steps": 1000},  # one number: the schedules are shares of the updates unless set
    },
)
RECOMMENDED = "recipe"  # the preset of `hero train TASK` where neither preset nor strategy nor file is named


def key_of(data: str | None) -> str:
    """The setting that data named by one word stand for: a path is a file, a plain word a benchmark."""
    is_file = data is not None and data not in TASKS and (Path(data).exists() or "/" in data or "." in data)
    return "data.path" if is_file else "task.name"
