"""HERO in your own loop: an unmodified `neuralop.models.FNO` on Burgers, with your own checkpoints.

    pip install neuraloperator
    python examples/neuralop_fno.py                  # train, save, print the error of a 100-step rollout
    python examples/neuralop_fno.py --steps 2000     # resume from the checkpoint; the same bits as one long run

`Hero` takes the place of a loss function; its state (step, lagged weights) is saved next to the optimizer's.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from neuralop.layers.spectral_convolution import SpectralConv
from neuralop.models import FNO
from torch import Tensor

from hero import Context, Every, Hero, Ramp, as_stepper, get_task, load_split, rollout
from hero.data import Split
from hero.method.measures import nrmse, nrmse_at

UNROLL, BATCH = 5, 20

# neuralop keeps a description of the model among its weights; a safe load wants to know what that may name.
torch.serialization.add_safe_globals([SpectralConv, torch.nn.functional.gelu])


def window(data: Tensor, step: int) -> Tensor:
    """Batch `step`, which depends on its number alone, so that a resumed run sees the same: (batch, K+1, 1, 160)."""
    generator = torch.Generator().manual_seed(step)
    pick = torch.randint(len(data), (BATCH, 1), generator=generator)
    start = torch.randint(data.shape[1] - UNROLL, (BATCH, 1), generator=generator)
    return data[pick, start + torch.arange(UNROLL + 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000, help="training steps, those before a resume included")
    parser.add_argument("--start", type=int, default=400, help="step from which HERO compares with earlier weights")
    parser.add_argument("--checkpoint", type=Path, default=Path("neuralop_fno.pt"))
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the trajectories, made if missing")
    args = parser.parse_args()

    task = get_task("burgers")
    data = load_split(task, Split("train", 50, 50, seed=0), args.data)  # (50, 51, 1, 160)
    test = load_split(task, Split("test", 10, 100, seed=1), args.data)

    torch.manual_seed(0)
    model = FNO(n_modes=(28,), in_channels=1, out_channels=1, hidden_channels=28, n_layers=1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    hero = Hero(start=args.start, refresh=Every(200), weight=Ramp(200))
    hero_state = hero.init()
    first = 0
    if args.checkpoint.exists():
        state = torch.load(args.checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        hero_state = hero.load(state["hero"], model)
        first = state["step"]
        print(f"resumed at step {first}")

    begin = time.perf_counter()
    for step in range(first, args.steps):
        batch = window(data, step)
        loss, hero_state, _ = hero(model, batch[:, 0], batch[:, 1:], hero_state)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if (step + 1) % max(1, args.steps // 5) == 0:
            print(f"step {step + 1}/{args.steps}  loss {loss:.5f}  {time.perf_counter() - begin:.0f} s", flush=True)

    state = {
        "step": max(first, args.steps),
        "model": model.state_dict(),
        "optimiser": optimiser.state_dict(),
        "hero": hero_state.state_dict(),
    }
    torch.save(state, args.checkpoint)
    with torch.no_grad():
        prediction = rollout(as_stepper(model), Context(test[:, :1]), 100)
    errors = nrmse(prediction, test[:, 1:])
    print(f"nRMSE@1 {nrmse_at(errors, 1):.4f}, nRMSE@100 {nrmse_at(errors, 100):.4f}")


if __name__ == "__main__":
    main()
