"""Results that depend on a training window alone are computed once: its true spectrum, and its lagged rollout.

The lagged operator is frozen between refreshes and the windows are finitely many, so its diagnostics are a few numbers
per window and refresh. Memory: 4 bytes x (1 + diagnostics) per window, and for the truth 4 bytes x K x coefficients.
The values equal the ones computed without a cache to the bit, because no sample of a batch depends on the others;
a 3D Transolver, whose last bit depends on the size of the batch, agrees up to rounding. The cache is not part of a
checkpoint, and is off for windows without a number and under dropout.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from hero.parallel import batch_index, gathered

LIMIT = 2**28  # bytes that one table may take; larger ones (spectra of big 3D fields) are computed each time instead


class WindowTable:
    """Rows by window number, filled as windows come by. Validity is kept on the host, so no device is waited for."""

    def __init__(self) -> None:
        self.rows: Tensor | None = None
        self.valid = bytearray()

    def clear(self) -> None:
        """Forget the rows and keep their memory."""
        self.valid[:] = bytes(len(self.valid))

    def get(self, index: Tensor | None, compute: Callable[[], Tensor]) -> Tensor:
        """The rows of the windows `index` (on the CPU, None: not numbered); `compute` gives all if one is missing.

        Processes that share a batch keep the rows of all of it, so that a window may come to any of them again.
        """
        if index is None:
            return compute()
        whole = batch_index(index)
        numbers = whole.tolist()
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
        self.rows[whole.to(fresh.device)] = gathered(fresh)
        for number in numbers:
            self.valid[number] = 1
        return fresh


@dataclass(frozen=True)
class WindowCache:
    """Tables of the truth, which stay, and of the lagged operator, until it is refreshed; by the content of a row."""

    truth: defaultdict[Hashable, WindowTable] = field(default_factory=lambda: defaultdict(WindowTable))
    lagged: defaultdict[Hashable, WindowTable] = field(default_factory=lambda: defaultdict(WindowTable))

    def nbytes(self) -> int:
        rows = [table.rows for table in (*self.truth.values(), *self.lagged.values())]
        return sum(0 if r is None else r.numel() * r.element_size() for r in rows)


def is_cacheable(model: nn.Module) -> bool:
    """Whether a window always gives the same rollout: no module draws numbers, and none mixes the samples of a batch.

    Dropout and batch normalisation are known; other modules say so by an attribute `stochastic` or `mixes_batch`.
    """
    for m in model.modules():
        dropout = m.p if isinstance(m, _DropoutNd) else getattr(m, "dropout", 0)  # a layer, or inside of one
        draws = isinstance(m, nn.RReLU) or (isinstance(dropout, int | float) and dropout > 0)
        if (draws and m.training) or mixes_samples(m) or getattr(m, "stochastic", False):
            return False
    return True


def mixes_samples(module: nn.Module) -> bool:
    """Whether the output of a module for a sample depends on the rest of the batch."""
    normalises = isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)
    return normalises or bool(getattr(module, "mixes_batch", False))
