"""Display names of parts, which are the parts' own, and their colours, which follow their place in the registry."""

from __future__ import annotations

from hero.strategies import STRATEGIES

_BACKBONES = {"fno": "FNO", "transolver": "Transolver"}
_METHODS = {
    "one_step": ("one-step", "one-step training"),
    "push_forward": ("push-forward", "push-forward training"),
    "refiner": ("PDE-Refiner", "PDE-Refiner"),
    "recurrent": ("recurrent", "recurrent training"),
    "diverted_chain": ("diverted chain", "a diverted chain"),
    "history_replay": ("history replay", "history replay"),
    "hero": ("HERO", "HERO"),
    "fixed_weight": ("fixed weight", "a fixed-weight control of HERO"),
}


def method_title(strategy: str) -> str:
    """The display name of a strategy; an unknown one is called as it is."""
    found = getattr(STRATEGIES.get(strategy), "title", "")
    return found or _METHODS.get(strategy, (strategy,))[0]


def method_phrase(strategy: str) -> str:
    """The strategy in a sentence: "trained with ..."."""
    found = getattr(STRATEGIES.get(strategy), "phrase", "")
    return found or _METHODS.get(strategy, (strategy, strategy))[1]


def backbone_title(name: str) -> str:
    """The display name of a backbone; of a user's module the name of its class."""
    return _BACKBONES.get(name, name.rpartition(":")[2])
