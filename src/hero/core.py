"""The method alone, for a training loop of your own: it imports torch and numpy, and nothing else."""

from hero.data.windows import Context as Context, Windows as Windows
from hero.method.candidates import (
    CANDIDATES as CANDIDATES,
    Cached as Cached,
    Candidate as Candidate,
    FailureReference as FailureReference,
)
from hero.method.diagnostics import DIAGNOSTICS as DIAGNOSTICS, Diagnostic as Diagnostic
from hero.method.domain import (
    Domain as Domain,
    SpectralNoise as SpectralNoise,
    cosine_modes as cosine_modes,
    fourier_modes as fourier_modes,
    graph_modes as graph_modes,
)
from hero.method.losses import LOSSES as LOSSES, Balanced as Balanced
from hero.method.objective import (
    Every as Every,
    FixedWeight as FixedWeight,
    Hero as Hero,
    Margin as Margin,
    Ramp as Ramp,
)
from hero.method.rollout import as_stepper as as_stepper, rollout as rollout, unroll as unroll
from hero.models.fno import FNO as FNO
from hero.models.transolver import Transolver as Transolver
from hero.optimizers.soap import SOAP as SOAP
