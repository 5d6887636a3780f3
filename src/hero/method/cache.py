"""What depends on a training window alone is computed once: the truth's spectra, and the lagged operator's failures.

The lagged operator is frozen between refreshes and the windows are finitely many, so its diagnostics are a few numbers
per window and refresh. Memory: 4 bytes x (1 + diagnostics) per window, and for the truth 4 bytes x K x (1 +
coefficients) per window. The values are those of the uncached path to the bit, because no operator mixes samples.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

LIMIT = 2**28
"""Bytes that one table may take; larger ones (spectra of big 3D fields) are computed each time instead."""


class WindowTable:
    """Rows by window number, filled as windows come by. Validity is kept on the host, so no device is waited for."""

    def __init__(self) -> None:
        self.rows: Tensor | None = None
        self.valid = torch.zeros(0, dtype=torch.bool)

    def clear(self) -> None:
        """Forget everything, for example when the lagged operator is refreshed."""
        self.valid.zero_()

    def get(self, index: Tensor, compute: Callable[[], Tensor]) -> Tensor:
        """The rows of the windows `index` (on the CPU); `compute` gives them all if one is missing."""
        size = int(index.max()) + 1
        if size > len(self.valid):
            self.valid = torch.cat([self.valid, torch.zeros(size - len(self.valid), dtype=torch.bool)])
        if self.rows is not None and bool(self.valid[index].all()):
            return self.rows[index.to(self.rows.device)]
        fresh = compute()
        if len(self.valid) * fresh[0].numel() * fresh.element_size() > LIMIT:
            return fresh
        if self.rows is None or len(self.rows) < len(self.valid):
            grown = fresh.new_empty(len(self.valid), *fresh.shape[1:])
            if self.rows is not None:
                grown[: len(self.rows)] = self.rows
            self.rows = grown
        self.rows[index.to(fresh.device)] = fresh
        self.valid[index] = True
        return fresh

    def nbytes(self) -> int:
        """Memory in use."""
        return 0 if self.rows is None else self.rows.numel() * self.rows.element_size()


def is_stochastic(model: nn.Module) -> bool:
    """Whether two calls may differ: dropout is active, or the model says so with an attribute `stochastic`."""
    dropout = any(isinstance(m, nn.modules.dropout._DropoutNd) and m.training and m.p > 0 for m in model.modules())
    return dropout or bool(getattr(model, "stochastic", False))
