"""The registered example, examples/foresight.py: g of a linear operator in closed form."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Generator, Tensor

from hero.data.windows import Context
from hero.method.domain import fourier_modes
from hero.method.norm import Norm
from hero.method.rollout import rollout

POINTS, CHANNELS = 5, 2


def closed_form(a: Tensor, lengths: Tensor, left_out: int) -> Tensor:
    """g_k ∝ mean_n ‖v_n‖² Σ_{m ≥ n} |a_k|^{2(m-n)} / ‖v_m‖² of v_{n+1,k} = a_k v_{n,k}, scaled to mean 1."""
    horizon = len(lengths)
    used = range(max(1, horizon - left_out))
    terms = [(lengths[n] / lengths[m]) ** 2 * a.abs() ** (2 * (m - n)) for n in used for m in range(n, horizon)]
    g = torch.stack(terms).sum(0)
    return g / g.mean()


def test_g_of_a_linear_operator_is_known(foresight: ModuleType) -> None:
    """Each Fourier mode is damped or raised and turned by a phase; 3,000 equal trajectories make the mean a number."""
    n, horizon, count = 12, 12, 3000
    sizes, phases = torch.tensor([1.0, 1.1, 0.9, 0.6, 0.3, 0.05, 0.8]), torch.tensor([0, 1.0, 2, 0.5, 3, 1, 0])
    a = torch.polar(sizes, phases).to(torch.complex128)
    u = torch.randn(1, 1, 1, n, generator=Generator().manual_seed(0), dtype=torch.float64).expand(count, -1, -1, -1)

    def step(z: Context) -> Tensor:
        return torch.fft.irfft(torch.fft.rfft(z.states[:, -1]) * a, n=n)

    g = foresight.sensitivity(step, Context(u), horizon, fourier_modes((n,)), Generator().manual_seed(1), Norm())
    lengths = rollout(step, Context(u[:1]), horizon).square().mean(dim=(0, 2, 3)).sqrt()
    torch.testing.assert_close(g[0], closed_form(a, lengths, foresight.LEFT_OUT), rtol=0.06, atol=0)
    assert float(g.max() / g.min()) > 5
