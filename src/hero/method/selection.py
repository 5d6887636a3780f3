"""Stage 4 of HERO: the diagnostics of the candidates become one score each; the worst candidate is the reference."""

from __future__ import annotations

import torch
from torch import Tensor

from hero.method.rollout import EPS


def scores(diagnostics: Tensor) -> Tensor:
    """S^(j) = mean_q Ẽ_q^(j) with Ẽ_q^(j) = (E_q^(j) - min_l E_q^(l)) / (max_l E_q^(l) - min_l E_q^(l) + ε).

    (batch, candidate, diagnostic) -> (batch, candidate), each in [0, 1].
    """
    low, high = diagnostics.amin(dim=1, keepdim=True), diagnostics.amax(dim=1, keepdim=True)
    return ((diagnostics - low) / (high - low + EPS)).mean(dim=2)


def select(diagnostics: Tensor) -> Tensor:
    """j* = argmax_j S^(j) per sample, the first in candidate order on ties: (batch,)."""
    s = scores(diagnostics)
    # argmax promises no order on ties, so the first maximum is found by counting.
    is_max = s == s.amax(dim=1, keepdim=True)
    first = is_max & (is_max.cumsum(dim=1) == 1)
    return first.to(torch.int64).argmax(dim=1)
