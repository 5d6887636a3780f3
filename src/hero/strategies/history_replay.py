"""History replay, our own extension: the operator's past failures become training data with true answers.

At each refresh the operator as it then is, the lagged one, is rolled out far beyond the training window. States into
which it drifted join the batches as initial states, and the solver says how the dynamics really go on from there. HERO
lets history reweight the samples; here it makes them.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Generator, Tensor, nn

from hero.data.solver import solve
from hero.data.store import CHUNK_POINTS
from hero.errors import HeroError
from hero.method.rollout import Context, Stepper, norm, rollout
from hero.method.schedule import refresh_due
from hero.seeding import seed_of
from hero.strategies.base import Batch, Loss, Strategy
from hero.strategies.hero import Hero
from hero.strategies.push_forward import PushForward

if TYPE_CHECKING:
    from hero.runs.config import RunConfig

CHUNK_VALUES = 2**26
"""Numbers of a lagged rollout that are held at once."""


class HistoryReplay(Strategy):
    """L = ℓ over a batch of which the share p begins at drifted states v of G_θ̄ and aims at (S(v), S²(v), .., S^K(v)).

    The loss itself is that of push_forward, or of HERO, on the mixed batch.
    """

    sections: ClassVar[tuple[str, ...]] = ("history_replay", "hero")

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        self.settings = config.history_replay
        if self.settings.share > 1:
            raise HeroError(f"history_replay.share={self.settings.share:g} is more than a whole batch; give 1 or less.")
        if (self.settings.start or 0) >= config.train.steps:
            raise HeroError(
                f"history_replay.start={self.settings.start} is not below train.steps={config.train.steps}: nothing "
                "would be replayed; lower it."
            )
        self.base: Strategy = Hero(config) if self.settings.relative else PushForward(config)
        self.solver = cache(config.make_task().stepper)  # S, made once per device
        self.data: Tensor | None = None
        self.largest = torch.zeros(())  # of the norms of the training states
        self.buffer: Tensor | None = None  # windows (count, H+K, channel, *space), None before the first filling

    def begin(self, model: nn.Module, data: Tensor) -> None:
        super().begin(model, data)
        self.data, self.largest = data, norm(data).max()

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        settings = self.settings
        assert settings.start is not None
        assert settings.refresh is not None
        self.base.unroll = self.unroll
        rows = round(settings.share * len(batch.truth))
        if batch.step < settings.start or rows == 0:
            return self.base.loss(model, batch)
        solver_seconds = 0.0
        if self.data is not None and refresh_due(batch.step, settings.start, settings.refresh):
            self.buffer, solver_seconds = self.refilled(model, self.data, batch.step)
        size = 0 if self.buffer is None else len(self.buffer)
        rows = min(rows, size)
        loss = self.base.loss(model, self.mixed(batch, rows))
        about = {"replayed": rows / len(batch.truth), "buffer": float(size), "solver_seconds": solver_seconds}
        return Loss(loss.value, {**loss.statistics, **about})

    def mixed(self, batch: Batch, rows: int) -> Batch:
        """The batch with its last `rows` windows replaced by ones from the buffer; it has no window numbers."""
        # One tensor for past and future, as `Windows` makes it: compiled code asks for the same layout.
        window = torch.cat([batch.context.states, batch.truth], dim=1)
        if self.buffer is not None and rows:
            generator = Generator().manual_seed(seed_of(self.config.seed, "replayed", batch.step))
            chosen = torch.randperm(len(self.buffer), generator=generator)[:rows]
            window[-rows:] = self.buffer[chosen.to(window.device), : window.shape[1]]  # a curriculum shortens windows
        history = batch.context.states.shape[1]
        context = replace(batch.context, states=window[:, :history])
        return replace(batch, context=context, truth=window[:, history:], index=None)

    @torch.no_grad()
    def refilled(self, model: nn.Module, data: Tensor, step: int) -> tuple[Tensor, float]:
        """A new buffer from G_θ̄ = `model`, and the seconds that the solver took for it."""
        training = model.training
        contexts, i, t = self.drifted(self.stepper(model.eval()), data, step)
        model.train(training)
        begin = time.perf_counter()
        truth = self.data_labels(data, i, t) if self.settings.labels == "data" else self.solver_labels(contexts)
        windows = torch.cat([contexts, truth], dim=1)
        if len(windows):  # the solver too may fail where no true state has been
            windows = windows[self.sane(windows).all(dim=1)]
        return windows, time.perf_counter() - begin

    def drifted(self, stepper: Stepper, data: Tensor, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """An even draw of contexts (count, H, channel, *space) that end at û_t of trajectory i, with their i and t."""
        generator = Generator().manual_seed(seed_of(self.config.seed, "replay", step))
        # The largest keys are drawn: even among whatever turns out to be sane, and possible piece by piece.
        keys = torch.rand(len(data), self.settings.horizon, generator=generator).to(data.device)
        chunk = max(1, CHUNK_VALUES // (self.settings.horizon * data[0, 0].numel()))
        pieces = torch.arange(len(data), device=data.device).split(chunk)
        found = [self.candidates(stepper, data, rows, keys) for rows in pieces]
        contexts, i, t = (torch.cat(parts) for parts in zip(*found, strict=True))
        best = keys[i, t - 1].topk(min(self.settings.buffer, len(i))).indices
        return contexts[best], i[best], t[best]

    def candidates(self, stepper: Stepper, data: Tensor, rows: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the draw from the trajectories `rows` alone would give: û_t after t = 1 .. horizon steps of G_θ̄."""
        settings, history = self.settings, self.config.train.history
        first = data[rows, :history]
        tau = torch.cat([first, rollout(stepper, Context(first), settings.horizon)], dim=1)
        sane = self.sane(tau).unfold(1, history, 1)[:, 1:].all(dim=-1)  # (rows, horizon): all H states of a context
        if settings.labels == "data":
            sane[:, max(0, data.shape[1] - history - self.config.train.unroll) :] = False  # the future is not known
        i, t = sane.nonzero(as_tuple=True)
        best = keys[rows[i], t].topk(min(settings.buffer, len(i))).indices
        i, t = i[best], t[best] + 1
        return tau[i[:, None], t[:, None] + torch.arange(history, device=t.device)], rows[i], t

    def sane(self, states: Tensor) -> Tensor:
        """Which states (batch, time, channel, *space) are finite and of a believable size: (batch, time)."""
        return norm(states) <= self.settings.absurd * self.largest

    def solver_labels(self, contexts: Tensor) -> Tensor:
        """(S(v), .., S^K(v)) for the newest states v, solved in float64: (count, K, channel, *space)."""
        steps, solver = self.config.train.unroll, self.solver(contexts.device)
        if not len(contexts):
            return contexts.new_empty(0, steps, *contexts.shape[2:])
        # Pieces whose working set stays in the cache of a CPU, as where the data are made.
        chunk = max(1, CHUNK_POINTS // contexts[0, 0, 0].numel()) if contexts.device.type == "cpu" else len(contexts)
        return torch.cat([solve(solver, v, steps)[:, 1:].to(v.dtype) for v in contexts[:, -1].split(chunk)])

    def data_labels(self, data: Tensor, i: Tensor, t: Tensor) -> Tensor:
        """(u_{t+1}, .., u_{t+K}) of trajectory i, as if nothing had drifted: (count, K, channel, *space)."""
        newest = self.config.train.history - 1 + t
        return data[i[:, None], newest[:, None] + 1 + torch.arange(self.config.train.unroll, device=t.device)]

    def state_dict(self) -> dict[str, Any]:
        return {**self.base.state_dict(), "buffer": self.buffer}

    def load_state_dict(self, state: dict[str, Any], model: nn.Module) -> None:
        self.base.load_state_dict(state, model)
        self.buffer = state["buffer"]
