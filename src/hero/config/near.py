"""Settings that a wrong name may mean: of another section, in the words of other libraries, or with a slip in it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

OTHER_WORDS = {
    "batch_size": "train.batch",
    "cuda": "train.device",
    "early_stopping": "train.patience",
    "epochs": "train.steps",
    "gpu": "train.device",
    "grad_clip": "train.clip",
    "gradient_clip": "train.clip",
    "hidden_channels": "backbone.width",
    "iterations": "train.steps",
    "learning_rate": "train.lr",
    "model": "backbone.name",
    "n_modes": "backbone.modes",
    "random_seed": "seed",
    "unroll_steps": "train.unroll",
    "wd": "train.weight_decay",
}
"""What other libraries call our settings."""
SHOWN = 3
"""More than so many would not be a hint."""


def near_settings(key: str, known: Iterable[str]) -> list[str]:
    """The settings of `known` that `key` is likely to mean, the best first; none where it is like no other."""
    names = {one: last_word(one) for one in known}
    word = last_word(key)
    if near := difflib.get_close_matches(key.lower(), names, n=1, cutoff=0.9):
        return near
    if word not in names.values():
        other = difflib.get_close_matches(word, OTHER_WORDS, n=1, cutoff=0.85)
        if other and OTHER_WORDS[other[0]] in names:
            return [OTHER_WORDS[other[0]]]
        word = next(iter(difflib.get_close_matches(word, names.values(), n=1, cutoff=0.75)), word)
    same = [one for one in names if names[one] == word]  # in another section, or without one
    return sorted(same, key=lambda one: not one.startswith("train."))[:SHOWN]


def last_word(key: str) -> str:
    """The name without its section, in small letters, with _ for - and with American endings."""
    name = key.lower().replace("-", "_").rpartition(".")[2]
    return re.sub(r"is(e|ed|er|ation)$", r"iz\1", name)
