"""The training protocol: section `train`, shared by every strategy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from hero.config import Derived, Facts, Settings, from_strategy, per_source, setting, share
from hero.config.given import is_given
from hero.config.settings import Words, factors, known, words
from hero.errors import HeroError
from hero.method.losses import LOSSES
from hero.optimizers.build import OPTIMIZERS, get_optimizer


def stage_lengths(stages: Sequence[str]) -> list[tuple[int, int]]:
    """Length of the unroll and updates of each stage, from words such as 2:1000."""
    found = [re.fullmatch(r"\s*([1-9][0-9]{0,17}):([1-9][0-9]{0,17})\s*", str(stage)) for stage in stages]
    if not all(found):
        raise HeroError(
            f"train.stages={','.join(map(str, stages))} is not LENGTH:UPDATES for each stage; write it as in "
            "1:1000,2:1000,4:2000."
        )
    return [(int(stage[1]), int(stage[2])) for stage in found if stage]


def staged(given: Mapping[str, Any]) -> dict[str, Any]:
    """The section `train` with the updates, unroll and curriculum that its stages imply; refuses other ones."""
    lengths = stage_lengths(words(given.get("stages", ())))
    if not lengths:
        if given.get("curriculum") == "stages":
            raise HeroError("train.curriculum=stages needs the stages; set them as in train.stages=1:1000,2:1000.")
        return dict(given)
    implied = {
        "steps": sum(updates for _, updates in lengths),
        "unroll": max(length for length, _ in lengths),
        "curriculum": "stages" if len(lengths) > 1 else "fixed",
    }
    for name, value in implied.items():
        if given.get(name, value) != value:
            raise HeroError(f"train.{name}={given[name]} contradicts train.stages, which imply {value}; leave one out.")
    return {**given, **implied}


UNROLL = 5


def fitting_unroll(facts: Facts, given: Mapping[str, Any]) -> int:
    """The paper's unroll, or all steps of a file whose trajectories are shorter."""
    history = given.get("history", 1)
    before = history - 1 if isinstance(history, int) else 0
    return max(1, min(UNROLL, facts.train_steps - before)) if facts.train_steps else UNROLL


def known_loss(name: str) -> str:
    return name if is_given(name) else known(LOSSES)(name)


def checked_scales(words: tuple[str, ...]) -> tuple[str, ...]:
    """A validator for factors by pattern."""
    factors(words)
    return words


def importance_of(words: Sequence[str], names: Sequence[str]) -> tuple[float, ...]:
    """The weight of each channel from words such as pressure:0.1; 1 for channels that are not named."""
    try:
        found = dict.fromkeys(names, 1.0) | factors(words)
    except ValueError:
        found = {}
    if len(found) != len(names):
        raise HeroError(
            f"train.channel_weights={','.join(map(str, words))} is not CHANNEL:WEIGHT with a weight of 0 or more; the "
            f"channels are {', '.join(names)}."
        )
    if not any(found.values()):
        raise HeroError("train.channel_weights leaves every channel out; give one of them a weight above 0.")
    return tuple(found.values()) if any(weight != 1 for weight in found.values()) else ()


OF_MACHINE: dict[str, Any] = {"stated": False, "inherited": True, "rounding": True}


class TrainSettings(Settings):
    """The loop, the same for every strategy."""

    steps: int = setting(10_000, "Optimizer updates.", ge=1)
    batch: int = setting(20, "Windows per update.", ge=1, inherited=True)
    unroll: Annotated[int, Derived(fitting_unroll, f"{UNROLL}, or all steps of shorter trajectories in a file")] = (
        setting("K, the steps of a training window; all strategies draw the same windows.", ge=1)
    )
    history: int = setting(1, "H, the most recent states that the operator sees.", ge=1, inherited=True)
    normalise: Annotated[
        bool,
        Derived(lambda facts, given: facts.from_files or facts.conditioned, "true for files and conditioning"),
    ] = setting("Scale each channel by its mean and std in the training data.", inherited=True)
    norm: Annotated[Literal["joint", "channels"], per_source("channels", "joint")] = setting(
        "Errors in units of each channel's std about its mean (channels), or as in the paper (joint).", inherited=True
    )
    channel_weights: Words = setting(
        (), "Weights of channels in loss and score, as p:0.1,rho:0; 1 unless named.", inherited=True
    )
    mask_input: bool = setting(
        True, "Give the mask to the network as an input channel, where the data have one.", stated=False, inherited=True
    )
    bundle: int = setting(1, "Steps that the operator predicts per call (temporal bundling).", ge=1, inherited=True)
    curriculum: Literal["fixed", "steps", "random", "stages"] = setting(
        "fixed", "Length of the unroll: fixed, growing in equal stages (steps), drawn each time, or by train.stages."
    )
    stages: Words = setting(
        (), "Unroll lengths and their updates, as 1:1000,2:1000,4:2000; implies train.steps and train.unroll."
    )
    init: str = setting(
        "", "Start from the weights of this run folder, .safetensors file or state_dict file.", identity=False
    )
    init_hash: str = setting("", "Found: the SHA-256 of these weights.", found=True)
    init_prefix: str = setting("", "Take only names with this prefix from that file, without it.")
    init_strict: bool = setting(True, "Refuse weights that lack names, have others or differ in shape.")
    freeze: Words = setting((), "Parameters of the backbone that are not trained, by name, as encoder.*,lifting.*.")
    lora: int = setting(0, "Rank of adapters, trained in the place of train.init's weights; 0 for none.", ge=0)
    lora_layers: Words = setting((), "Linear layers and convolutions with adapters, as encoder.*; all unless named.")
    lora_full: Words = setting((), "Parameters that are trained in full beside the adapters, as head.*.")
    lr_scale: Annotated[Words, AfterValidator(checked_scales)] = setting(
        (), "Factors on the learning rate of parameters by name, as head.*:10,encoder.*:0.1; the first match counts."
    )
    accumulate: int = setting(
        1, "Parts of a batch that are computed one after the other: less memory.", ge=1, stated=False, rounding=True
    )
    noise: float = setting(0.0, "Gaussian noise on the input states, relative to their root mean square.", ge=0)
    scale: float = setting(
        1.0, "Largest random factor on the states of a window, its inverse the smallest; for linear equations.", ge=1
    )
    ema: Annotated[float, from_strategy("ema")] = setting(
        "Decay of the averaged weights that are validated and kept, 0 for none.", ge=0, lt=1
    )
    recompute: Annotated[bool, from_strategy("recompute")] = setting(
        "Recompute activations in the backward pass instead of keeping them.", stated=False, rounding=True
    )
    loss: Annotated[str, from_strategy("loss_name"), AfterValidator(known_loss)] = setting(
        f"Absolute loss: {', '.join(LOSSES)}; section loss.", stated=False
    )
    optimizer: str = setting(
        "adamw",
        f"{', '.join(OPTIMIZERS)}, a class of torch.optim, or package.module:Class; section optimizer.",
        code=True,
    )
    lr: Annotated[
        float, Derived(lambda facts, given: get_optimizer(str(given.get("optimizer", "adamw"))).lr, "by optimizer")
    ] = setting("Peak learning rate.", gt=0)
    warmup: Annotated[int, share(0.2)] = setting("Updates of linear warm-up, before a cosine to zero.", ge=0)
    weight_decay: float = setting(0.01, "Decoupled weight decay.", ge=0, stated=False)
    clip: float = setting(1.0, "Largest gradient norm; 0 turns clipping off.", ge=0, stated=False)
    patience: int = setting(
        0, "Validations without a better score after which training stops; 0 trains to the end.", ge=0, stated=False
    )
    compile: Literal["auto", "true", "false", "graphs"] = setting(
        "auto",
        "Use torch.compile; auto: for long runs where a compiler is found; graphs: with CUDA graphs.",
        **OF_MACHINE,
    )
    device: str = setting("auto", "cpu, cuda, cuda:1, mps; auto takes an accelerator if there is one.", **OF_MACHINE)
    validate_every: Annotated[int, share(0.05, least=20)] = setting(
        "Updates between validation rollouts.", ge=1, stated=False
    )
    checkpoint_every: Annotated[int, share(0.05)] = setting(
        "Updates between checkpoints for resuming.", ge=1, stated=False, rounding=True
    )
    keep_every: int = setting(
        0, "Updates between checkpoints kept for `hero landscape` and `hero probe`.", ge=0, stated=False, identity=False
    )
