"""The law of the initial states: random truncated Fourier series, zero mean, largest magnitude one."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor


def initial_states(dims: int, resolution: int, cutoff: int, count: int, seed: int) -> Tensor:
    """u(x) = Re Σ_n A_n exp(i φ_n) exp(2πi n·x/extent) / max|u|, shape (count, 1, *space), float64.

    The sum runs over |n_j| <= cutoff on every axis (n >= 0 on the last, as u is real) without n = 0; A_n is uniform on
    (-1, 1) and φ_n on (0, 2π). Each state has its own random stream, keyed by (seed, index), and its coefficients do
    not depend on the resolution: a seed names the same field on every grid, up to where the grid samples the maximum.
    """
    block = (2 * cutoff + 1,) * (dims - 1) + (cutoff + 1,)
    modes = np.meshgrid(*[np.arange(n) - (n - 1 - cutoff) for n in block], indexing="ij")
    place = tuple(n % resolution for n in modes)
    states = torch.empty(count, 1, *(resolution,) * dims, dtype=torch.float64)
    for i in range(count):
        amplitude, phase = np.random.default_rng([seed, i]).random((2, *block))
        coefficients = (2 * amplitude - 1) * np.exp(2j * math.pi * phase)
        coefficients[sum(n**2 for n in modes) == 0] = 0
        spectrum = np.zeros((resolution,) * dims, dtype=np.complex128)
        spectrum[place] = coefficients
        u = np.fft.ifftn(spectrum).real
        states[i, 0] = torch.from_numpy(u / np.abs(u).max())
    return states
