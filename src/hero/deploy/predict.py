"""States in a file -> their rollout in a file, by a run or by a file exported from it, in constant memory.

The rollout is made and written in blocks of time, for all trajectories; the errors are measured on the way where the
file holds the truth of these steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from hero.console import progress_bar
from hero.data.trajectories import Trajectories
from hero.deploy.model_folder import Operator, find_model, open_model
from hero.deploy.outputs import Output, check_output, create
from hero.deploy.starts import described, starting_states
from hero.errors import HeroError
from hero.evaluation.measure import StreamedErrors
from hero.method.rollout import counted, rollout
from hero.runs.folder import Run, choose_device
from hero.runs.stored import is_run

BLOCK_BYTES = 2**26  # bytes of a block of time, which is held in memory twice while it is written
BLOCK_STEPS = 256  # the most that an interrupt can cost
CHUNK_BYTES = 2**20  # bytes of the states of a trajectory that are stored together
ROOM = 0.1  # share of the range of the training data that is added on both sides: test states may lie a little outside
CALL_VALUES = 2**22  # numbers in the states of one call: activations are many times as large


@dataclass(frozen=True)
class Prediction:
    """A rollout that was written; its shape is (batch, time, channel, *space)."""

    path: Path
    shape: tuple[int, ...]
    seconds: float
    diverged: int  # trajectories that left the finite range
    outside: int | None  # trajectories that left the range of the training data by more than `ROOM`; None: not known
    steps: int  # steps asked for; the file has fewer after an interrupt, or if every trajectory left the finite range
    interrupted: bool = False
    errors: dict[str, Tensor] = field(default_factory=dict)  # measures (batch, time) as far as the truth is known
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return self.shape[1] == self.steps


def predict(
    model: str,
    runs_dir: Path,
    data_dir: Path,
    source: Path | None = None,
    steps: int = 200,
    out: Path = Path("predictions.npz"),
    trajectories: int | None = None,
    trust_code: bool = False,
) -> Prediction:
    """Roll out `model` (a run, a model folder, an .onnx, .pt2 or .aot file) from the states in `source`.

    By default it begins at the test states. The rollout ends early when every trajectory has left the finite range, and
    after Ctrl-C; `out` then holds the steps up to there. If there are none, it is not written. Code that `model` holds
    or names is run only with `trust_code`.
    """
    if source is not None and out.resolve() == source.resolve():
        raise HeroError(f"{out} is the input and would be overwritten; use another `out`.")
    if steps < 1:
        raise HeroError(f"`steps` {steps} is too small; it must be at least 1.")
    check_output(out, ())
    path = find_model(model, runs_dir)
    operator = open_model(path, trust_code=trust_code)
    if is_run(path):
        operator.to(choose_device(Run(path).config.train.device))
    data, notes = starting_states(operator.card, data_dir, source, trajectories)
    return RolloutWriter(operator, data, steps, notes).into(out)


class NothingToKeep(Exception):
    """No step is worth writing."""


class RolloutWriter:
    """A rollout under way: the contexts of all trajectories, and the step at which each left the finite range."""

    def __init__(self, operator: Operator, data: Trajectories, steps: int, notes: Sequence[str] = ()) -> None:
        """From the first states of `data`; whatever follows them is the truth."""
        self.operator, self.data, self.steps, self.notes = operator, data, steps, list(notes)
        card = operator.card
        self.context = data.window(0, card.history, 1).to("cpu")
        known = data.forced_states - card.history + 1
        if card.forcing and known < steps:
            raise HeroError(
                f"the forcing ({', '.join(card.forcing)}) is given for {known} steps, and `steps` is {steps}; "
                "give it for every step, or ask for fewer."
            )
        self.shape = (len(self.context.states), steps, *self.context.states.shape[2:])
        self.chunk, self.block = block_sizes(self.shape, card.bundle)
        self.bad = torch.full((self.shape[0],), torch.inf)
        """The first step that is not finite."""
        self.outside = torch.zeros(self.shape[0], dtype=torch.bool)
        band = torch.tensor(card.band or ((-math.inf, math.inf),)).reshape(-1, 2, *(1,) * len(card.grid))
        self.middle = band.mean(dim=1).nan_to_num()
        self.reach = (0.5 + ROOM) * (band[:, 1] - band[:, 0])
        self.norm = card.measured()
        self.errors = StreamedErrors(self.norm)

    def into(self, path: Path) -> Prediction:
        check_output(path, self.shape)
        self.step = self.operator.stepper_for(self.shape[0], self.steps)
        clock, interrupted, made = time.perf_counter(), False, 0
        about = described(self.operator.card, self.context.mu)
        with suppress(NothingToKeep), create(path, self.shape, about, self.chunk) as output:
            try:
                with progress_bar("predicting", self.shape[0] * self.steps) as advance:
                    self.fill(output, advance)
            except KeyboardInterrupt:
                interrupted = True
            if bool(self.bad.isfinite().all()):
                output.written = int(self.bad.max()) - 1
            made = output.written
            if not made:
                raise NothingToKeep
        seconds = time.perf_counter() - clock
        shape = (self.shape[0], made, *self.shape[2:])
        diverged = int(self.bad.isfinite().sum())
        outside = int((self.outside | self.bad.isfinite()).sum()) if self.operator.card.band else None
        errors, notes = self.errors.values, tuple(self.notes)
        return Prediction(path, shape, seconds, diverged, outside, self.steps, interrupted, errors, notes)

    @torch.no_grad()
    def fill(self, output: Output, advance: Callable[[int], None]) -> None:
        """Block after block, until the end or until nothing finite is left."""
        while output.written < self.steps and not bool(self.bad.isfinite().all()):
            first = output.written
            block = self.next_block(first, min(self.block, self.steps - first), advance)
            finite = self.norm.without_masked(block).isfinite().flatten(2).all(dim=2)
            here = torch.where(finite.all(dim=1), torch.inf, first + 1 + finite.logical_not().int().argmax(dim=1))
            self.bad = torch.minimum(self.bad, here)
            self.outside |= self.norm.without_masked(block - self.middle).abs().gt(self.reach).flatten(1).any(dim=1)
            self.compare(block, first)
            output.append(self.norm.hidden(block).numpy())

    def forcing(self, first: int, steps: int) -> Tensor | None:
        """The forcing of the steps after `first`; of those that a call makes too many, the last one known."""
        data, rows = self.data, torch.arange(self.shape[0])
        first += self.operator.card.history - 1
        known = min(steps, data.forced_states - first)
        found = data.forcing_at(rows, torch.full_like(rows, first), known)
        return found if found is None or known == steps else torch.cat([found, *[found[:, -1:]] * (steps - known)], 1)

    def next_block(self, first: int, steps: int, advance: Callable[[int], None]) -> Tensor:
        """The next steps of all trajectories after the first ones, on the CPU."""
        rows = max(1, CALL_VALUES // math.prod(self.context.states.shape[1:]))
        device, bundle, parts = self.operator.device, self.operator.card.bundle, []
        whole = replace(self.context, forcing=self.forcing(first, -(-steps // bundle) * bundle))
        for row in range(0, self.shape[0], rows):
            context = whole.each(lambda part, row=row: part[row : row + rows])  # type: ignore[misc]
            parts.append(rollout(counted(self.step, advance), context.to(device), steps).cpu())
        block = torch.cat(parts) if len(parts) > 1 else parts[0]
        self.context = replace(self.context, states=self.recent(block))
        return block

    def recent(self, block: Tensor) -> Tensor:
        """The states from which to continue after `block`, which a view would keep.

        They lie in memory as within a rollout: some processors round differently where states lie closer together.
        """
        history, bundle = self.operator.card.history, self.operator.card.bundle
        made = bundle if bundle >= history else history + bundle
        if block.shape[1] < made:
            return self.context.advance(block).states.clone()
        return block[:, -made:].clone()[:, -history:]

    def compare(self, block: Tensor, first: int) -> None:
        """Measure the errors of a block that begins after `first` steps, as far as the truth goes."""
        history, data = self.operator.card.history, self.data
        known = min(block.shape[1], data.shape[1] - history - first)
        if known < 1 or len(self.errors) != first:
            return
        try:
            self.errors.add(block[:, :known], data.frames(slice(history + first, history + first + known)).cpu())
        except HeroError as error:  # a truth that is not finite must not end the rollout
            self.notes.append(f"Errors are measured up to step {first}: {error}")


def block_sizes(shape: tuple[int, ...], bundle: int) -> tuple[int, int]:
    """(steps of a trajectory stored together, steps of a block): multiples of the steps per call where it has room."""
    batch, steps, *state = shape
    size = 4 * math.prod(state)
    block = max(1, min(BLOCK_BYTES // (batch * size), BLOCK_STEPS, steps))
    block = max(bundle, block // bundle * bundle)
    chunk = max(bundle, min(CHUNK_BYTES // size, block) // bundle * bundle)
    return min(chunk, steps), max(chunk, block // chunk * chunk)


def truth_steps(steps: int) -> list[int]:
    """1, 10, 100, .. and the last, at which errors are shown."""
    return sorted({10**power for power in range(len(str(steps))) if 10**power <= steps} | {steps})
