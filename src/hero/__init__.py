"""Train neural operators whose autoregressive rollouts stay accurate for hundreds of steps, and measure it.

Public names are imported when they are first used, so `import hero` loads neither torch nor matplotlib.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names for type checkers
    from hero.api import (
        compare as compare,
        evaluate as evaluate,
        load as load,
        predict as predict,
        train as train,
    )
    from hero.data import get_task as get_task, load_split as load_split
    from hero.data.dataset import Windows as Windows
    from hero.data.windows import Context as Context
    from hero.errors import HeroError as HeroError
    from hero.deploy.model_folder import Operator as Operator
    from hero.method.candidates import (
        CANDIDATES as CANDIDATES,
        Cached as Cached,
        Candidate as Candidate,
        FailureReference as FailureReference,
    )
    from hero.method.diagnostics import DIAGNOSTICS as DIAGNOSTICS, Diagnostic as Diagnostic
    from hero.method.domain import (
        Domain as Domain,
        SpectralNoise as SpectralNoise,
        cosine_modes as cosine_modes,
        fourier_modes as fourier_modes,
        graph_modes as graph_modes,
    )
    from hero.method.losses import LOSSES as LOSSES, Balanced as Balanced
    from hero.method.objective import (
        Every as Every,
        FixedWeight as FixedWeight,
        Hero as Hero,
        Margin as Margin,
        Ramp as Ramp,
    )
    from hero.method.rollout import as_stepper as as_stepper, rollout as rollout, unroll as unroll
    from hero.models import FNO as FNO, Transolver as Transolver, build_backbone as build_backbone
    from hero.optimizers import OPTIMIZERS as OPTIMIZERS, SOAP as SOAP
    from hero.runs.config import RunConfig as RunConfig, make_config as make_config
    from hero.strategies import STRATEGIES as STRATEGIES, Strategy as Strategy
    from hero.results import Comparison as Comparison, Evaluation as Evaluation, Result as Result
    from hero.training.journal import Progress as Progress

_PUBLIC = {
    "hero.api": ("compare", "evaluate", "load", "predict", "train"),
    "hero.data": ("get_task", "load_split"),
    "hero.data.dataset": ("Windows",),
    "hero.data.windows": ("Context",),
    "hero.errors": ("HeroError",),
    "hero.deploy.model_folder": ("Operator",),
    "hero.method.candidates": ("CANDIDATES", "Cached", "Candidate", "FailureReference"),
    "hero.method.diagnostics": ("DIAGNOSTICS", "Diagnostic"),
    "hero.method.domain": ("Domain", "SpectralNoise", "cosine_modes", "fourier_modes", "graph_modes"),
    "hero.method.losses": ("LOSSES", "Balanced"),
    "hero.method.objective": ("Every", "FixedWeight", "Hero", "Margin", "Ramp"),
    "hero.method.rollout": ("as_stepper", "rollout", "unroll"),
    "hero.models": ("FNO", "Transolver", "build_backbone"),
    "hero.optimizers": ("OPTIMIZERS", "SOAP"),
    "hero.runs.config": ("RunConfig", "make_config"),
    "hero.strategies": ("STRATEGIES", "Strategy"),
    "hero.results": ("Comparison", "Evaluation", "Result"),
    "hero.training.journal": ("Progress",),
}
"""Public names by module."""
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.metadata.version("hero-operators")
    if name not in _HOME:
        raise AttributeError(f"module 'hero' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
