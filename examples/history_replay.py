"""History replay, a worked example of your own strategy: the operator's past failures become training data.

    cd examples
    hero train kuramoto_sivashinsky --strategy history_replay:HistoryReplay --set history_replay.share=0.2

At each refresh the operator as it then is, the lagged one, is rolled out far beyond the training window. States into
which it drifted join the batches as initial states, and the solver continues them: a target within reach. HERO lets
history reweight samples; here history makes samples. It showed no sure gain (docs/strategies/README.md), which is why
it is an example and not a part of hero.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Annotated, Any, ClassVar

import torch
from torch import Generator, Tensor, nn

from hero import config
from hero.config import Settings, setting
from hero.data.tasks.solver import solve
from hero.data.windows import Batch, Context, Trajectories
from hero.errors import HeroError
from hero.method.distance import norm
from hero.method.objective import Every
from hero.method.rollout import Stepper, rollout
from hero.seeding import seed_of
from hero.strategies.base import Compiler, Loss, Setup, Strategy


class HistoryReplaySettings(Settings):
    """Drifted states of a lagged operator with true continuations."""

    share: float = setting(0.5, "p, the part of each batch that is replayed.", ge=0, le=1)
    horizon: int = setting(100, "Steps that the lagged operator is rolled out from the training states.", ge=1)
    start: Annotated[int, config.share(0.1, least=0)] = setting("First update with a buffer.", ge=0)
    refresh: Annotated[int, config.share(0.05)] = setting("Updates between two fillings of the buffer.", ge=1)
    buffer: int = setting(500, "Drifted states kept.", ge=1)
    largest: float = setting(3.0, "States larger than this times the largest training state are left out.", gt=0)


class HistoryReplay(Strategy[HistoryReplaySettings]):
    """L = D over a batch of which the share p begins at drifted states v of G_θ̄; their targets are S(v), .., S^K(v)."""

    title: ClassVar[str] = "History replay"
    suffix: ClassVar[str] = "-replay"
    section: ClassVar[str] = "history_replay"
    Settings: ClassVar[type[Settings]] = HistoryReplaySettings

    def __init__(self, setup: Setup, compile_with: Compiler | None = None) -> None:
        super().__init__(setup, compile_with)
        if self.settings.start >= self.train.steps:
            raise HeroError(
                f"history_replay.start={self.settings.start} is not below train.steps={self.train.steps}: nothing "
                "would be replayed; lower it."
            )
        self.solver = cache(setup.source.stepper)  # S, made once per device
        self.data: Tensor | None = None
        self.largest = torch.zeros(())  # of the norms of the training states
        self.buffer: Tensor | None = None  # windows (count, H+K, channel, *space), None before the first filling

    def begin(self, model: nn.Module, data: Trajectories) -> None:
        super().begin(model, data)
        self.data, self.largest = data.states, norm(data.states).max()

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        settings = self.settings
        if self.data is not None and Every(settings.refresh)(batch.step - settings.start):
            self.buffer = self.refilled(model, self.data, batch.step)
        size = 0 if self.buffer is None else len(self.buffer)
        rows = min(round(settings.share * len(batch.truth)), size)
        batch = self.mixed(batch, rows) if rows else batch
        tau = self.unroll(model, batch.context, batch.truth.shape[1])
        return Loss(self.absolute(tau, batch.truth), {"replayed": rows / len(batch.truth), "buffer": float(size)})

    def mixed(self, batch: Batch, rows: int) -> Batch:
        """The batch with its last `rows` windows replaced by ones from the buffer; it has no window numbers."""
        # One tensor for past and future, as `Batches` makes it: compiled code asks for the same layout.
        window = torch.cat([batch.context.states, batch.truth], dim=1)
        if self.buffer is not None:
            generator = Generator().manual_seed(seed_of(self.seed, "replayed", batch.step))
            chosen = torch.randperm(len(self.buffer), generator=generator)[:rows]
            window[-rows:] = self.buffer[chosen.to(window.device), : window.shape[1]]  # a curriculum shortens windows
        history = batch.context.states.shape[1]
        context = replace(batch.context, states=window[:, :history])
        return replace(batch, context=context, truth=window[:, history:], index=None)

    @torch.no_grad()
    def refilled(self, model: nn.Module, data: Tensor, step: int) -> Tensor:
        """A new buffer from G_θ̄ = `model`: windows of drifted contexts and their true continuations."""
        training = model.training
        contexts = self.drifted(self.stepper(model.eval()), data, step)
        model.train(training)
        windows = torch.cat([contexts, self.labels(contexts)], dim=1)
        return windows[self.sane(windows).all(dim=1)] if len(windows) else windows  # the solver too may fail there

    def drifted(self, stepper: Stepper, data: Tensor, step: int) -> Tensor:
        """Contexts (count, H, channel, *space) that end at û_t, t = 1 .. horizon, drawn uniformly from sane ones."""
        history, horizon = self.train.history, self.settings.horizon
        first = data[:, :history]
        tau = torch.cat([first, rollout(stepper, Context(first), horizon)], dim=1)
        sane = self.sane(tau).unfold(1, history, 1)[:, 1:].all(dim=-1)  # (trajectory, horizon): all H states
        i, t = sane.nonzero(as_tuple=True)
        generator = Generator().manual_seed(seed_of(self.seed, "replay", step))
        chosen = torch.randperm(len(i), generator=generator)[: self.settings.buffer].to(i.device)
        i, t = i[chosen], t[chosen] + 1
        return tau[i[:, None], t[:, None] + torch.arange(history, device=t.device)]

    def sane(self, states: Tensor) -> Tensor:
        """Which states (batch, time, channel, *space) are finite and of a plausible size: (batch, time)."""
        return norm(states) <= self.settings.largest * self.largest

    def labels(self, contexts: Tensor) -> Tensor:
        """(S(v), .., S^K(v)) for the newest states v, solved in float64: (count, K, channel, *space)."""
        if not len(contexts):
            return contexts.new_empty(0, self.train.unroll, *contexts.shape[2:])
        solver = self.solver(contexts.device)
        return solve(solver, contexts[:, -1], self.train.unroll)[:, 1:].to(contexts.dtype)

    def state_dict(self) -> dict[str, Any]:
        return {"buffer": self.buffer}

    def load_state_dict(self, state: dict[str, Any], model: nn.Module) -> None:
        self.buffer = state["buffer"]
