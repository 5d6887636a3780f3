"""The configuration of one run: frozen, validated, data only. TOML and dotted overrides in; a stable hash out.

Every setting is documented where it is defined; `hero settings` prints these sentences. None means "derived", and
`resolve` fills it in, so that a stored configuration holds every number and equal runs have equal ids.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from hero.data import Split, Task, get_task
from hero.errors import HeroError, unknown_name
from hero.models import check_backbone, get_backbone
from hero.strategies import STRATEGIES


def setting(
    default: Any, doc: str, *, low: float | None = None, above: float | None = None, choices: tuple[str, ...] = ()
) -> Any:
    """A documented field; `low` is the least allowed value, `above` an excluded lower bound."""
    return field(default=default, metadata={"doc": doc, "low": low, "above": above, "choices": choices})


LARGEST_INT = 2**63 - 1
"""What a seed, a tensor size and a TOML integer can hold."""


@dataclass(frozen=True)
class TaskConfig:
    """What is solved."""

    name: str = setting("burgers", "Benchmark; `hero data list` shows all.")
    settings: Mapping[str, Any] = setting(
        None, "Equation coefficients, extent, resolution, dt, substeps, warmup, cutoff: see `hero data show TASK`."
    )


@dataclass(frozen=True)
class DataConfig:
    """How much of it."""

    train_trajectories: int = setting(50, "Training trajectories.", low=1)
    train_steps: int = setting(50, "Steps of each training trajectory (one snapshot more).", low=1)
    train_seed: int = setting(0, "Seed of the training initial states.", low=0)
    val_trajectories: int = setting(30, "Validation trajectories, used to select the checkpoint.", low=1)
    val_steps: int = setting(200, "Steps of each validation trajectory; GM100 needs 100.", low=100)
    val_seed: int = setting(1, "Seed of the validation initial states.", low=0)
    test_trajectories: int = setting(30, "Test trajectories, never used for selection.", low=1)
    test_steps: int = setting(200, "Steps of each test trajectory; GM100 needs 100.", low=100)
    test_seed: int = setting(773, "Seed of the test initial states.", low=0)


@dataclass(frozen=True)
class BackboneConfig:
    """The operator that learns one step."""

    name: str = setting("fno", "Backbone: fno, transolver, or anyone's module as package.module:Class.")
    residual: bool = setting(False, "The operator predicts the change: u + G(u).")
    precision: str = setting(
        "float32",
        "bfloat16 computes matrix products under autocast; transforms, weights and states stay in float32.",
        choices=("float32", "bfloat16"),
    )
    width: int | None = setting(None, "fno, transolver: channels inside; default the paper's.", low=1)
    depth: int | None = setting(None, "fno, transolver: blocks; default the paper's.", low=1)
    modes: tuple[int, ...] | None = setting(
        None, "fno: Fourier modes kept, one number or one per axis; default the paper's: 28, 8, 8.", low=1
    )
    lifting: int = setting(0, "fno: hidden channels of the lifting; 0 makes it linear.", low=0)
    projection: int = setting(0, "fno: hidden channels of the projection; 0 makes it linear.", low=0)
    coordinates: bool = setting(False, "fno: give the coordinates, from 0 to 1, as further input channels.")
    final_activation: bool = setting(True, "fno: GELU after the last block as well, as in APEBench; neuralop has none.")
    heads: int | None = setting(None, "transolver: attention heads; default the paper's: 4, 8, 8.", low=1)
    slices: int | None = setting(None, "transolver: slices; default the paper's: 64, 128, 256.", low=1)
    mlp_ratio: int = setting(1, "transolver: hidden over outer channels in the feed-forward part.", low=1)
    periodic: bool = setting(True, "transolver: convolutions wrap around; false pads with zeros as upstream does.")
    kwargs: Mapping[str, Any] | None = setting(
        None, "package.module:Class: arguments of the class, as backbone.kwargs.NAME=VALUE."
    )


@dataclass(frozen=True)
class TrainConfig:
    """The loop, the same for every strategy."""

    steps: int = setting(10_000, "Optimiser updates.", low=1)
    batch: int = setting(20, "Windows per update.", low=1)
    unroll: int = setting(5, "K, the steps of a training window; all strategies draw the same windows.", low=1)
    history: int = setting(1, "H, the most recent states that the operator sees.", low=1)
    normalise: bool = setting(False, "Scale each channel by its mean and deviation in the training data.")
    bundle: int = setting(1, "Steps that the operator makes per call (temporal bundling).", low=1)
    curriculum: str = setting(
        "fixed",
        "Length of the unroll: train.unroll, growing to it in equal stages (steps), or drawn for each update (random).",
        choices=("fixed", "steps", "random"),
    )
    noise: float = setting(0.0, "Gaussian noise on the input states, relative to their root mean square.", low=0)
    ema: float | None = setting(
        None, "Decay of the averaged weights that are validated and kept, 0 for none; default 0.995 for refiner.", low=0
    )
    recompute: bool | None = setting(
        None, "Recompute activations in the backward pass instead of keeping them; default true for recurrent."
    )
    loss: str = setting(
        "relative", "Absolute loss: the normalised distance D, or the mean squared error.", choices=("relative", "mse")
    )
    lr: float = setting(1e-3, "Peak learning rate of AdamW.", above=0)
    warmup: int | None = setting(
        None, "Updates of linear warm-up, before a cosine to zero; default 0.2 of the steps.", low=0
    )
    weight_decay: float = setting(0.01, "Decoupled weight decay of AdamW.", low=0)
    clip: float = setting(1.0, "Largest gradient norm; 0 turns clipping off.", low=0)
    compile: str = setting(
        "auto",
        "torch.compile of the unroll: auto compiles long runs where a compiler is found.",
        choices=("auto", "true", "false"),
    )
    device: str = setting("auto", "auto, cpu, cuda, cuda:1, mps; auto takes an accelerator if there is one.")
    validate_every: int | None = setting(None, "Updates between validation rollouts; default 1/20 of the steps.", low=1)
    checkpoint_every: int | None = setting(
        None, "Updates between checkpoints for resuming; default 1/20 of the steps.", low=1
    )
    keep_every: int = setting(
        0, "Updates between checkpoints that are kept for `hero landscape` and `hero probe`; 0 keeps none.", low=0
    )


@dataclass(frozen=True)
class HeroConfig:
    """The relative term (strategies hero and fixed_weight)."""

    start: int | None = setting(None, "s_0, the first step of the relative term; default 0.4 of the steps.", low=0)
    refresh: int | None = setting(None, "R, steps between copies into the lagged operator; default 0.2.", low=1)
    warmup: int | None = setting(None, "W, steps over which lambda rises from 0; default 0.2 of the steps.", low=1)
    lambda_max: float = setting(0.02, "Largest weight of the relative term.", low=0)
    margin: float = setting(0.02, "m, by how much the current rollout is to beat the reference.", above=0)
    beta: float = setting(5.0, "Sharpness of the softplus margin.", above=0)
    perturbation: float = setting(0.01, "s, relative size of the spectral perturbation.", low=0)
    candidates: tuple[str, ...] = setting(
        ("lag", "perturbed", "self"), "Candidate rollouts, ranked for failure.", choices=("lag", "perturbed", "self")
    )
    diagnostics: tuple[str, ...] = setting(
        ("roll", "spec", "energy", "growth"),
        "Diagnostics that rank them.",
        choices=("roll", "spec", "energy", "growth"),
    )
    single_candidate: bool = setting(False, "Allow a single candidate, as two ablations of the paper need.")
    fixed_alpha: float = setting(0.5, "fixed_weight only: the constant that replaces alpha.", low=0)


@dataclass(frozen=True)
class PushForwardConfig:
    """Variants of push-forward (strategy push_forward)."""

    variant: str = setting(
        "full",
        "Gradient through the whole unroll (full), cut after each step (cut) or every cut_every steps (truncated), "
        "only through the last of a random number of steps (original), or the full one with only the last step "
        "supervised (last).",
        choices=("full", "cut", "truncated", "original", "last"),
    )
    cut_every: int = setting(2, "truncated only: steps between two cuts of the gradient.", low=1)


@dataclass(frozen=True)
class RefinerConfig:
    """PDE-Refiner (strategy refiner)."""

    form: str = setting(
        "pdearena",
        "The authors' released code, or the pseudocode of their paper: they differ in more than notation.",
        choices=("pdearena", "paper"),
    )
    steps: int = setting(3, "K, refinements per predicted step; the network is called K + 1 times.", low=1)
    noise: float | None = setting(
        None,
        "Least noise: a variance in form pdearena (default 4e-7), a deviation in form paper (default 2e-7).",
        above=0,
    )
    difference: bool = setting(True, "Refine the change of the state, scaled by its deviation in the training data.")


@dataclass(frozen=True)
class RecurrentConfig:
    """Recurrent training (strategy recurrent); the window is train.unroll, the residual form backbone.residual."""

    starts: str = setting(
        "any",
        "Windows from every state, as in the shared protocol, or from the first state of each trajectory only.",
        choices=("any", "first"),
    )


@dataclass(frozen=True)
class DivertedChainConfig:
    """Targets from the solver at the model's own states (strategy diverted_chain)."""

    through_solver: bool = setting(True, "Back-propagate through the solver as well; false cuts the gradient there.")


@dataclass(frozen=True)
class HistoryReplayConfig:
    """Drifted states of a lagged operator with true continuations (strategy history_replay)."""

    share: float = setting(0.5, "p, the part of each batch that is replayed.", low=0)
    horizon: int = setting(100, "Steps that the lagged operator is rolled out from the training states.", low=1)
    start: int | None = setting(None, "First step with a buffer; default 0.1 of the steps.", low=0)
    refresh: int | None = setting(None, "Steps between two fillings of the buffer; default 0.05 of the steps.", low=1)
    buffer: int = setting(500, "Drifted states kept.", low=1)
    labels: str = setting(
        "solver",
        "Targets: the solver's continuation of the drifted state, or the data's own future.",
        choices=("solver", "data"),
    )
    absurd: float = setting(3.0, "States larger than this times the largest training state are left out.", above=0)
    relative: bool = setting(False, "Add HERO's relative term on top, with the settings of section hero.")


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides the outcome of a run."""

    strategy: str = setting("hero", "How a window becomes a loss.")
    seed: int = setting(0, "Initial weights and batch order; never the data.", low=0)
    task: TaskConfig = field(default_factory=TaskConfig)
    data: DataConfig = field(default_factory=DataConfig)
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    hero: HeroConfig = field(default_factory=HeroConfig)
    push_forward: PushForwardConfig = field(default_factory=PushForwardConfig)
    refiner: RefinerConfig = field(default_factory=RefinerConfig)
    recurrent: RecurrentConfig = field(default_factory=RecurrentConfig)
    diverted_chain: DivertedChainConfig = field(default_factory=DivertedChainConfig)
    history_replay: HistoryReplayConfig = field(default_factory=HistoryReplayConfig)

    def make_task(self) -> Task:
        """The task with this run's overrides."""
        return get_task(self.task.name, self.task.settings)

    def split(self, name: str) -> Split:
        """The size and seed of the split `train`, `val` or `test`."""
        data = self.data
        return Split(*(name, *(getattr(data, f"{name}_{key}") for key in ("trajectories", "steps", "seed"))))

    def to_dict(self) -> dict[str, Any]:
        """Nested plain values, without the sections that this strategy does not read."""
        out: dict[str, Any] = {"strategy": self.strategy, "seed": self.seed}
        for name in SECTIONS:
            if name not in OPTIONAL_SECTIONS or name in STRATEGIES[self.strategy].sections:
                out[name] = vars(getattr(self, name)).copy()
        out["task"] = {"name": self.task.name, **dict(self.task.settings)}
        out["backbone"] = {name: getattr(self.backbone, name) for name in get_backbone(self.backbone.name).settings}
        return out

    def to_toml(self) -> str:
        """The whole resolved configuration as TOML, ready for `--config`."""
        return tomli_w.dumps(self.to_dict())

    def identity(self) -> dict[str, Any]:
        """What tables group runs by."""
        names = {"task": self.task.name, "backbone": self.backbone.name}
        return {**names, "strategy": self.strategy, "seed": self.seed}

    def run_id(self) -> str:
        """Readable prefix and a hash of every setting that this run reads."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        backbone = self.backbone.name.rpartition(":")[2]
        return f"{self.task.name}-{backbone}-{self.strategy}-s{self.seed}-{digest}"


SECTIONS: dict[str, type] = {
    "task": TaskConfig,
    "data": DataConfig,
    "backbone": BackboneConfig,
    "train": TrainConfig,
    "hero": HeroConfig,
    "push_forward": PushForwardConfig,
    "refiner": RefinerConfig,
    "recurrent": RecurrentConfig,
    "diverted_chain": DivertedChainConfig,
    "history_replay": HistoryReplayConfig,
}
# Sections that belong to strategies: part of a run only if its strategy names them in `sections`.
OPTIONAL_SECTIONS = SECTIONS.keys() - {"task", "data", "backbone", "train"}

# `quick` needs one number: the schedules are fractions of the steps unless set.
PRESETS: dict[str, dict[str, Any]] = {"paper": {}, "quick": {"train.steps": 1000}}


def parse_override(text: str) -> tuple[str, Any]:
    """`train.steps=2000` -> ("train.steps", 2000); the value is read as TOML, else as a plain word."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise HeroError(f"--set takes KEY=VALUE, not {text!r}; for example --set train.steps=2000.")
    try:
        return key.strip(), tomllib.loads(f"v = {value.strip()}")["v"]
    except tomllib.TOMLDecodeError:
        with contextlib.suppress(ValueError):
            return key.strip(), float(value)  # such as .5, which TOML lacks
        word = value.strip()
        return key.strip(), {"True": True, "False": False}.get(word, word)  # as Python prints them


def read_toml(path: Path) -> dict[str, Any]:
    """A configuration file as dotted keys."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise HeroError(f"no configuration file {path}; check the path.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise HeroError(f"{path} is not a TOML file ({error}); mend it or leave it out.") from None
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat.update({f"{key}.{name}": v for name, v in value.items()})
        else:
            flat[key] = value
    return flat


def make_config(
    preset: str = "paper", file: Path | None = None, overrides: Mapping[str, Any] | Iterable[str] = ()
) -> RunConfig:
    """Preset, then file, then overrides (`{"train.steps": 2000}` or `["train.steps=2000"]`); validated and resolved."""
    return resolve(build(merge_settings(preset, file, overrides)))


def merge_settings(preset: str, file: Path | None, overrides: Mapping[str, Any] | Iterable[str]) -> dict[str, Any]:
    """The same as dotted keys, before anything is derived from them."""
    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    values = dict(PRESETS[preset])
    if file is not None:
        values.update(read_toml(file))
    values.update(overrides if isinstance(overrides, Mapping) else dict(map(parse_override, overrides)))
    return values


def build(values: Mapping[str, Any]) -> RunConfig:
    """Dotted keys to an unresolved configuration; refuses unknown keys and wrong types."""
    top: dict[str, Any] = {}
    sections: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    task_settings: dict[str, Any] = {}
    kwargs: dict[str, Any] = {}
    for key, value in values.items():
        section, dot, name = key.partition(".")
        if isinstance(value, int) and abs(value) > LARGEST_INT:
            raise HeroError(f"{key} is too large; give a number below 2^63.")
        if not dot:
            top[key] = checked(RunConfig, key, key, value)
        elif section == "task" and name != "name":
            task_settings[name] = value
        elif key.startswith("backbone.kwargs"):
            kwargs.update(value if name == "kwargs" else {name.removeprefix("kwargs."): value})
        elif section in SECTIONS:
            sections[section][name] = checked(SECTIONS[section], name, key, value)
        else:
            raise unknown_name("setting", key, setting_names())
    sections["task"]["settings"] = task_settings
    sections["backbone"]["kwargs"] = kwargs or None
    return RunConfig(**top, **{name: SECTIONS[name](**kwargs) for name, kwargs in sections.items()})


def setting_names() -> list[str]:
    """Every dotted key except the task's own coefficients."""
    names = ["strategy", "seed"]
    for section, cls in SECTIONS.items():
        names += [f"{section}.{f.name}" for f in dataclasses.fields(cls) if (section, f.name) != ("task", "settings")]
    return names


def checked(cls: type, name: str, key: str, value: Any) -> Any:
    """`value` as the type of the field, within its bounds, or a HeroError that names the key."""
    if key not in setting_names():
        raise unknown_name("setting", key, setting_names())
    spec = {f.name: f for f in dataclasses.fields(cls)}[name]
    kind = typing.get_type_hints(cls)[name]
    optional = isinstance(kind, types.UnionType)
    kind = typing.get_args(kind)[0] if optional else kind
    if value is None and optional:
        return None
    if kind == tuple[str, ...]:
        return checked_words(key, value, spec.metadata["choices"])
    if kind == tuple[int, ...]:
        return checked_numbers(key, value, spec.metadata["doc"])
    if isinstance(value, bool) and "true" in spec.metadata["choices"]:
        value = str(value).lower()
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        word = {int: "a whole number", float: "a number", str: "a word", bool: "true or false"}[kind]
        raise HeroError(f"{key}={value!r} is not {word}; {spec.metadata['doc']}")
    low, above, choices = (spec.metadata[name] for name in ("low", "above", "choices"))
    if choices and value not in choices:
        raise HeroError(f"{key}={value!r} is not possible; choose one of: {', '.join(choices)}.")
    if low is not None and not value >= low:
        raise HeroError(f"{key}={value!r} is too small; it must be at least {low:g}.")
    if above is not None and not value > above:
        raise HeroError(f"{key}={value!r} is too small; it must be above {above:g}.")
    if kind is float and not abs(value) < float("inf"):
        raise HeroError(f"{key}={value!r} is not a finite number; give one.")
    return value


def checked_words(key: str, value: Any, choices: tuple[str, ...]) -> tuple[str, ...]:
    """A list of known words, or the same separated by commas."""
    words = [word.strip() for word in value.split(",")] if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not words:
        raise HeroError(f"{key}={value!r} is not a list of words; give some of: {', '.join(choices)}.")
    for word in words:
        if word not in choices:
            raise HeroError(f"{key}={value!r} holds {word!r}; give some of: {', '.join(choices)}.")
    return tuple(word for word in choices if word in words)


def checked_numbers(key: str, value: Any, doc: str) -> tuple[int, ...]:
    """One positive whole number, or a list of them, or the same separated by commas."""
    if isinstance(value, str):
        value = [int(word) if word.strip().isdigit() else word for word in value.split(",")]
    numbers = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not numbers or any(type(number) is not int or number < 1 for number in numbers):
        raise HeroError(f"{key}={value!r} is not one or several positive whole numbers; {doc}")
    return numbers


def resolve(config: RunConfig) -> RunConfig:
    """Fill in what is derived and check what fits together."""
    if config.strategy not in STRATEGIES:
        raise unknown_name("strategy", config.strategy, STRATEGIES)
    strategy = STRATEGIES[config.strategy]
    unread = OPTIONAL_SECTIONS - set(strategy.sections)
    config = dataclasses.replace(config, **{name: SECTIONS[name]() for name in unread})  # equal runs, equal configs
    task = config.make_task()
    steps = config.train.steps

    def fraction(value: int | None, share: float, least: int = 1) -> int:
        return max(least, round(share * steps)) if value is None else value

    train = dataclasses.replace(
        config.train,
        warmup=fraction(config.train.warmup, 0.2),
        validate_every=fraction(config.train.validate_every, 0.05),
        checkpoint_every=fraction(config.train.checkpoint_every, 0.05),
        ema=strategy.ema if config.train.ema is None else config.train.ema,
        recompute=strategy.recompute if config.train.recompute is None else config.train.recompute,
    )
    hero = dataclasses.replace(
        config.hero,
        start=fraction(config.hero.start, 0.4, least=0),
        refresh=fraction(config.hero.refresh, 0.2),
        warmup=fraction(config.hero.warmup, 0.2),
    )
    refiner = config.refiner
    if refiner.noise is None:
        refiner = dataclasses.replace(refiner, noise=4e-7 if refiner.form == "pdearena" else 2e-7)
    replay = dataclasses.replace(
        config.history_replay,
        start=fraction(config.history_replay.start, 0.1, least=0),
        refresh=fraction(config.history_replay.refresh, 0.05),
    )
    backbone = resolve_backbone(config.backbone, task.dims)
    task_config = TaskConfig(task.name, task.settings())
    config = dataclasses.replace(
        config,
        task=task_config,
        train=train,
        hero=hero,
        backbone=backbone,
        refiner=refiner,
        history_replay=replay,
    )
    check_backbone(config.backbone, (task.resolution,) * task.dims)
    history = config.train.history
    if history - 1 + config.train.unroll > config.data.train_steps:
        raise HeroError(
            f"train.unroll={config.train.unroll} with train.history={history} is longer than "
            f"data.train_steps={config.data.train_steps}; lower it."
        )
    for name in ("val_steps", "test_steps"):
        if getattr(config.data, name) < 99 + history:
            raise HeroError(
                f"data.{name}={getattr(config.data, name)} leaves less than the 100 steps that GM100 needs "
                f"after train.history={history}; raise it."
            )
    if "hero" in strategy.sections and (hero.start or 0) >= steps:
        raise HeroError(
            f"hero.start={hero.start} is not below train.steps={steps}: the relative term would never act; lower it."
        )
    strategy(config)  # a strategy refuses at construction what it cannot use
    return config


def resolve_backbone(config: BackboneConfig, dims: int) -> BackboneConfig:
    """The paper's values for what is not set; refuses what this backbone does not read."""
    spec = get_backbone(config.name)
    for item in dataclasses.fields(config):
        if item.name not in spec.settings and getattr(config, item.name) != item.default:
            raise HeroError(
                f"backbone.{item.name} is no setting of {config.name}; it reads {', '.join(spec.settings[1:])}."
            )
    paper = spec.paper.get(dims, {})
    chosen = {name: value for name in paper if (value := getattr(config, name)) is not None}
    config = dataclasses.replace(config, **{**paper, **chosen})
    if config.modes is None:
        return config
    modes = config.modes * dims if len(config.modes) == 1 else config.modes
    if len(modes) != dims:
        raise HeroError(f"backbone.modes={list(modes)} has {len(modes)} numbers for {dims} axes; give one or {dims}.")
    return dataclasses.replace(config, modes=modes)
