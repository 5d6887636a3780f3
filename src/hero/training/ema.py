"""Averaged weights: a shadow of the trained ones that is validated, kept and deployed in their place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class AveragedWeights:
    """θ̂ ← d θ̂ + (1 - d) θ after every update, from θ̂ = θ at the start; without decay it is the model itself."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.names = [name for name, p in model.named_parameters() if p.requires_grad] if decay else []
        self.shadow = [self._of(model, name).detach().clone() for name in self.names]

    def _of(self, model: nn.Module, name: str) -> Tensor:
        return model.get_parameter(name)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """After an optimiser step."""
        if self.shadow:
            torch._foreach_lerp_(self.shadow, [self._of(model, name) for name in self.names], 1 - self.decay)

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """The model with the averaged weights in it; its own come back afterwards."""
        own = [self._of(model, name).detach().clone() for name in self.names]
        self._put(model, self.shadow)
        try:
            yield
        finally:
            self._put(model, own)

    @torch.no_grad()
    def _put(self, model: nn.Module, values: list[Tensor]) -> None:
        for name, value in zip(self.names, values, strict=True):
            self._of(model, name).copy_(value)

    def state_dict(self) -> dict[str, Tensor]:
        """The shadow by name; empty without decay."""
        return dict(zip(self.names, self.shadow, strict=True))

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Undo `state_dict`."""
        for name, mine in zip(self.names, self.shadow, strict=True):
            mine.copy_(state[name])
