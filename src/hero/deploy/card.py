"""What is known of a trained operator: the card in exported files, config.json and README.md of model folders."""

from __future__ import annotations

import base64
import copy
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import jinja2
import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from hero.config.given import PREFIX
from hero.config.parse import dotted
from hero.data import Split
from hero.data.trajectories import Context, states_of
from hero.errors import HeroError
from hero.method.domain import geometry_of
from hero.method.domain.transform import axis_weights
from hero.method.metrics import metric_named, scoring_of
from hero.method.norm import Norm
from hero.records import Record
from hero.runs.folder import Run, versions
from hero.strategies.settings import importance_of

UNLICENSED = "unknown"

Count = Annotated[int, Field(ge=1)]


class ModelCard(Record):
    """The origin and the shapes of an exported operator."""

    run: str
    step: int  # update of the checkpoint, the best one by validation
    task: str
    settings: dict[str, Any]  # coefficients and numerics of the task
    test: Split  # the test split, from which predictions start if no other states are given
    grid: Annotated[tuple[Count, ...], Field(min_length=1, max_length=3)]
    dt: float
    history: Count
    channels: Count
    bundle: Count  # steps per call
    batch: int = 0  # states per call; 0: any number
    channel_names: tuple[str, ...] = ()
    conditioning: tuple[str, ...] = ()  # the channels of μ
    forcing: tuple[str, ...] = ()  # what depends on time and is known in advance
    norm: Literal["joint", "channels"] = "joint"  # how its errors are measured
    channel_weights: tuple[float, ...] = ()  # weight of each channel in the score; empty: all 1
    quadrature: tuple[str, ...] = ()  # weights along each axis, float32 in base64, empty if equal; (): all equal
    mask: str = ""  # true where there is a value, (channel, *grid), as bits in base64; empty: everywhere
    band: tuple[tuple[float, float], ...] = ()  # least and largest value of each channel in training; empty: not known
    processor: str = ""  # the machine that a compiled file runs on; empty: any
    hero: str  # version of this library

    @classmethod
    def of(cls, run: Run) -> ModelCard:
        config, source = run.config, run.config.source
        axes = axis_weights(geometry_of(source).weights, source.space)
        weights = tuple("" if axis is None else _as_text(axis.numpy().astype("<f4")) for axis in axes)
        return cls(
            run=run.path.resolve().name,
            step=run.best_step,
            task=source.name,
            settings=source.settings(),
            test=config.split("test"),
            grid=source.space,
            dt=source.dt,
            history=config.train.history,
            channels=source.channels,
            bundle=config.train.bundle,
            channel_names=source.channel_names,
            conditioning=source.conditioning,
            forcing=source.forcing,
            norm=config.train.norm,
            channel_weights=importance_of(config.train.channel_weights, source.channel_names),
            quadrature=weights if any(weights) else (),
            mask=_as_text(np.packbits(run.mask.cpu().numpy())) if source.masked else "",
            band=run.band,
            hero=versions()["hero"],
        )

    def measured(self) -> Norm:
        """The norm by which predictions are scored: without statistics of training data."""
        norm = Norm(by_channel=self.norm == "channels", importance=self.channel_weights)
        shape, weights = (self.channels, *self.grid), np.ones(())
        try:
            for text, points in zip(self.quadrature, self.grid, strict=bool(self.quadrature)):
                axis = np.frombuffer(base64.b64decode(text), "<f4").astype(np.float64) if text else np.ones(points)
                weights = weights[..., None] * (axis.reshape(points) / axis.sum())
            if self.mask:
                bits = np.unpackbits(np.frombuffer(base64.b64decode(self.mask), np.uint8), count=math.prod(shape))
                norm.mask = torch.from_numpy(bits.reshape(shape)).bool()
        except ValueError:
            raise HeroError(
                f"the mask or the quadrature of run {self.run} does not fit its grid; export the run again."
            ) from None
        norm.weights = torch.from_numpy(weights) if self.quadrature else None
        return norm

    @property
    def given_shape(self) -> str:
        """The shape of the states that a rollout starts from, in words."""
        history = (self.history,) if self.history > 1 else ()
        return f"(batch, {', '.join(map(str, (*history, self.channels, *self.grid)))})"

    def has_states(self, shape: Sequence[int]) -> bool:
        """Whether states of that shape are (batch, H, channel, *space), of which H may be left out where it is 1."""
        state = (self.channels, *self.grid)
        fitting = [(self.history, *state), state] if self.history == 1 else [(self.history, *state)]
        return len(shape) > 0 and shape[0] > 0 and tuple(shape[1:]) in fitting

    def context(self, states: Any, mu: Any = None, forcing: Any = None) -> Context:
        """States and what is known beside them as a context of this operator; HeroError if shapes do not fit."""
        tensor = states_of(states, "(batch, channel, *space)", 2)
        if not self.has_states(tensor.shape):
            shape = tuple(tensor.shape)
            raise HeroError(f"states of shape {shape} do not fit run {self.run}; use {self.given_shape}.")
        rows = tensor.float().reshape(-1, self.history, self.channels, *self.grid)
        return Context(rows, self.known("mu", mu, len(rows)), self.known("forcing", forcing, len(rows)))

    def known(self, name: Literal["mu", "forcing"], value: Any, rows: int) -> Tensor | None:
        """μ (rows, p) or the forcing (rows, steps, q), either also with *space, as float32; None where it takes none.

        HeroError if the shape does not fit.
        """
        channels, leading = (self.conditioning, ()) if name == "mu" else (self.forcing, ("steps",))
        if not channels:
            return None
        found, axes = None if value is None else torch.as_tensor(value), 1 + len(leading)
        if found is None or found.dim() <= axes or (len(found), found.shape[axes]) != (rows, len(channels)):
            sizes = ", ".join((str(rows), *leading, str(len(channels))))
            raise HeroError(f"run {self.run} needs `{name}` of shape ({sizes}), which holds {', '.join(channels)}.")
        return found.float()

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels of each input of an exported file: the states, and what is known beside them."""
        known = len(self.conditioning) + len(self.forcing)
        return (self.history * self.channels, *([known] if known else []))

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input: (H*channels + p + q, *space)."""
        return (sum(self.widths), *self.grid)

    def zeros(self, batch: int) -> tuple[Tensor, ...]:
        """Inputs of an exported file."""
        return tuple(torch.zeros(batch, width, *self.grid) for width in self.widths)

    def parts(self, context: Context) -> tuple[Tensor, ...]:
        """The inputs of an exported file for a context."""
        inputs = context.inputs().detach().cpu().float()
        return tuple(part.contiguous() for part in inputs.split(self.widths, dim=1))


def _as_text(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()


class FolderConfig(Record):
    """config.json: all that is known of an operator in addition to its weights."""

    remedy: ClassVar[str] = "write the folder again with `hero export RUN --format folder`."

    card: ModelCard
    config: dict[str, Any]
    test: dict[str, float] = Field(default_factory=dict)  # metrics of the run; empty before an evaluation
    trained: dict[str, Any] = Field(default_factory=dict)  # updates, seconds and device; the number of parameters
    versions: dict[str, str] = Field(default_factory=dict)  # software that trained it
    license: str = UNLICENSED

    @property
    def backbone(self) -> str:
        """The name of the backbone: of a class its own, without the module or the hash in a given one's name."""
        name = str(self.flat().get("backbone.name", "fno"))
        return name.rpartition(":")[2].rpartition("-")[0] if name.startswith(PREFIX) else name.rpartition(":")[2]

    @classmethod
    def of(cls, run: Run) -> FolderConfig:
        config, card, metrics = run.config.to_dict(), ModelCard.of(run), run.stored_metrics
        return cls(
            card=card,
            config=config,
            test=metrics.test if metrics else {},
            trained={**metrics.training.model_dump(), "parameters": metrics.parameters} if metrics else {},
            versions=metrics.versions if metrics else versions(),
        )

    def without_paths(self) -> FolderConfig:
        """Settings with names of files in the place of their paths on the machine of the training."""
        config, settings = copy.deepcopy(self.config), dict(self.card.settings)
        for values, key in ((config["data"], "path"), (config["train"], "init"), (settings, "path")):
            if key in values:
                values[key] = Path(values[key]).name
        return self.model_copy(update={"config": config, "card": self.card.model_copy(update={"settings": settings})})

    def flat(self) -> dict[str, Any]:
        """The configuration by dotted keys, as it was stored."""
        return dotted(self.config)


def card_text(about: FolderConfig) -> str:
    """The card: a YAML header, then use, data, test numbers, provenance and limits."""
    scoring = scoring_of(about.test)

    def meaning(name: str) -> str:
        try:
            return metric_named(name, scoring).definition
        except HeroError:  # a metric that somebody added
            return "added by the author"

    markdown = jinja2.Environment(
        loader=jinja2.PackageLoader("hero.deploy", "."), trim_blocks=True, keep_trailing_newline=True
    )
    markdown.filters |= {"json": json.dumps, "cell": lambda text: text.replace("|", r"\|")}  # JSON is YAML
    markdown.tests["infinite"] = math.isinf
    strategy = str(about.config["strategy"]).rpartition(":")[2]
    facts = {"about": about, "card": about.card, "data": about.config["data"], "strategy": strategy}
    return markdown.get_template("model_card.md").render(**facts, meaning=meaning)
