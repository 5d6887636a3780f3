"""README.md of a model folder: the model card, in the form that model hubs read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hero.data import SPLITS
from hero.errors import HeroError
from hero.method.metrics import metric_named, scoring_of

if TYPE_CHECKING:
    from hero.deploy.model_folder import About

TAGS = ("neural-operator", "pde", "autoregressive-rollout", "pytorch")


def card_text(about: About) -> str:
    """The card: a YAML header, then use, data, test numbers, provenance and limits."""
    card = about.card
    backbone, strategy = about.backbone, str(about.config["strategy"]).rpartition(":")[2]
    header = {"license": about.license, "library_name": "hero", "tags": [*TAGS, backbone, strategy]}
    grid = " × ".join(map(str, card.grid))
    parts = [
        "\n".join(["---", *(f"{name}: {json.dumps(value)}" for name, value in header.items()), "---"]),  # JSON is YAML
        f"# {card.task}: {backbone} trained with {strategy}",
        f"A neural operator that maps a state of {card.task} to the state {card.dt:g} later, in physical units. "
        f"Channels: {', '.join(card.channel_names)}.",
        "## Load",
        _block(
            "import hero",
            'operator = hero.load("PATH OF THIS FOLDER")',
            f"trajectory = operator.rollout(states, 100)  # states: ({_sizes(about)})",
        ),
        *_code_note(about),
        "## Data",
        _table(("fact", "value"), _data(about)),
        "## Test numbers",
        _table(("metric", "value", "meaning"), _numbers(about)) if about.test else "Not evaluated yet.",
        "## Provenance",
        _table(("fact", "value"), _provenance(about)),
        "## Limits",
        f"Trained for the grid {grid}, the time step {card.dt:g} and states like the training data; other grids are "
        f"refused. Errors were measured over {_measured(about)} and say nothing of longer rollouts or other "
        "coefficients. Check a rollout against your solver before you rely on it.",
    ]
    return "\n\n".join(parts) + "\n"


def _sizes(about: About) -> str:
    """The shape of the states that a rollout starts from."""
    card = about.card
    history = (f"{card.history} states",) if card.history > 1 else ()
    return ", ".join(("batch", *history, *map(str, (card.channels, *card.grid))))


def _code_note(about: About) -> list[str]:
    """How to load it where the backbone is somebody's code."""
    name = about.config["backbone"]["name"]
    if ":" not in name:
        return []
    return [f"The backbone `{name}` is not a part of hero: load with `hero.load(path, model={about.backbone}(...))`."]


def _data(about: About) -> Iterable[tuple[str, str]]:
    card, data = about.card, about.config["data"]
    yield "source", str(data.get("path") or f"benchmark {card.task}, solved by hero")
    yield "fingerprint", str(data.get("fingerprint") or "the settings below decide every number")
    yield "grid", " × ".join(map(str, card.grid))
    yield "time step", f"{card.dt:g}"
    if card.conditioning:
        yield "conditioning", ", ".join(card.conditioning)
    for split in SPLITS:
        yield f"{split}, trajectories × steps", f"{data[f'{split}_trajectories']} × {data[f'{split}_steps']}"
    settings = {} if "fingerprint" in data else card.settings
    yield from ((name, json.dumps(value)) for name, value in settings.items())


def _numbers(about: About) -> Iterable[tuple[str, str, str]]:
    scoring = scoring_of(about.test)
    for name, value in about.test.items():
        try:
            meaning = metric_named(name, scoring).definition
        except HeroError:  # a metric that somebody added
            meaning = "added by the author"
        yield name, f"{value:.4g}" if math.isfinite(value) else "diverged", meaning


def _provenance(about: About) -> Iterable[tuple[str, str]]:
    card, trained = about.card, about.trained
    yield "run", card.run
    yield "weights after update", f"{card.step} (best by validation)"
    if trained:
        yield "parameters", f"{trained['parameters']:,}"
        yield "training", f"{trained['steps']} updates, {trained['seconds']:.0f} s on {trained['device']}"
    yield from about.versions.items()


def _measured(about: About) -> str:
    steps = about.config["data"]["test_steps"] + 1 - about.card.history
    return f"{steps} steps of {about.config['data']['test_trajectories']} test rollouts"


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [headings, ("---",) * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _block(*lines: str) -> str:
    return "\n".join(["```python", *lines, "```"])
