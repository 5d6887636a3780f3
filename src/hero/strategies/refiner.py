"""PDE-Refiner (Lippe et al. 2023): predict a step, then remove noise of falling, known amplitude from the prediction.

One network does both: f_θ(z_n, guess, k) sees the context, a guess of its target, and the index k of the call.
The target is y = (u_{n+1} - u_n) / w, of order one, noised as in the authors' released code (pdearena), which
differs from the pseudocode of their paper in more than notation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from hero.config import Settings, setting
from hero.data.windows import Batch, Context, Trajectories
from hero.errors import HeroError
from hero.method.rollout import Stepper
from hero.models.wrappers import Kept, Masked, Normalised, per_channel
from hero.parallel import draw
from hero.seeding import seed_of
from hero.strategies.base import Compiler, Loss, Setup, Strategy


class Diffusion:
    """A diffusion model with T = K + 1 times; t = K comes first, from noise alone. Tables are float64, cast where used.

    β_t = s^((K-t)/K), ᾱ_t = Π_{i≤t} (1 - β_i), so that ᾱ_K = 0; s is the least noise, a variance.
    """

    def __init__(self, steps: int, noise: float) -> None:
        t = torch.arange(steps + 1, dtype=torch.float64)
        self.beta = noise ** ((steps - t) / steps)
        logarithm = torch.log1p(-self.beta).cumsum(0)  # 1 - ᾱ keeps its digits where ᾱ is almost 1
        self.alpha_bar, rest = logarithm.exp(), -logarithm.expm1()
        self.signal, self.noise = self.alpha_bar.sqrt(), rest.sqrt()
        before = torch.cat([torch.ones(1, dtype=torch.float64), self.alpha_bar[:-1]])
        rest_before = torch.cat([torch.zeros(1, dtype=torch.float64), rest[:-1]])
        self.c_0 = before.sqrt() * self.beta / rest
        self.c_s = (1 - self.beta).sqrt() * rest_before / rest
        self.variance = rest_before * self.beta / rest

    def corrupt(self, y: Tensor, k: Tensor, epsilon: Tensor) -> tuple[Tensor, Tensor]:
        """y_t = √ᾱ_t y + √(1-ᾱ_t) ε  and the velocity  v = √ᾱ_t ε - √(1-ᾱ_t) y."""
        signal, noise = rows(self.signal, k, y), rows(self.noise, k, y)
        return signal * y + noise * epsilon, signal * epsilon - noise * y

    def sample(self, network: Callable[[Tensor, int], Tensor], like: Tensor, generator: Generator | None) -> Tensor:
        """z ~ N(0, I); for t = K .. 0:  x̂₀ = √ᾱ_t z - √(1-ᾱ_t) v̂,  z ← c₀ x̂₀ + c_s z + √variance ξ.

        c₀ = √ᾱ_{t-1} β_t / (1-ᾱ_t),  c_s = √(1-β_t) (1-ᾱ_{t-1}) / (1-ᾱ_t),  variance = (1-ᾱ_{t-1}) β_t / (1-ᾱ_t),
        with ᾱ_{-1} = 1: the last x̂₀ is the result. `network(guess, t)` is f_θ(z_n, guess, t) for a fixed context.
        """
        z = x_0 = noise_like(like, generator)
        for t in reversed(range(len(self.beta))):
            x_0 = float(self.signal[t]) * z - float(self.noise[t]) * network(z, t)
            if t > 0:
                xi = noise_like(like, generator)
                z = float(self.c_0[t]) * x_0 + float(self.c_s[t]) * z + float(self.variance[t].sqrt()) * xi
        return x_0


def rows(table: Tensor, k: Tensor, like: Tensor) -> Tensor:
    """table[k_b] for every sample b, to be multiplied with `like` (batch, channel, *space)."""
    return table.to(like.dtype).to(like.device)[k].reshape(-1, *(1,) * (like.dim() - 1))


def noise_like(like: Tensor, generator: Generator | None) -> Tensor:
    return draw(torch.randn, like.shape, generator=generator, device=like.device, dtype=like.dtype)


class RefinedOperator(Normalised):
    """G_θ(z_n) = u_n + w ŷ, with ŷ from K + 1 calls of the backbone, whose input is [states | guess | k/K].

    The index k enters as one constant input channel, the minimum any backbone accepts.
    """

    w: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        diffusion: Diffusion,
        channels: int,
        history: int = 1,
        scaled: bool = False,
        conditioning: int = 0,
    ) -> None:
        super().__init__(backbone, channels, history, conditioning)
        self.diffusion, self.scaled = diffusion, scaled
        self.register_buffer("w", torch.ones(channels))

    def fit(self, data: Trajectories | Tensor) -> None:
        """Take the scales from the training data: w is the standard deviation of y w, or 1 where that is 0."""
        data = Trajectories.of(data)
        std = data.step_std()
        self.w.copy_(torch.where(std > 0, std, 1.0))  # equal changes everywhere have no size to compare with
        if self.scaled:
            super().fit(data)

    def forward(self, x: Tensor, generator: Generator | None = None) -> Tensor:
        """One step (batch, H*channels, *space) -> (batch, channels, *space); without a generator, torch's own draws."""
        if torch.compiler.is_exporting():
            raise HeroError(
                "a step of the strategy refiner draws random numbers, which no exported file can; "
                "roll the run itself out with `hero predict RUN`."
            )

        def network(guess: Tensor, k: int) -> Tensor:
            out: Tensor = self.backbone(self.conditioned(x, guess, torch.full((len(x),), k, device=x.device)).inputs())
            return out

        newest = x[:, self.newest]
        return newest + per_channel(self.w, x) * self.diffusion.sample(network, newest, generator)

    def target(self, x: Tensor, following: Tensor) -> Tensor:
        """y = (u_{n+1} - u_n) / w."""
        return (following - x[:, self.newest]) / per_channel(self.w, x)

    def conditioned(self, x: Tensor, guess: Tensor, k: Tensor) -> Context:
        """The input of the backbone as a context: the states normalised, guess and index follow μ."""
        states, mu = self.normalise(x)
        last = len(self.diffusion.beta) - 1
        index = (k.to(x.dtype) / last).reshape(-1, *(1,) * (x.dim() - 1)).expand_as(guess[:, :1])
        if isinstance(self.backbone, Masked):
            guess = torch.where(self.backbone.mask, guess, 0.0)
        return Context(states.unflatten(1, (self.history, self.channels)), torch.cat([mu, guess, index], dim=1))


class RefinerSettings(Settings):
    """PDE-Refiner."""

    steps: int = setting(3, "K, refinements per predicted step; the network is called K + 1 times.", ge=1, stated=False)
    noise: float = setting(4e-7, "Minimum noise, a variance, to which it falls from 1.", gt=0, lt=1, stated=False)


class Refiner(Strategy[RefinerSettings]):
    """Denoising of the first step of each window; at test time K refinements of every predicted step."""

    title: ClassVar[str] = "PDE-Refiner"
    suffix: ClassVar[str | None] = "-Ref."
    unrolls: ClassVar[bool] = False
    section: ClassVar[str] = "refiner"
    Settings: ClassVar[type[Settings]] = RefinerSettings
    ema: ClassVar[float] = 0.995

    def __init__(self, setup: Setup, compile_with: Compiler | None = None) -> None:
        super().__init__(setup, compile_with)
        if setup.residual:
            raise HeroError(
                "backbone.residual=true is not for the strategy refiner, whose network gives noise as well as changes; "
                "leave it out."
            )
        if self.train.bundle > 1:
            raise HeroError(
                f"train.bundle={self.train.bundle} is not for the strategy refiner, which refines one step at a "
                "time; leave it at 1."
            )

    def operator(self, backbone: Callable[[int, int], nn.Module], channels: int) -> nn.Module:
        train, refiner, source = self.train, self.settings, self.setup.source
        conditioning, masks = len(source.known), int(source.masked and train.mask_input)
        network = backbone((train.history + 1) * channels + conditioning + 1 + masks, channels)
        if source.masked:
            network = Masked(network, channels, source.space, train.history, train.mask_input)
        diffusion = Diffusion(refiner.steps, refiner.noise)
        return RefinedOperator(network, diffusion, channels, train.history, train.normalise, conditioning)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """The mean squared error whatever train.loss says: a distance relative to a target that is noise means nothing.

        k is drawn uniformly from {0, ..., K} for every sample.
        """
        x = batch.context.inputs()
        y = refined(model).target(x, batch.truth[:, 0])
        k = draw(partial(torch.randint, self.settings.steps + 1), (len(y),), generator=batch.generator, device=y.device)
        return Loss(self.error(refined(model), x, y, k, noise_like(y, batch.generator)), {})

    def error(self, model: RefinedOperator, x: Tensor, y: Tensor, k: Tensor, epsilon: Tensor) -> Tensor:
        """mean (f_θ(z_n, guess, k) - target)²; only the call of the network goes through `unroll`, to be compiled."""
        guess, target = model.diffusion.corrupt(y, k, epsilon)
        prediction = self.unroll(model.backbone, model.conditioned(x, guess, k), 1)[:, 0]
        return self.norm.counted(prediction - target).square().mean()

    def stepper(self, model: nn.Module) -> Stepper:
        """Seeded on construction, so that each new stepper gives the same rollouts.

        Numbers are drawn for a whole batch at once: the numbers of a trajectory depend on the rest of its batch.
        """
        generator = Generator(device=next(model.parameters()).device)
        generator.manual_seed(seed_of(self.seed, "refine"))

        def step(context: Context) -> Tensor:
            x = context.inputs()
            made = refined(model)(x, generator)
            return model.project(made, x) if isinstance(model, Kept) else made

        return step


def refined(model: nn.Module) -> RefinedOperator:
    """The operator that this strategy has built, without what keeps its invariants."""
    inner = model.backbone if isinstance(model, Kept) else model
    assert isinstance(inner, RefinedOperator)
    return inner
