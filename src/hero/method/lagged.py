"""Stage 1 of HERO: the lagged operator G_θ̄, a frozen copy of the current one, renewed every R steps."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn

from hero.method.schedule import refresh_due


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a state dict; some models put classes and functions beside them, which no safe file may hold."""
    return {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}


class LaggedOperator:
    """θ̄_s = sg(θ_s) at s = s_0 and every R steps after it, θ̄_{s-1} otherwise; only ever called without gradient."""

    def __init__(self, start: int, refresh: int) -> None:
        self.start, self.refresh = start, refresh
        self.model: nn.Module | None = None

    def update(self, model: nn.Module, step: int) -> bool:
        """Copy `model` if a refresh is due at iteration `step`; says whether it did."""
        if self.model is None:
            self.model = copy.deepcopy(model)
            return True
        if refresh_due(step, self.start, self.refresh):
            self.model.load_state_dict(model.state_dict())
            return True
        return False

    def state_dict(self) -> dict[str, Any]:
        """The lagged weights, empty before s_0."""
        return {} if self.model is None else weights_of(self.model)

    def load_state_dict(self, state: dict[str, Any], model: nn.Module) -> None:
        """Put back the lagged weights; `model` gives the architecture."""
        if state:
            self.model = copy.deepcopy(model)
            self.model.load_state_dict(state)
