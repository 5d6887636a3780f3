"""Rollouts of validation data while another trainer trains: errors at chosen steps, and whether they blow up."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from hero.data.trajectories import masked_trajectories, states_of
from hero.errors import HeroError, check_number
from hero.method.measures import MEASURES
from hero.method.norm import Norm
from hero.method.rollout import as_stepper
from hero.method.rollout_errors import rollout_errors

LIGHTNING = ("lightning.pytorch", "pytorch_lightning")  # two names of one library; a callback must be of its Trainer's


@contextmanager
def evaluating(model: Any) -> Iterator[torch.device]:
    """The device of a module, which is in evaluation mode meanwhile; of a function, the CPU."""
    module = model if isinstance(model, nn.Module) else nn.Module()
    was_training = module.training
    module.eval()
    try:
        yield next((p.device for p in module.parameters()), torch.device("cpu"))
    finally:
        module.train(was_training)


class RolloutCheck:
    """check(model) rolls out `trajectories` (trajectory, time, channel, *space) from their first `history` states.

    It returns the VRMSE at each of `steps` by name, as {"vrmse@10": 0.3}, averaged over trajectories; by default at the
    first and the last step. Afterwards `check.blown_up` says whether a rollout left the finite range or has an error
    above `limit`: stop then. `check.for_lightning()` is the same as a callback.
    """

    def __init__(self, trajectories: Any, steps: Sequence[int] = (), limit: float = 10.0, history: int = 1) -> None:
        self.data = masked_trajectories(states_of(trajectories, "(trajectory, time, channel, *space)", 4))
        check_number("history", history, low=1, whole=True)
        longest = self.data.shape[1] - history
        self.steps, self.limit, self.history = tuple(steps) or tuple(sorted({1, longest})), limit, history
        for step in self.steps:
            check_number("steps", step, low=1, whole=True)
        if max(self.steps) > longest or longest < 1:
            raise HeroError(
                f"trajectories of {self.data.shape[1]} states have no step {max(self.steps)} after the first "
                f"{history}; give longer ones or fewer steps."
            )
        self.norm = Norm(by_channel=True)
        self.norm.fit(self.data)
        self.blown_up = False

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Errors by name; the model is in evaluation mode meanwhile."""
        vrmse, steps = MEASURES["vrmse"], max(self.steps)
        with evaluating(model) as device:
            step, norm = as_stepper(model), self.norm
            found = rollout_errors(step, self.data, steps, device, self.history, norm=norm, measures=[vrmse])
        errors = found["vrmse"]
        self.blown_up = not bool((errors <= self.limit).all())
        return {f"vrmse@{step}": float(errors[:, step - 1].mean()) for step in self.steps}

    def for_lightning(self, every: int = 1, network: str = "") -> Any:
        """A callback for Lightning's Trainer: checks after every `every` epochs, logs the errors, stops on a blow-up.

        `network` names the attribute of the LightningModule that maps a state to the next one, if not the module does.
        """
        check, library = self, next((sys.modules[name] for name in LIGHTNING if name in sys.modules), None)
        if library is None:
            raise HeroError(
                "Lightning is not imported; import its Trainer before, from lightning or pytorch_lightning."
            )

        class Check(library.Callback):  # type: ignore[name-defined]
            def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
                if (trainer.current_epoch + 1) % every == 0:
                    pl_module.log_dict(check(getattr(pl_module, network) if network else pl_module))
                    trainer.should_stop = trainer.should_stop or check.blown_up

        return Check()
