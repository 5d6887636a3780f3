"""What follows from a training window alone is computed once: its true spectrum, and how its lagged rollout fails.

The lagged operator is frozen between refreshes and the windows are finitely many, so its diagnostics are a few numbers
per window and refresh. Memory: 4 bytes x (1 + diagnostics) per window, and for the truth 4 bytes x K x coefficients.
The values equal the ones computed without a cache to the bit, because no sample of a batch depends on the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

LIMIT = 2**28
"""Bytes that one table may take; larger ones (spectra of big 3D fields) are computed each time instead."""


class WindowTable:
    """Rows by window number, filled as windows come by. Validity is kept on the host, so no device is waited for."""

    def __init__(self) -> None:
        self.rows: Tensor | None = None
        self.valid = bytearray()

    def clear(self) -> None:
        """Forget the rows and keep their memory."""
        self.valid[:] = bytes(len(self.valid))

    def get(self, index: Tensor, compute: Callable[[], Tensor]) -> Tensor:
        """The rows of the windows `index` (on the CPU); `compute` gives them all if one is missing."""
        numbers = index.tolist()
        self.valid.extend(bytes(max(0, max(numbers) + 1 - len(self.valid))))
        if self.rows is not None and all(map(self.valid.__getitem__, numbers)):
            return self.rows.index_select(0, index.to(self.rows.device))
        fresh = compute()
        if len(self.valid) * fresh[0].numel() * fresh.element_size() > LIMIT:
            return fresh
        if self.rows is None or len(self.rows) < len(self.valid):
            grown = fresh.new_empty(len(self.valid), *fresh.shape[1:])
            if self.rows is not None:
                grown[: len(self.rows)] = self.rows
            self.rows = grown
        self.rows[index.to(fresh.device)] = fresh
        for number in numbers:
            self.valid[number] = 1
        return fresh

    def nbytes(self) -> int:
        """Memory in use."""
        return 0 if self.rows is None else self.rows.numel() * self.rows.element_size()


@dataclass(frozen=True)
class WindowCache:
    """Tables by what their rows hold: of the truth, which stay, and of the lagged operator, until it is refreshed."""

    truth: defaultdict[Hashable, WindowTable] = field(default_factory=lambda: defaultdict(WindowTable))
    lagged: defaultdict[Hashable, WindowTable] = field(default_factory=lambda: defaultdict(WindowTable))

    def forget_lagged(self) -> None:
        """Start again after a refresh."""
        for table in self.lagged.values():
            table.clear()

    def nbytes(self) -> int:
        """Memory of all tables."""
        return sum(table.nbytes() for tables in (self.truth, self.lagged) for table in tables.values())


def is_cacheable(model: nn.Module) -> bool:
    """Whether a window always gives the same rollout: no module draws numbers, and none mixes the samples of a batch.

    Dropout and batch normalisation are known; other modules say so by an attribute `stochastic` or `mixes_batch`.
    """
    return not any(_draws(module) or _mixes(module) for module in model.modules())


def _draws(module: nn.Module) -> bool:
    """Whether two calls may differ: dropout layers and layers with dropout inside, in training."""
    if _attribute(module, "stochastic"):
        return True
    share = _attribute(module, "p" if isinstance(module, nn.modules.dropout._DropoutNd) else "dropout")
    return module.training and (isinstance(module, nn.RReLU) or (isinstance(share, int | float) and share > 0))


def _mixes(module: nn.Module) -> bool:
    """Whether samples of a batch depend on each other."""
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return module.training or module.running_mean is None
    return bool(_attribute(module, "mixes_batch"))


def _attribute(module: nn.Module, name: str) -> Any:
    """A plain attribute, None if there is none; `getattr` searches parameters and submodules, at every update."""
    return vars(module).get(name, getattr(type(module), name, None))
