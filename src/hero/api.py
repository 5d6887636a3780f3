"""The Python API: `hero.train`, `hero.evaluate`, `hero.load`, `hero.predict` and `hero.compare`.

    result = hero.train(data=array, model=net, strategy="push_forward", steps=2000)
    result.metrics.gm100, result.errors, result.predict(states, 200)

Everything becomes a configuration and a run folder, as the command line makes them: the same call finds the same run.
Objects that a configuration cannot hold, such as a network, are known in it by a name for the length of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hero.config.given import give
from hero.data.files.handed import (
    as_array,
    has_named_axes,
    is_array,
    store_arrays,
    store_dataset,
    unpacked,
    with_forcing,
)
from hero.data.files.settings import all_trajectories
from hero.data.formats.named import FORCING
from hero.data.trajectories import Context, Trajectories, masked_trajectories, states_of
from hero.deploy.model_folder import Operator, find_model, open_model
from hero.errors import HeroError, check_number, shown
from hero.evaluation.check import evaluating
from hero.evaluation.evaluate import evaluate as evaluate_run
from hero.evaluation.foreign import opened_data, step_of
from hero.evaluation.measure import measure
from hero.method.metrics import given_metric
from hero.method.norm import Norm
from hero.method.rollout import Stepper, rollout
from hero.parts import RECOMMENDED, key_of
from hero.ranks import RANKS
from hero.results import Comparison, Evaluation, Result
from hero.runs.config import RunConfig, implied_preset, make_config, merge_settings
from hero.runs.folder import Run
from hero.runs.records import Metrics
from hero.runs.sections import all_settings, near_settings
from hero.runs.stored import is_run
from hero.study.compare import plan_comparison
from hero.study.run import run as run_study
from hero.study.worker import Workers
from hero.training import loop
from hero.training.journal import Callback

Place = str | PathLike[str]
Function = Callable[..., Any]


def train(
    data: Any = "burgers",
    model: nn.Module | str = "fno",
    strategy: str | None = None,
    *,
    steps: int | None = None,
    seed: int | None = None,
    runs: Place = "runs",
    data_dir: Place = "data",
    preset: str | None = None,
    loss: Function | str | None = None,
    optimizer: Function | str | None = None,
    metrics: Mapping[str, Function] | None = None,
    callbacks: Sequence[Callback] = (),
    log: Sequence[str] | None = None,
    dt: float | None = None,
    extent: float | Sequence[float] | None = None,
    periodic: bool | Sequence[bool] | None = None,
    channels: Sequence[str] | None = None,
    forcing: Any = None,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> Result:
    """Train and evaluate one run, from its last checkpoint if there is one.

    `data`: an array or tensor (trajectory, time, channel, *space), a list, a torch Dataset or a DataLoader of
    trajectories (time, channel, *space), a dictionary of these for the splits train, val and test, an xarray Dataset or
    DataArray, a pandas DataFrame, a file or folder, or a benchmark. `dt`, `extent`, `periodic` and `channels` say what
    an array does not; points that are NaN in every state have no value.
    `forcing` depends on time and is known in advance: an array (trajectory, time, number), or with *space, beside
    an array of states, or the names of variables of a file or Dataset. It is seen at each step and never predicted.
    `model`: a network, trained from its present weights, or the name of a backbone. `loss` (prediction, truth) ->
    number, `optimizer` (parameters) -> Optimizer and `metrics` {name: (û, u) -> (time,)} are functions, the first two
    also names. `callbacks` get a Progress at every record and validation; one that returns False stops the run.
    Settings: settings={"train.lr": 1e-3}, or train__lr=1e-3. Without a strategy the recommended preset is trained.
    A RunConfig in the place of `data` holds all of this.
    """
    added = {name: given_metric(name, function) for name, function in (metrics or {}).items()}
    own = {"strategy": strategy, "seed": seed, "train.steps": steps}
    described = {"dt": dt, "extent": extent, "periodic": periodic, "channels": channels}
    if isinstance(data, RunConfig):
        others = (*own.values(), *described.values(), preset, loss, optimizer, forcing, settings)
        if model != "fno" or more or any(part is not None for part in others):
            raise HeroError(
                "a RunConfig holds every setting; leave out the others, and name folders by `runs` and `data_dir`."
            )
        config = data
    else:
        found = data_settings(data, Path(data_dir), described, forcing)
        values = named(found | chosen(model, loss, optimizer) | own, settings, more)
        config = make_config(preset or implied_preset(values), overrides=values)
    if isinstance(model, nn.Module):
        config.build_operator()  # a network that does not fit is refused before there is a run folder
    folder = loop.train(config, Path(runs), Path(data_dir), log, callbacks)
    if RANKS.is_first:
        stored = Run(folder).metrics
        if stored is None or not added.keys() <= stored.test.keys():
            evaluate_run(folder, Path(data_dir), added)
    return Result(folder, Path(data_dir))


def compare(
    data: Any,
    strategies: Sequence[str] = ("one_step", "push_forward", "hero", "fixed_weight"),
    seeds: int | Sequence[int] = 5,
    *,
    model: nn.Module | str = "fno",
    steps: int | None = None,
    baseline: str | None = None,
    workers: int = 0,
    runs: Place = "runs",
    data_dir: Place = "data",
    preset: str = RECOMMENDED,
    loss: Function | str | None = None,
    optimizer: Function | str | None = None,
    dt: float | None = None,
    extent: float | Sequence[float] | None = None,
    periodic: bool | Sequence[bool] | None = None,
    channels: Sequence[str] | None = None,
    forcing: Any = None,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> Comparison:
    """Train strategies with shared seeds: a table, paired tests and curves, as `hero compare`.

    All have the optimizer, the loss and the network of `preset`; preset="paper" compares them as published.
    `seeds` are a number of seeds or the seeds themselves; `workers` processes compute runs at a time, 0 in this one,
    which a network or a function that was handed over needs.
    """
    given = chosen(model, loss, optimizer) | {"train.steps": steps}
    described = {"dt": dt, "extent": extent, "periodic": periodic, "channels": channels}
    values = named(data_settings(data, Path(data_dir), described, forcing) | given, settings, more)
    if values.keys() & {"strategy", "seed"}:
        raise HeroError("strategy and seed are compared, not set; use `strategies` and `seeds`.")
    handed = [str(value) for value in values.values() if str(value).startswith("given:")]
    if workers and handed:
        raise HeroError(f"{handed[0]} is known in this process alone; use workers=0.")
    numbers = range(seeds) if isinstance(seeds, int) else list(seeds)
    merged = merge_settings(preset, None, values)
    plan = plan_comparison(merged, list(strategies), numbers, baseline)
    found = run_study(plan, Path(runs), Path(data_dir), Workers(workers))
    if found.failed and not any(row.finished for row in found.rows):
        raise HeroError(next(iter(found.failed.values())))
    return Comparison(found, Path(runs))


def evaluate(
    model: Any,
    data: Any = None,
    *,
    data_dir: Place = "data",
    runs: Place = "runs",
    metrics: Mapping[str, Function] | None = None,
    history: int = 1,
    forcing: Any = None,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> Metrics | Evaluation:
    """Measure a run on its own test data, which rewrites its numbers, or any model on `data`.

    `model`: a Result, a run folder or id, an Operator, or a function of states (batch, history * channel, *space).
    `data`: arrays, of which all trajectories are test trajectories unless one is called test; or a file or benchmark,
    of which the test split is taken. Both answers have `.test`, the numbers by name.
    """
    added = {name: given_metric(name, function) for name, function in (metrics or {}).items()}
    if data is None and isinstance(model, str | PathLike):
        path = find_model(model, Path(runs))
        if is_run(path):
            return evaluate_run(path, Path(data_dir), added)
    if data is None:
        raise HeroError("a model without a run is evaluated on `data`; give an array, a file or a benchmark.")
    if isinstance(model, type):
        raise HeroError(f"`model` is the class {model.__name__}; give an instance of it.")
    operator = model.model if isinstance(model, Result) else model if callable(model) else load(model, runs=runs)
    history = operator.card.history if isinstance(operator, Operator) else history
    if forcing is None and isinstance(operator, Operator) and not is_array(unpacked(data)):
        forcing = operator.card.forcing or None
    test, norm = test_trajectories(data, Path(data_dir), named({}, settings, more), forcing, history)
    if isinstance(operator, Operator):
        norm.by_channel, norm.importance = operator.card.norm == "channels", operator.card.channel_weights
    if test.shape[1] <= history:
        raise HeroError(f"`data` have {test.shape[1]} states, too few for a step after {history}; give longer ones.")
    with evaluating(operator) as device:
        found = measure(stepper_of(operator), test, norm, device, history, more=added, title="evaluating")
    return Evaluation(found.summary, found.score.numpy(), found.baselines)


def load(path: Any, model: nn.Module | None = None, *, trust_code: bool = False, runs: Place = "runs") -> Operator:
    """The operator of a run (folder or id), a model folder or an exported file: a module to use or train further.

    No code that a file names is run: `model` stands for a backbone of your own; `trust_code` imports it.
    """
    return open_model(find_model(path, Path(runs)), model, trust_code)


def predict(model: Any, states: Any, steps: int, mu: Any = None, forcing: Any = None, *, runs: Place = "runs") -> Any:
    """The rollout (batch, steps, channel, *space) of a run, an Operator or a function: arrays in, arrays out.

    `states` are (batch, channel, *space), with a history (batch, H, channel, *space); `forcing` (batch, steps, number),
    or with *space.
    """
    if isinstance(model, Result | Operator):
        return (model.model if isinstance(model, Result) else model).rollout(states, steps, mu, forcing)
    if not callable(model):
        return load(model, runs=runs).rollout(states, steps, mu, forcing)
    check_number("steps", steps, low=1, whole=True)
    with evaluating(model) as device, torch.no_grad():
        tensor = states_of(states, "(batch, channel, *space)", 3).to(device, torch.float32)
        known = (None if part is None else torch.as_tensor(part).to(device, torch.float32) for part in (mu, forcing))
        made = rollout(stepper_of(model), Context(tensor[:, None], *known), steps)
    return made.to(states.device) if isinstance(states, Tensor) else made.cpu().numpy()


def stepper_of(model: Any) -> Stepper:
    """How a model makes one step."""
    if isinstance(model, Operator):
        return model.step
    return step_of(model, getattr(model, "__name__", type(model).__name__))


def named(values: Mapping[str, Any], settings: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
    """`values`, then dotted settings, then settings as keywords, where train__lr is train.lr; None is not given."""
    for key in more:
        if "__" not in key:
            near = [name.replace(".", "__") for name in near_settings(key, (name for name, _ in all_settings()))]
            hint = f"did you mean {' or '.join(near)}?" if near else "`hero settings` lists all, as in train__lr=1e-3."
            raise HeroError(f"unknown argument {key!r}; {hint}")
    keywords = {key.replace("__", "."): value for key, value in more.items()}
    merged = {**values, **(settings or {}), **keywords}
    return {key: value for key, value in merged.items() if value is not None}


def chosen(
    model: nn.Module | str, loss: Function | str | None, optimizer: Function | str | None
) -> dict[str, str | None]:
    """The names of the parts, which stand for objects that were handed over."""
    if not isinstance(model, nn.Module | str):
        raise HeroError(f"`model` is {shown(model)}; give an instance of nn.Module or the name of a backbone.")
    return {
        "backbone.name": give(model) if isinstance(model, nn.Module) else model,
        "train.loss": give(loss) if callable(loss) else loss,
        "train.optimizer": give(optimizer) if callable(optimizer) else optimizer,
    }


def data_settings(data: Any, data_dir: Path, described: Mapping[str, Any], forcing: Any = None) -> dict[str, Any]:
    """The settings of a benchmark, of files, or of arrays, which are stored in `data_dir`."""
    more = {f"data.{name}": plain(value) for name, value in described.items() if value is not None}
    data = unpacked(data)
    if forcing is not None:
        data, names = with_forcing(data, forcing)
        more["data.forcing"] = names
    if is_array(data):
        return store_arrays(data, data_dir) | more
    if has_named_axes(data):
        return {"data.path": str(store_dataset(data, data_dir))} | more
    if not isinstance(data, str | PathLike):
        raise HeroError(
            f"`data` of type {type(data).__name__} cannot be read; give an array (trajectory, time, channel, *space), "
            "a list, a dictionary or a torch Dataset of arrays, xarray or pandas, a file, or a benchmark."
        )
    return {"data.path" if isinstance(data, PathLike) else key_of(data): str(data)} | more


def plain(value: Any) -> Any:
    """Numbers of NumPy and sequences as configurations hold them."""
    if isinstance(value, str | bool | np.bool_):
        return value if isinstance(value, str) else bool(value)
    return float(value) if isinstance(value, int | float | np.number) else [plain(part) for part in value]


def test_trajectories(
    data: Any, data_dir: Path, values: Mapping[str, Any], forcing: Any, history: int
) -> tuple[Trajectories, Norm]:
    """All of an array, `test` or `u` of several, or the test split of files and benchmarks; and their norm."""
    data, names = unpacked(data), list[str]()
    if forcing is not None:
        data, names = with_forcing(data, forcing)
    if not is_array(data) and not has_named_axes(data):
        settings = data_settings(data, data_dir, {}) | dict(values) | ({"data.forcing": names} if names else {})
        return opened_data(settings, "test", data_dir, history=history)[:2]
    if is_array(data):
        arrays = data if isinstance(data, Mapping) else {"test": data}
        name = next((name for name in ("test", "u") if name in arrays), None)
        if name is None:
            raise HeroError(f"`data` has the arrays {', '.join(arrays)}; name the one to evaluate on test.")
        known = (arrays.get(f"{part}_test", arrays.get(part)) for part in ("mu", FORCING))
        mu, given = (None if part is None else torch.as_tensor(part).float() for part in known)
        states = states_of(as_array(arrays[name]), "(trajectory, time, channel, *space)", 4)
        frames = arrays.get(f"frames_{name}", arrays.get("frames"))
        states = states if frames is None else states[:, : int(min(frames))]
        found = replace(masked_trajectories(states, mu), forcing=given)
    else:
        found = all_trajectories(store_dataset(data, data_dir), names)
    norm = Norm(by_channel=True)
    norm.fit(found)
    return found, norm
