"""Train neural operators whose autoregressive rollouts stay accurate for hundreds of steps, and measure it.

Public names are imported when they are first used, so `import hero` loads neither torch nor matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hero.data import get_task, load_split
    from hero.data.windows import Context
    from hero.errors import HeroError
    from hero.evaluation.evaluate import evaluate
    from hero.method.candidates import CANDIDATES, Cached, Candidate
    from hero.method.diagnostics import DIAGNOSTICS, Diagnostic
    from hero.method.domain import Domain, SpectralNoise
    from hero.method.objective import Every, FailureReference, FixedWeight, Hero, Margin, Ramp
    from hero.method.rollout import as_stepper, rollout
    from hero.models import FNO, Transolver, build_backbone
    from hero.runs.config import RunConfig, make_config
    from hero.strategies import STRATEGIES, Strategy
    from hero.training.loop import train

_HOME = {
    "FNO": "hero.models",
    "STRATEGIES": "hero.strategies",
    "Context": "hero.data.windows",
    "HeroError": "hero.errors",
    "Hero": "hero.method.objective",
    "FailureReference": "hero.method.objective",
    "Margin": "hero.method.objective",
    "FixedWeight": "hero.method.objective",
    "Ramp": "hero.method.objective",
    "Every": "hero.method.objective",
    "CANDIDATES": "hero.method.candidates",
    "Candidate": "hero.method.candidates",
    "Cached": "hero.method.candidates",
    "DIAGNOSTICS": "hero.method.diagnostics",
    "Diagnostic": "hero.method.diagnostics",
    "Domain": "hero.method.domain",
    "SpectralNoise": "hero.method.domain",
    "RunConfig": "hero.runs.config",
    "Strategy": "hero.strategies",
    "Transolver": "hero.models",
    "as_stepper": "hero.method.rollout",
    "build_backbone": "hero.models",
    "evaluate": "hero.evaluation.evaluate",
    "get_task": "hero.data",
    "load_split": "hero.data",
    "make_config": "hero.runs.config",
    "rollout": "hero.method.rollout",
    "train": "hero.training.loop",
}
"""Where each public name lives."""

__all__ = [
    "CANDIDATES",
    "DIAGNOSTICS",
    "FNO",
    "STRATEGIES",
    "Cached",
    "Candidate",
    "Context",
    "Diagnostic",
    "Domain",
    "Every",
    "FailureReference",
    "FixedWeight",
    "Hero",
    "HeroError",
    "Margin",
    "Ramp",
    "RunConfig",
    "SpectralNoise",
    "Strategy",
    "Transolver",
    "as_stepper",
    "build_backbone",
    "evaluate",
    "get_task",
    "load_split",
    "make_config",
    "rollout",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'hero' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
