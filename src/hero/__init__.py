"""Train neural operators whose autoregressive rollouts stay accurate for hundreds of steps, and measure it."""

from hero.backbones import FNO, Transolver, build_backbone
from hero.config import RunConfig, make_config
from hero.errors import HeroError
from hero.evaluate import evaluate
from hero.objective import HeroObjective
from hero.rollout import Context, as_stepper, rollout
from hero.strategies import STRATEGIES, Strategy
from hero.tasks import get_task, load_split
from hero.train import train

__all__ = [
    "FNO",
    "STRATEGIES",
    "Context",
    "HeroError",
    "HeroObjective",
    "RunConfig",
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
