"""HERO with history, channels and conditioning: one operator for Burgers at any viscosity.

    python examples/conditioned.py

The context is two states (H = 2) of two channels, u and its slope u_x, and μ, the logarithm of the viscosity, a scalar
that is broadcast over space. Training sees three viscosities; the table has two more, in between. A perturbation that
reports what it did shows that HERO's perturbed candidate changes the states and never μ.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from torch import Generator, Tensor

from hero import FNO, Context, Domain, Every, Hero, Ramp, SpectralNoise, as_stepper, get_task, load_split, rollout
from hero.data import Split
from hero.method.measures import nrmse, nrmse_at

HISTORY, CHANNELS, UNROLL, BATCH, HORIZON = 2, 2, 5, 20, 50
SEEN, UNSEEN = (2e-3, 4e-3, 8e-3), (2.8e-3, 5.6e-3)


def trajectories(viscosity: float, split: Split, directory: Path) -> Tensor:
    """(trajectories, steps+1, 2, 64): u, and the slope u_x / 8π by an exact spectral derivative."""
    u = load_split(get_task("burgers", {"viscosity": viscosity, "resolution": 64, "cutoff": 3}), split, directory)
    n = torch.arange(u.shape[-1] // 2 + 1)
    return torch.cat([u, torch.fft.irfft(1j * n * torch.fft.rfft(u)) / 4], dim=2)


def conditioning(viscosity: float, count: int) -> Tensor:
    """μ = log2(viscosity / 4e-3), between -1 and 1: (count, 1)."""
    return torch.full((count, 1), viscosity / 4e-3).log2()


def window(data: Tensor, mu: Tensor, generator: Generator) -> tuple[Context, Tensor]:
    """A batch of contexts (batch, H, 2, x; μ) and their futures (batch, K, 2, x)."""
    pick = torch.randint(len(data), (BATCH,), generator=generator)
    start = torch.randint(data.shape[1] - HISTORY - UNROLL + 1, (BATCH, 1), generator=generator)
    states = data[pick[:, None], start + torch.arange(HISTORY + UNROLL)]
    return Context(states[:, :HISTORY], mu[pick]), states[:, HISTORY:]


class Watched:
    """A perturbation that keeps how far it ever moved the states and μ."""

    def __init__(self, perturbation: SpectralNoise) -> None:
        self.perturbation, self.states, self.mu = perturbation, 0.0, 0.0

    def __call__(self, context: Context, generator: Generator) -> Context:
        out = self.perturbation(context, generator)
        self.states = max(self.states, float((out.states - context.states).abs().max()))
        self.mu = max(self.mu, float((out.mu - context.mu).abs().max()))
        return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2500, help="training steps")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the trajectories, made if missing")
    args = parser.parse_args()

    train = Split("train", 30, HORIZON, seed=0)
    data = torch.cat([trajectories(v, train, args.data) for v in SEEN])
    mu = torch.cat([conditioning(v, train.trajectories) for v in SEEN])

    torch.manual_seed(0)
    model = FNO(in_channels=HISTORY * CHANNELS + 1, out_channels=CHANNELS, width=24, modes=(16,), depth=1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, args.steps)
    watched = Watched(SpectralNoise(0.01))
    fifth = args.steps // 5
    hero = Hero(2 * fifth, refresh=Every(fifth), weight=Ramp(fifth), domain=Domain(perturbation=watched))
    state = hero.init()
    generator, begin = Generator().manual_seed(0), time.perf_counter()
    for step in range(args.steps):
        context, truth = window(data, mu, generator)
        loss, state, _ = hero(model, context, truth, state)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if (step + 1) % max(1, fifth) == 0:
            print(f"step {step + 1}/{args.steps}  loss {loss:.4f}  {time.perf_counter() - begin:.0f} s", flush=True)

    print(f"largest change by the perturbation: states {watched.states:.3g}, mu {watched.mu:.3g}")
    print(f"viscosity  in training  nRMSE@1  nRMSE@{HORIZON - 1}  the same with mu = 0")
    for viscosity in sorted(SEEN + UNSEEN):
        test = trajectories(viscosity, Split("test", 10, HORIZON, seed=1), args.data)
        errors = []
        for mu in (conditioning(viscosity, len(test)), torch.zeros(len(test), 1)):
            with torch.no_grad():
                prediction = rollout(as_stepper(model), Context(test[:, :HISTORY], mu), HORIZON - 1)
            errors.append(nrmse(prediction, test[:, HISTORY:]))
        values = [nrmse_at(errors[0], 1), nrmse_at(errors[0], HORIZON - 1), nrmse_at(errors[1], HORIZON - 1)]
        seen = "yes" if viscosity in SEEN else "no"
        print(f"{viscosity:9.1e}  {seen:>11}  {values[0]:7.4f}  {values[1]:8.4f}  {values[2]:20.4f}")


if __name__ == "__main__":
    main()
