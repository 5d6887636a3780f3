"""HERO on scattered points: a small message-passing operator learns anisotropic diffusion on an uneven point cloud.

    python examples/scattered_points.py --out scattered_points.png

The domain is the periodic unit square, seen only at 384 points that are four times as dense in the middle. Norms use
quadrature weights, the spectrum belongs to the neighbour graph, and the input is perturbed in that basis.
"""

from __future__ import annotations

import argparse
import time

import matplotlib as mpl
import torch
from torch import Tensor, nn

from hero import Context, Domain, Every, Hero, Ramp, as_stepper, get_task, rollout
from hero.data.tasks.solver import solve
from hero.method.distance import state_distance
from hero.method.domain import GraphSpectralNoise, PointCloud

mpl.use("Agg")
import matplotlib.pyplot as plt

UNROLL, BATCH, HORIZON = 5, 20, 100


def scatter_points(count: int, seed: int) -> Tensor:
    """Points of the periodic unit square, each as far as it can be from the others, four times as dense in a disc."""
    x = torch.rand(20 * count, 2, generator=torch.Generator().manual_seed(seed))
    spacing = torch.where((x - 0.5).norm(dim=1) < 0.3, 0.5, 1.0)
    chosen, gap = [0], torch.full((len(x),), torch.inf)
    while len(chosen) < count:
        away = (x - x[chosen[-1]]).abs()
        gap = torch.minimum(gap, torch.minimum(away, 1 - away).norm(dim=1) / spacing)
        chosen.append(int(gap.argmax()))
    return x[chosen]


def trajectories(points: Tensor, count: int, seed: int) -> Tensor:
    """True solutions at the points, by exact trigonometric interpolation: (count, HORIZON + 1, 1, P)."""
    task = get_task("anisotropic_diffusion", {"resolution": 16, "cutoff": 3})
    u = solve(task.stepper(), task.initial_states(count, seed), HORIZON)  # (count, time, 1, 16, 16)
    n = torch.fft.fftfreq(16, 1 / 16, dtype=torch.float64)
    wave = torch.exp(2j * torch.pi * points.double()[:, :, None] * n)  # exp(2πi n x), per axis: (P, 2, 16)
    u_hat = torch.fft.fft2(u, norm="forward")
    return torch.einsum("btcmn,pm,pn->btcp", u_hat, wave[:, 0], wave[:, 1]).real.float()


class MessagePassing(nn.Module):
    """u_i ← u_i + Σ_j [κ(x_j - x_i) + e_ij] (u_j - u_i) over the neighbours j of each point.

    κ is a network of the relative offset; e_ij, a number per edge, corrects for how the neighbours happen to lie.
    """

    def __init__(self, cloud: PointCloud, width: int = 32) -> None:
        super().__init__()
        offsets = cloud.offsets()
        self.register_buffer("neighbours", cloud.neighbours)  # (P, k)
        self.register_buffer("offsets", offsets / offsets.std())  # (P, k, 2)
        self.kappa = nn.Sequential(nn.Linear(2, width), nn.GELU(), nn.Linear(width, 1))
        self.edges = nn.Parameter(torch.zeros(cloud.neighbours.shape))
        nn.init.zeros_(self.kappa[-1].weight)  # training starts from u ← u
        nn.init.zeros_(self.kappa[-1].bias)

    def forward(self, u: Tensor) -> Tensor:  # (batch, 1, P)
        weight = self.kappa(self.offsets)[..., 0] + self.edges  # (P, k)
        return u + (weight * (u[..., self.neighbours] - u[..., None])).sum(-1)


def train(model: nn.Module, hero: Hero, data: Tensor, steps: int) -> None:
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    generator, begin = torch.Generator().manual_seed(0), time.perf_counter()
    state = hero.init()
    for step in range(steps):
        pick = torch.randint(len(data), (BATCH,), generator=generator)
        start = torch.randint(data.shape[1] - UNROLL, (BATCH, 1), generator=generator)
        window = data[pick[:, None], start + torch.arange(UNROLL + 1)]  # (batch, K+1, 1, P)
        loss, state, _ = hero(model, window[:, 0], window[:, 1:], state)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if (step + 1) % max(1, steps // 5) == 0:
            print(f"step {step + 1}/{steps}  loss {loss.item():.4f}  {time.perf_counter() - begin:.0f} s", flush=True)


def draw(points: Tensor, truth: Tensor, prediction: Tensor, errors: dict[str, Tensor], out: str) -> None:
    """Truth, prediction and error of one trajectory at four steps, and the error of the whole test set over time."""
    figure, axes = plt.subplots(3, 5, figsize=(13, 6.7), width_ratios=[1, 1, 1, 1, 1.6], layout="constrained")
    for column, step in enumerate((1, 10, 30, HORIZON)):
        u, v = truth[step - 1, 0], prediction[step - 1, 0]
        top = u.abs().max().item()
        for row, (name, field) in enumerate({"truth": u, "prediction": v, "error x 10": 10 * (v - u)}.items()):
            axis = axes[row, column]
            axis.scatter(*points.T, c=field, s=14, cmap="RdBu_r", vmin=-top, vmax=top)
            axis.set(xticks=[], yticks=[], aspect="equal", xlim=(0, 1), ylim=(0, 1))
            if row == 0:
                axis.set_title(f"step {step}, |u| ≤ {top:.2f}", fontsize=10)
            if column == 0:
                axis.set_ylabel(name)
    grid = axes[0, 4].get_gridspec()
    for axis in axes[:, 4]:
        axis.remove()
    curves = figure.add_subplot(grid[:, 4])
    for name, error in errors.items():
        curves.semilogy(range(1, HORIZON + 1), error.mean(0), label=name)
    curves.set(xlabel="rollout step", ylabel="weighted nRMSE, mean of the test set")
    curves.legend(frameon=False)
    figure.savefig(out, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1200, help="training steps")
    parser.add_argument("--out", default="scattered_points.png", help="where the picture goes")
    args = parser.parse_args()
    torch.manual_seed(0)

    points = scatter_points(384, seed=0)
    cloud = PointCloud(points, neighbours=12, period=1.0)
    data, test = trajectories(points, 40, seed=1), trajectories(points, 10, seed=2)
    model = MessagePassing(cloud)
    fifth = args.steps // 5
    domain = Domain(cloud.weights, cloud.amplitudes, GraphSpectralNoise(cloud, 0.01))
    hero = Hero(2 * args.steps // 5, refresh=Every(fifth), weight=Ramp(fifth), domain=domain)
    train(model, hero, data, args.steps)

    with torch.no_grad():
        prediction = rollout(as_stepper(model), Context(test[:, :1]), HORIZON)
    truth, persistence = test[:, 1:], test[:, :1].expand_as(test[:, 1:])
    errors = {
        "HERO": state_distance(prediction, truth, cloud.weights),
        "persistence (u stays as it is)": state_distance(persistence, truth, cloud.weights),
    }
    for name, error in errors.items():
        print(f"{name}: nRMSE@1 {error[:, 0].mean():.4f}, nRMSE@{HORIZON} {error[:, -1].mean():.4f}")
    draw(points, truth[0], prediction[0], errors, args.out)
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
