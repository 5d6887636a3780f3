"""The log of a run: log.jsonl, the loggers, and the line below the progress bar."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hero.console import console
from hero.files import append, crash_point, json_line, write_atomic
from hero.method import measures
from hero.ranks import RANKS, first_only
from hero.runs.config import RunConfig
from hero.runs.log import read_lines, score_name
from hero.runs.stored import StoredRun
from hero.training.loggers import Loggers


@dataclass(frozen=True)
class Progress:
    """The news for a callback: after `step` updates the mean loss since the last record, and a score if validated."""

    step: int
    loss: float | None
    """None before the first record."""
    score: float | None
    """The validation GM; None where nothing was validated."""


Callback = Callable[[Progress], object]
"""Returns False to stop training."""


class Journal:
    """Records the statistics of updates and validations."""

    def __init__(self, run: Path, config: RunConfig, device: torch.device, callbacks: Sequence[Callback] = ()) -> None:
        self.run, self.updates, self.device = StoredRun(run), config.train.steps, device
        self.scoring = config.scoring
        self.log_every = max(1, self.updates // 200)
        self.compiled = False
        self.loggers = Loggers()
        self.advance: Callable[..., None] = lambda n=1, note=None: None
        self.callbacks, self.is_stop_wanted = callbacks, False
        self.loss: float | None = None
        self.score: float | None = None
        self._counted: dict[str, list[Tensor | float]] = {}
        self._earlier = 0.0
        self._clock = time.perf_counter()
        self._last_logged = (0, 0.0)

    def ends_before(self, done: int) -> bool:
        """Whether records of the first `done` updates are missing at the end of the log."""
        last = max((record["step"] for record in read_lines(self.run.log_file)), default=0)
        return last < done - done % self.log_every

    def begin(self, done: int, seconds: float) -> None:
        """Continue after `done` updates and `seconds`: later records are dropped, since those updates are repeated."""
        records = [record for record in read_lines(self.run.log_file) if record["step"] <= done]
        if RANKS.is_first:
            write_atomic(self.run.log_file, "".join(map(json_line, records)).encode())
        self._earlier, self._last_logged = seconds, (done, seconds)
        self._clock = time.perf_counter()

    def seconds(self) -> float:
        """Training time, over all sessions of this run."""
        return self._earlier + time.perf_counter() - self._clock

    def count(self, statistics: dict[str, Tensor | float]) -> None:
        """Add the statistics of one update; tensors stay on the device until they are logged."""
        for name, value in statistics.items():
            self._counted.setdefault(name, []).append(value)
        self.advance(1)

    def log(self, done: int, lr: float) -> bool:
        """Write the means since the last record; returns whether training may continue with this loss.

        It is the one place where the host waits for the device.
        """
        means = {name: float(sum(values) / len(values)) for name, values in self._counted.items()}
        self._counted = {}
        seconds = self.seconds()
        before, since = self._last_logged
        self._last_logged = (done, seconds)
        speed = (done - before) / max(seconds - since, 1e-9)  # a clock may stand still
        self._append(
            {
                "step": done,
                **means,
                "lr": lr,
                "steps_per_second": speed,
                "seconds": seconds,
                "compiled": self.compiled,
                "device": str(self.device),
            }
        )
        self.advance(0, note=self._note(means, speed))
        self.loss = means["loss"]
        self._tell(Progress(done, self.loss, None))
        return self.loss < float("inf")

    def log_validation(self, done: int, errors: Tensor) -> float:
        """Write the validation score, such as GM100, and return it."""
        self.score = float(measures.gm(errors, self.scoring.steps).mean())
        crash_point("before-validation-record")
        self._append({"step": done, score_name(self.scoring): self.score, "val_diverged": measures.diverged(errors)})
        crash_point("after-validation-record")
        self._tell(Progress(done, self.loss, self.score))
        return self.score

    @first_only
    def log_spectra(self, done: int, spectra: dict[str, Tensor]) -> None:
        """Write what the strategy found by wavenumber, to the file alone: loggers take single numbers."""
        if spectra:
            rows = {name: values.tolist() for name, values in spectra.items()}
            append(self.run.log_file, json_line({"step": done, "spectra": rows}))

    def log_stop(self, done: int) -> None:
        """Write that training ended early."""
        self._append({"step": done, "stopped_early": True})
        reason = "a callback returned False" if self.is_stop_wanted else f"{self.scoring.gm_title} no longer improves"
        console.print(f"stopped early after update {done} of {self.updates}: {reason}", style="dim")

    def show_validation(self, done: int, best: float, best_step: int) -> None:
        """A line per validation where there is no terminal for the progress bar."""
        if not console.is_terminal:
            console.print(
                f"step {done}/{self.updates}  validation {self.scoring.gm_title} {self.score:.4g}"
                f"  best {best:.4g} at {best_step}  {self.seconds():.0f} s",
                highlight=False,
                soft_wrap=True,
            )

    def _tell(self, progress: Progress) -> None:
        answers = [callback(progress) for callback in self.callbacks]
        self.is_stop_wanted |= any(answer is False for answer in answers)

    @first_only
    def _append(self, record: dict[str, Any]) -> None:
        append(self.run.log_file, json_line(record))
        self.loggers.record(record)

    def _note(self, means: dict[str, float], speed: float) -> str:
        """Loss and validation, then whatever else the strategy reports as a plain number."""
        shown = {"loss": means["loss"]}
        if self.score is not None:
            shown["val"] = self.score
        shown |= {name: value for name, value in means.items() if name not in ("loss", "grad_norm") and "." not in name}
        return "  ".join(f"{name} {value:.3g}" for name, value in shown.items()) + f"  {speed:.0f} updates/s"
