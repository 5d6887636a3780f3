"""A trained operator to use, to train further and to hand on: `Operator`, and the folder that holds one.

    operator = open_model(Path("runs/burgers-fno-hero-s0-1a2b3c4d"))    # or a model folder, or an .onnx file
    operator.rollout(states, 200)
    operator.save_pretrained("model")       # model.safetensors, config.json, README.md

A model folder is data: opening it runs nobody's code. With `huggingface_hub` installed, `push_to_hub` uploads it and
`from_pretrained` downloads one.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hero.config import read_toml
from hero.config.given import PREFIX, found, is_known, standing_in
from hero.config.registry import is_trusted, trust
from hero.console import say
from hero.data.trajectories import Context
from hero.deploy.card import UNLICENSED as UNLICENSED
from hero.deploy.card import FolderConfig, ModelCard, card_text
from hero.deploy.export import compiled_step, compiling_pays
from hero.deploy.exported import FORMATS, Exported, load_stepper
from hero.errors import HeroError, check_number, install_hint, optional, reason_of
from hero.files import write_atomic
from hero.method.rollout import Stepper, rollout
from hero.models import count_parameters
from hero.runs.checkpoint import read_weights, save_weights, weights_of
from hero.runs.config import build
from hero.runs.folder import Run
from hero.runs.sections import CODE
from hero.runs.start import own_module
from hero.runs.stored import find_run, is_run
from hero.strategies import Strategy

WEIGHTS, CONFIG, README = "model.safetensors", "config.json", "README.md"
EXPORTED = tuple(Path(kind.file).suffix for kind in FORMATS.values())


class Operator(nn.Module):
    """G_θ as a module: one step of a trained run in physical units, with normalisation inside and its card."""

    def __init__(self, network: nn.Module, about: FolderConfig | None = None, file: Exported | None = None) -> None:
        """`network` with the configuration it was trained with, or `file`, the step of an exported file."""
        super().__init__()
        if about is None and file is None:
            raise HeroError("an Operator is a trained run; open one with hero.load, or use hero.predict(net, ..).")
        self.network, self.about, self.file = network, about, file
        self.license = about.license if about else UNLICENSED
        self.strategy = build(about.flat()).untrained_strategy if about else None
        self.card: ModelCard = (about or file).card  # type: ignore[union-attr]

    @property
    def backbone(self) -> nn.Module:
        """The network without normalisation, mask, residual and precision around it."""
        return own_module(self.network)

    @property
    def device(self) -> torch.device:
        return next((p.device for p in self.parameters()), torch.device("cpu"))

    def step(self, states: Context | Tensor, mu: Tensor | None = None, forcing: Tensor | None = None) -> Tensor:
        """The next state (batch, channel, *space); of a bundle, that many times the channels. Gradients flow."""
        return self.stepper()(self.context(states, mu, forcing))

    forward = step

    def stepper(self) -> Stepper:
        """One step as a function of a context; a strategy that draws numbers continues them from call to call."""
        return self.file or self.strategy.stepper(self.network)  # type: ignore[union-attr]

    def stepper_for(self, batch: int, steps: int) -> Stepper:
        """`stepper` for a rollout of this size: as machine code where compiling, of some seconds, is earned back."""
        is_plain = self.strategy is not None and type(self.strategy).stepper is Strategy.stepper  # one call
        if not is_plain or self.device.type != "cpu" or not compiling_pays(batch * math.prod(self.card.grid), steps):
            return self.stepper()
        try:
            return compiled_step(self.network, self.card)
        except HeroError as error:  # such as a machine without a compiler
            say(f"{error} The rollout continues without it.", style="yellow")
            return self.stepper()

    @torch.no_grad()
    def rollout(self, states: Any, steps: int, mu: Any = None, forcing: Any = None) -> Any:
        """(batch, steps, channel, *space) from states of the last H steps, without gradient.

        `forcing` (batch, steps, q), or with *space, is the forcing at the newest state and the ones after it.
        An array gives an array, a tensor a tensor on its device. `hero.rollout(operator.step, ..)` keeps gradients.
        """
        check_number("steps", steps, low=1, whole=True)
        context = self.context(states, mu, forcing)
        step = self.stepper_for(len(context.states), steps)
        made = self.card.measured().hidden(rollout(step, context, steps))
        if isinstance(states, np.ndarray):
            return made.cpu().numpy()
        return made.to(states.states.device if isinstance(states, Context) else states.device)

    def context(self, states: Any, mu: Any = None, forcing: Any = None) -> Context:
        """A context of this operator; of the states (batch, H, channel, *space), H may be left out where it is 1."""
        given = (states.states, states.mu, states.forcing) if isinstance(states, Context) else (states, mu, forcing)
        return self.card.context(*given).to(self.device)

    def extra_repr(self) -> str:
        card = self.card
        return f"{card.run}: {card.task}, grid {card.grid}, dt {card.dt:g}, {count_parameters(self)} parameters"

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model folder."""
        if self.about is None:
            raise HeroError(
                f"an exported file of run {self.card.run} cannot become a model folder; export the run with "
                "`hero export RUN --format folder`."
            )
        about = self.about.model_copy(update={"license": self.license})
        write_parts(Path(folder), about, weights_of(self.network))

    @classmethod
    def from_pretrained(
        cls, name: str | Path, model: nn.Module | None = None, trust_code: bool = False, **download: Any
    ) -> Operator:
        """Open a model folder, or download one; `download` are options of huggingface_hub.snapshot_download."""
        path = Path(name)
        if not path.is_dir():
            sentence = f"there is no folder {name}; a download needs {install_hint('hub')}."
            hub, parts = optional("huggingface_hub", sentence), [WEIGHTS, CONFIG, README]
            try:
                path = Path(hub.snapshot_download(str(name), allow_patterns=parts, **download))
            except Exception as error:  # of the network, of the name or of the permissions
                raise HeroError(
                    f"{name} is neither a folder nor a repository ({reason_of(error)}); check the name."
                ) from error
        return open_model(path, model, trust_code)

    def push_to_hub(self, name: str, **options: Any) -> None:
        """Upload the model folder; `options` are those of huggingface_hub.create_repo."""
        hub = optional("huggingface_hub", f"uploading {name} needs {install_hint('hub')}.")
        hub.create_repo(name, exist_ok=True, **options)
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            hub.upload_folder(repo_id=name, folder_path=folder, token=options.get("token"))


def write_folder(run: Path, out: Path, license: str = UNLICENSED) -> Path:
    """The model folder of a trained run, whose weights are the same bits."""
    about = FolderConfig.of(Run(run)).model_copy(update={"license": license})
    write_parts(out, about, read_weights(run / WEIGHTS)[0])
    return out


def write_parts(folder: Path, about: FolderConfig, weights: dict[str, Tensor]) -> None:
    """The files of a model folder; HeroError where an operator needs its data file to be opened."""
    about = about.without_paths()
    if about.config["data"].get("cloud") or about.config["data"].get("uneven"):
        raise HeroError(
            f"run {about.card.run} reads the positions of its points from {about.config['data']['path']}, which a "
            "model folder does not hold; hand on the run folder with that file, or `hero export RUN --format onnx`."
        )
    save_weights(folder / WEIGHTS, weights, {"step": about.card.step})
    write_atomic(folder / README, card_text(about).encode())
    about.write(folder / CONFIG)  # last: its presence says that the folder is complete


def find_model(name: Any, runs: Path) -> Path:
    """A file or folder by its path, or the folder of a run by its id."""
    if not isinstance(name, str | PathLike):
        raise HeroError(f"{type(name).__name__} is not a model; give a run, a file, an Operator or a function.")
    path = Path(name)
    return path if path.exists() or path.suffix in EXPORTED else find_run(str(name), runs)


def open_model(path: Path, model: nn.Module | None = None, trust_code: bool = False) -> Operator:
    """A run folder, a model folder, or an exported file as an Operator on the CPU, in evaluation mode.

    Code that a stored configuration names is not run: `model` stands for its backbone, or `trust_code` imports it.
    """
    path = Path(path)
    if path.suffix in EXPORTED:
        return Operator(nn.Identity(), file=load_stepper(path, trust_code)).eval()
    if is_run(path):
        if trust_code:
            trust(read_toml(Run(path).config_file).get("strategy"), typed=False)
        return assembled(FolderConfig.of(Run(path)), path, model, trust_code)
    if not (path / CONFIG).is_file():
        raise HeroError(
            f"{path} is neither a run folder, a model folder nor an exported file; `hero runs` lists the runs."
        )
    return assembled(FolderConfig.read(path / CONFIG), path, model, trust_code)


def assembled(about: FolderConfig, folder: Path, model: nn.Module | None, trust_code: bool) -> Operator:
    name = str(about.flat().get("backbone.name", "fno"))
    if trust_code:
        trust(*(about.flat().get(key) for key in CODE), typed=False)
    if ":" in name and model is None and not is_known(name):
        if name.startswith(PREFIX):
            found("backbone", name)  # says how to load it
        if not is_trusted(name):
            raise HeroError(
                f"the backbone {name} is code that {folder} names, which is not run unasked; use "
                f"hero.load(path, model={about.backbone}(...)), `trust_code`, or HERO_IMPORT={name.partition(':')[0]}."
            )
    if ":" not in name and model is not None:
        raise HeroError(f"{folder} has the backbone {name}, which is built in; leave out `model`.")
    with contextlib.nullcontext() if model is None else standing_in(name, model):
        network = build(about.flat()).trained_operator(folder / WEIGHTS)
    return Operator(network, about).eval()
