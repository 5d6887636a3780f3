"""The configuration of one run: all sections together, and the id that names the run. Frozen, checked, data only.

A section belongs to the part that reads it: `task` and `data` to the data, `backbone` to the chosen backbone, `train`
to the training protocol, and one section to the chosen strategy. A stored configuration holds every number.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import tomli_w
import torch
from torch import Tensor, nn

from hero.config import Facts, Settings, parse_override, read_toml
from hero.config.parse import dotted
from hero.config.registry import trust
from hero.config.settings import flagged
from hero.data import FOUND, SCORED, DataSettings, FileSettings, Source, Split, get_task
from hero.data.files.settings import fingerprint
from hero.data.formats import open_recording
from hero.data.invariants import parse_keep
from hero.data.windows import Batches, Trajectories
from hero.errors import HeroError
from hero.files import UNSEALED, is_whole, reading, sealed
from hero.method.losses import LOSSES
from hero.method.measures import HORIZON
from hero.method.metrics import Scoring
from hero.models import BACKBONES, BackboneSettings, build_backbone
from hero.models.wrappers import Kept
from hero.optimizers import OptimizerSettings, get_optimizer
from hero.parts import PRESETS, RECOMMENDED
from hero.runs.checkpoint import other_model, put_weights, read_weights
from hero.runs.sections import CODE, TopSettings, by_section, check_names, check_unread
from hero.runs.start import found_start
from hero.strategies import STRATEGIES, Compiler, Setup, Strategy, TrainSettings
from hero.strategies.settings import staged

SIZED = tuple(
    f"backbone.{name}" for name in ("width", "depth", "modes", "lifting", "projection", "coordinates", "spectral_bias")
)
"""Settings that follow from backbone.size unless they are set."""
RETIRED = ("train.on_divergence", "refiner.form=pdearena", "refiner.difference=True", "loss.basis")
"""Settings of version 0.2 that decide nothing any more, or only had one value left."""
OF_RUN = "# run "
"""Before the id and the checksum in the first line of a stored configuration."""


@dataclass(frozen=True)
class TaskSettings:
    """The PDE: its name, and its coefficients, extent, resolution, dt and so on."""

    name: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides the outcome of a run."""

    strategy: str
    seed: int
    task: TaskSettings
    data: DataSettings | FileSettings
    backbone: BackboneSettings
    train: TrainSettings
    method: Settings
    """The section of the strategy."""
    loss: Settings
    optimizer: OptimizerSettings
    source: Source = field(compare=False, repr=False)
    """What `task` and `data` say of the data."""
    facts: Facts = field(default_factory=Facts)
    """The values that defaults were derived from."""

    def split(self, name: str) -> Split:
        """The size and seed of the split `train`, `val` or `test`."""
        return self.data.split(name)

    @property
    def horizon(self) -> int:
        """Steps that rollouts are scored over: 100, or as many as validation and test data have after the history."""
        return min(HORIZON, *(self.split(name).steps + 1 - self.train.history for name in SCORED))

    @property
    def scoring(self) -> Scoring:
        return Scoring(self.horizon, "vrmse" if self.train.norm == "channels" else "nrmse")

    def windows(self, data: Trajectories | Tensor) -> Batches:
        first_only, train = self.untrained_strategy.first_windows_only, self.train
        return Batches(data, train.unroll, train.batch, self.seed, train.history, first_only=first_only)

    def make_strategy(self, compile_with: Compiler | None = None) -> Strategy[Any]:
        """A strategy to train with, which holds state; `compile_with` compiles its functions."""
        backbone, source = self.backbone, self.source
        setup = Setup(self.method, self.train, self.seed, backbone.predicts_change, source, self.loss, backbone.reach)
        return STRATEGIES[self.strategy](setup, compile_with)

    @cached_property
    def untrained_strategy(self) -> Strategy[Any]:
        """The strategy to ask: which windows and operator it needs, how a trained model steps. It never trains."""
        return self.make_strategy()

    def build_operator(self, most: int | None = None) -> nn.Module:
        """G_θ, untrained: the backbone with the channels that the strategy needs, at most `most` numbers, wrapped."""
        source, strategy = self.source, self.untrained_strategy
        space = source.space
        operator = strategy.operator(
            lambda inputs, outputs: build_backbone(
                self.backbone, space, inputs, outputs, self.seed, source.periodic, source.cloud, most
            ),
            source.channels,
        )
        rules = parse_keep(self.backbone.kept, source.channel_names) if self.backbone.is_found else []
        if not rules:
            return operator
        weighted = source.masked or strategy.norm.weights is not None
        weights = torch.ones(source.channels, *space) if weighted else None
        return Kept(operator, rules, source.channels, self.train.history, weights)

    def trained_operator(self, weights: Path) -> nn.Module:
        """G_θ with the weights of a file, which bound its size: a stranger's settings may claim any."""
        stored, _ = read_weights(weights)
        try:
            model = self.build_operator(sum(tensor.numel() for tensor in stored.values()))
        except OverflowError:
            raise other_model(weights) from None
        put_weights(stored, model, weights)
        return model

    @property
    def sections(self) -> dict[str, Settings]:
        """The sections by name, but for the task's."""
        return {
            "data": self.data,
            "backbone": self.backbone,
            "train": self.train,
            "loss": self.loss,
            "optimizer": self.optimizer,
            STRATEGIES[self.strategy].section: self.method,
        }

    def to_dict(self) -> dict[str, Any]:
        task = {"name": self.task.name, **self.task.settings}
        sections = {name: values for name, part in self.sections.items() if (values := part.model_dump())}
        return {"strategy": self.strategy, "seed": self.seed, "task": task, **sections}

    def flagged(self, flag: str, value: bool = True) -> set[str]:
        """The dotted settings of this run whose flag has this value."""
        parts: dict[str, type[Settings]] = {"": TopSettings} | {name: type(p) for name, p in self.sections.items()}
        return {f"{name}.{key}".lstrip(".") for name, part in parts.items() for key in flagged(part, flag, value)}

    def flat(self) -> dict[str, Any]:
        return dotted(self.to_dict())

    def to_toml(self) -> str:
        """The whole configuration as TOML, ready for `--config`; the first line is verified in the run's own folder."""
        return sealed(f"{OF_RUN}{self.run_id()} {UNSEALED}\n{tomli_w.dumps(self.to_dict())}".encode()).decode()

    def identity(self) -> dict[str, Any]:
        """The names by which tables group runs."""
        names = {"task": self.task.name, "backbone": self.backbone.name}
        return {**names, "strategy": self.strategy, "seed": self.seed}

    @property
    def recipe_name(self) -> str:
        """What tables add to the strategy: whether all, or all but the strategy, is as in the preset we recommend."""
        values = self.flat()
        other = {key for key, value in PRESETS[RECOMMENDED].items() if values.get(key) != value}
        return "" if other - {"strategy"} else f"else {RECOMMENDED}" if other else RECOMMENDED

    def run_id(self) -> str:
        """Readable prefix and a hash of every setting that decides the outcome; a plain name of a folder."""
        parts = {name: part.identity(self.facts) for name, part in self.sections.items()}
        content = {"names": self.identity(), "task": self.task.settings, **parts}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
        backbone, strategy = (name.rpartition(":")[2] for name in (self.backbone.name, self.strategy))
        return re.sub(r"[^A-Za-z0-9._+-]", "_", f"{self.task.name}-{backbone}-{strategy}-s{self.seed}-{digest}")


def make_config(
    preset: str = "paper", file: Path | None = None, overrides: Mapping[str, Any] | Iterable[str] = ()
) -> RunConfig:
    """Preset, then file, then overrides (`{"train.steps": 2000}` or `["train.steps=2000"]`); checked and resolved.

    Code that overrides name may be imported, since a person wrote them; code that the file names may not.
    """
    return build(merge_settings(preset, file, overrides))


def stored_config(path: Path) -> RunConfig:
    """The configuration in the folder of a run; HeroError unless it is as it was written.

    It is also taken where it gives the id in its first line, since settings that decide nothing may be edited.
    """
    with reading(path) as file:
        first = file.readline(1000).decode(errors="replace").split()
    is_sealed = first[:2] == OF_RUN.split() and len(first) > 2
    is_unchanged, reason = is_sealed and is_whole(path), ""
    try:
        config = make_config(file=path)
        if is_unchanged or (is_sealed and first[2] == config.run_id()):
            return config
    except HeroError as error:
        if is_unchanged:
            raise
        reason = f" ({str(error).partition(';')[0].rstrip('.')})"
    raise HeroError(
        f"{path} is damaged or was edited{reason}; repeat the command that started run {path.parent.name}, which "
        "writes it again, or copy the file and train with `--config COPY`."
    )


def merge_settings(preset: str, file: Path | None, overrides: Mapping[str, Any] | Iterable[str]) -> dict[str, Any]:
    """Settings as dotted keys, before anything is derived from them."""
    values = dict(PRESETS[preset])
    if file is not None:
        values |= {k: v for k, v in read_toml(file).items() if not {k, f"{k}={v}"} & set(RETIRED)}
    typed = dict(overrides) if isinstance(overrides, Mapping) else dict(map(parse_override, overrides))
    if "train.init" in typed:
        values.pop("train.init_hash", None)  # of other weights
    if "backbone.size" in typed:
        values = {key: value for key, value in values.items() if key not in SIZED}  # of another size
    other = {f"data.{name}" for name in flagged(FileSettings, "identity")} & typed.keys()
    if not other and typed.get("data.path") is not None and (known := values.get("data.fingerprint")):
        recording = open_recording(Path(typed["data.path"]), values.get("data.layout", ""))
        other |= {"data.path"} if fingerprint(recording) != known else set()  # the same data may have moved
    if other:
        values = {key: value for key, value in values.items() if key.removeprefix("data.") not in FOUND}
    merged = {spelled(key): value for key, value in (values | typed).items()}
    trust(*(value for key, value in typed.items() if spelled(key) in CODE))
    return merged


def implied_preset(names: Iterable[str]) -> str:
    """The preset where none is named: the recommended one, unless settings of another strategy are among `names`."""
    recommended = STRATEGIES[PRESETS[RECOMMENDED]["strategy"]].section
    others = {part.section for part in STRATEGIES.values()} - {recommended, ""}
    return "paper" if {key.partition(".")[0] for key in names} & {"strategy", *others} else RECOMMENDED


def spelled(key: str) -> str:
    """The key in our spelling: `optimiser` and `normalize` are accepted as well."""
    return key.replace("optimiser", "optimizer").replace("normalize", "normalise")


def build(values: Mapping[str, Any]) -> RunConfig:
    """Dotted keys to a configuration; refuses unknown names, wrong types and combinations that cannot work."""
    sections = by_section(values)
    given_top = sections.pop("", {})
    top = TopSettings.from_values("", {k: v for k, v in given_top.items() if k in TopSettings.model_fields}, Facts())
    strategy = STRATEGIES[top.strategy]
    given_task, given_data = sections.pop("task", {}), sections.pop("data", {})
    source = find_source(given_task, given_data)
    given_backbone = sections.pop("backbone", {})
    if source.cloud:
        given_backbone.setdefault("name", "transolver")  # an FNO needs a grid
    backbone = BACKBONES[given_backbone.get("name", "fno")]
    check_names({key: value for key, value in values.items() if value is not None}, strategy, backbone.Settings)

    given_train = found_start(staged(sections.pop("train", {})))
    files = source.files
    facts = facts_of(source, strategy, given_train.get("steps", TrainSettings.model_fields["steps"].default))
    train = TrainSettings.from_values("train", given_train, facts)
    losses, optimizer = LOSSES[train.loss].Settings, get_optimizer(train.optimizer).Settings
    parts: dict[str, type[Settings]] = {strategy.section: strategy.Settings, "loss": losses, "optimizer": optimizer}
    own = {section: dict[str, Any]() for section in parts}
    for section, given in sections.items():
        fields = parts[section].model_fields if section in parts else {}
        own[section] = {name: value for name, value in given.items() if name in fields}
        check_unread(section, {name: value for name, value in given.items() if name not in fields}, facts)
    config = RunConfig(
        top.strategy,
        top.seed,
        TaskSettings(given_task.get("name", source.name), {} if files else source.settings()),
        files or DataSettings.from_values("data", given_data, Facts()),
        backbone.Settings.from_values("backbone", given_backbone, facts),
        train,
        strategy.Settings.from_values(strategy.section, own[strategy.section], facts),
        losses.from_values("loss", own["loss"], facts),
        optimizer.from_values("optimizer", own["optimizer"], facts),
        source,
        facts,
    )
    check_fit(config, source.space)
    return config


def facts_of(source: Source, strategy: type[Strategy[Any]], updates: Any) -> Facts:
    """What defaults are derived from; `updates` as they are given."""
    known = isinstance(updates, int | float) and math.isfinite(updates)  # otherwise its own check refuses it
    return Facts(
        int(updates) if known else 0,
        source.dims,
        strategy,
        source.periodic,
        source.space,
        source.channels,
        conditioned=bool(source.conditioning),
        from_files=source.files is not None,
        train_steps=source.files.train_steps if source.files else 0,
    )


def find_source(task: Mapping[str, Any], data: Mapping[str, Any]) -> Source:
    """The files of `data.path` if it is given, else the benchmark; `task.name` may name either."""
    settings = {name: value for name, value in task.items() if name != "name"}
    if "path" not in data:
        unread = [name for name in data if name not in DataSettings.model_fields and name in FileSettings.model_fields]
        if unread:
            raise HeroError(f"data.{unread[0]} is for data from files; name the file, as in `hero train FILE`.")
        return get_task(task.get("name", "burgers"), settings).source()
    if settings:
        raise HeroError(f"task.{next(iter(settings))} is for benchmarks; data from files have no coefficients.")
    return FileSettings.from_values("data", data, Facts()).source()


def check_fit(config: RunConfig, space: tuple[int, ...]) -> None:
    """Refuse settings that do not fit the grid, the trajectories or each other, before anything is trained."""
    config.backbone.check(space)
    train, data = config.train, config.data
    if train.history - 1 + train.unroll > data.train_steps:
        raise HeroError(
            f"train.unroll={train.unroll} with train.history={train.history} is longer than "
            f"data.train_steps={data.train_steps}; lower it."
        )
    for name in SCORED:
        if config.split(name).steps < train.history:
            raise HeroError(
                f"data.{name}_steps={config.split(name).steps} leaves no step to predict after "
                f"train.history={train.history}; lower the history."
            )
    if train.warmup >= max(2, train.steps):  # one update of warm-up is the default of a run of one
        raise HeroError(
            f"train.warmup={train.warmup} is not below train.steps={train.steps}, so the learning rate would never "
            "reach its peak; lower it."
        )
    if train.accumulate > 1 and train.loss == "balanced":
        raise HeroError(
            f"train.accumulate={train.accumulate} computes a batch in parts, and the balanced loss weighs by errors of "
            "all of it; choose another train.loss, or train.recompute=true for memory."
        )
    if config.source.forcing and (train.bundle > 1 or train.scale > 1):
        name, value = ("bundle", train.bundle) if train.bundle > 1 else ("scale", train.scale)
        raise HeroError(
            f"train.{name}={value:g} is not for data.forcing, which belongs to single steps; leave it at 1."
        )
    seeded = itertools.combinations(("train", "val", "test") if isinstance(data, DataSettings) else (), 2)
    for first, second in seeded:
        seed = config.split(first).seed
        if seed == config.split(second).seed:  # which draws equal states
            raise HeroError(
                f"data.{first}_seed={seed} is also data.{second}_seed, so both splits would hold the same "
                "trajectories; change one of them."
            )
    if config.backbone.is_found:
        parse_keep(config.backbone.kept, config.source.channel_names)
    _ = config.untrained_strategy  # a strategy refuses at construction what it cannot use
