"""Records of a run to TensorBoard, Weights & Biases and MLflow; `log.jsonl` is always written and stays the truth.

A logger is not part of the configuration: it changes neither the run id nor a bit of the run. Each session of a run
hands it the whole log again, so that after a kill and a resume every update is there once, also if the logger was
switched on later. A logger that cannot start stops the run before its first update: whoever asked for it wants it. One
that fails later reports it once, and training continues.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from hero.console import say
from hero.errors import HeroError, install_hint
from hero.parts import LOGGERS
from hero.runs.config import RunConfig
from hero.runs.log import read_lines, score_name
from hero.runs.stored import StoredRun

VARIABLE = "HERO_LOG"
INFINITE = ("inf", "-inf", "nan")  # numbers that JSON lacks, as the log has them


class Logger(Protocol):
    """Receives the numbers of a run; built from the run folder and the configuration."""

    def record(self, step: int, values: Mapping[str, float]) -> None:
        """Take the values of a step; steps never decrease."""

    def close(self) -> None:
        """Write the rest."""


class TensorBoard:
    """Event files in `runs/<id>/tensorboard`; the configuration in the tabs Text and HParams."""

    def __init__(self, run: Path, config: RunConfig) -> None:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        # purge_step hides the records of earlier sessions, which this one writes again.
        self.writer = SummaryWriter(str(run / "tensorboard"), purge_step=0, flush_secs=10)
        self.writer.add_text("config", f"```\n{config.to_toml()}```")
        for summary in hparams(plain_settings(config), {score_of(config): 0.0}):
            self.writer._get_file_writer().add_summary(summary)

    def record(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        self.writer.close()


class WeightsAndBiases:
    """A run of the same id, with files in `runs/<id>/wandb`; offline with WANDB_MODE=offline."""

    def __init__(self, run: Path, config: RunConfig) -> None:
        import wandb

        # No question, upload or lost network may hold up training for long.
        waiting = {"init_timeout": 30, "login_timeout": 60, "finish_timeout": 60}
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "hero"),
            id=run.name,
            dir=run,
            config=config.to_dict(),
            resume="allow",
            reinit="create_new",  # a run that the user has open continues
            settings=wandb.Settings(console="off", silent=True, **waiting),
        )
        self.run.define_metric(score_of(config), summary="min")
        if not self.run.offline:
            say(f"Weights & Biases: {self.run.url}")
            return
        # This session writes the records of earlier ones again; together they would be uploaded as conflicting ones.
        for folder in (run / "wandb").glob("offline-run-*"):
            if folder != Path(self.run.dir).parent:
                shutil.rmtree(folder, ignore_errors=True)

    def record(self, step: int, values: Mapping[str, float]) -> None:
        if step >= self.run.step:  # the server has the earlier ones from a session that was killed
            self.run.log(dict(values), step=step)

    def close(self) -> None:
        self.run.finish()


class MLflow:
    """A run of that name in the experiment `hero`, where MLFLOW_TRACKING_URI or MLflow's own default says."""

    def __init__(self, run: Path, config: RunConfig) -> None:
        import mlflow

        client, self.done = mlflow.MlflowClient(), dict[str, int]()
        experiment = client.get_experiment_by_name("hero")
        number = experiment.experiment_id if experiment else client.create_experiment("hero")
        found = client.search_runs([number], f"tags.hero_run = '{run.name}'", max_results=1)  # of an earlier session
        made = found[0] if found else client.create_run(number, run_name=run.name, tags={"hero_run": run.name})
        self.client, self.run = client, str(made.info.run_id)
        for key, value in {} if found else plain_settings(config).items():
            client.log_param(self.run, key, value)

    def record(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            if name not in self.done:  # a session that was killed may have left a step with some of its numbers
                steps = (record.step for record in self.client.get_metric_history(self.run, name))
                self.done[name] = max(steps, default=-1)
            if step > self.done[name]:
                self.client.log_metric(self.run, name, value, step=step)

    def close(self) -> None:
        self.client.set_terminated(self.run)


def chosen_loggers(names: Sequence[str] | None) -> list[str]:
    """The loggers to use, by default the ones in $HERO_LOG; HeroError for one that is unknown or not installed.

    A name may be a list with commas, as on the command line.
    """
    given = [os.environ.get(VARIABLE, "")] if names is None else names
    chosen = list(dict.fromkeys(name.strip() for part in given for name in part.split(",") if name.strip()))
    LOGGERS.check(*chosen)
    for name in chosen:
        if importlib.util.find_spec(name) is None:
            raise HeroError(f"the logger {name} is not installed; {install_hint(name)}.")
    return chosen


class Loggers:
    """The open loggers of a run, by name; one that fails is left out from then on."""

    def __init__(self) -> None:
        self.open: dict[str, Logger] = {}

    def add(self, name: str, run: Path, config: RunConfig) -> None:
        """Open a logger and hand it the log so far; HeroError if it cannot start."""
        try:
            self.open[name] = LOGGERS[name](run, config)
        except Exception as error:  # whatever a service or its package may raise
            service = "log in with `wandb login`, set WANDB_MODE=offline" if name == "wandb" else "check its service"
            remedy = install_hint(name) if isinstance(error, ImportError) else f"{service}, or leave it out"
            raise HeroError(f"the logger {name} cannot start ({first_line(error)}); {remedy}.") from error
        with self._forgiven(name):
            for record in read_lines(StoredRun(run).log_file):
                self.open[name].record(record["step"], numbers(record))

    def record(self, record: Mapping[str, Any]) -> None:
        """Hand a log record on."""
        for name, logger in list(self.open.items()):
            with self._forgiven(name):
                logger.record(record["step"], numbers(record))

    def close(self) -> None:
        for name, logger in list(self.open.items()):
            with self._forgiven(name):
                logger.close()

    @contextlib.contextmanager
    def _forgiven(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever a service or its package may raise
            self.open.pop(name, None)
            say(f"the logger {name} failed ({first_line(error)}); training continues without it", style="yellow")


def first_line(error: Exception) -> str:
    """An error of another library in one line."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0].rstrip('.')}"


def numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a record under "training/" or "validation/"; infinity may be the string that the file has."""
    return {
        f"{'validation' if name.startswith('val_') else 'training'}/{name}": float(value)
        for name, value in record.items()
        if name != "step" and (type(value) in (int, float) or value in INFINITE)
    }


def score_of(config: RunConfig) -> str:
    """The validation score under the name that `numbers` gives it."""
    return f"validation/{score_name(config.scoring)}"


def plain_settings(config: RunConfig) -> dict[str, bool | int | float | str]:
    """Dotted settings; values that are not plain as text."""
    return {key: value if isinstance(value, int | float | str) else str(value) for key, value in config.flat().items()}
