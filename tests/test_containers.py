"""Data as Python libraries hold them: xarray, pandas, lists, torch Datasets; and predictions as xarray."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, SubsetRandomSampler, TensorDataset

import hero
from conftest import Call, Later
from hero.analysis.doctor import diagnose
from hero.api import data_settings
from hero.data.formats import open_recording
from hero.errors import HeroError
from hero.evaluation.foreign import score_files

xarray = Later("xarray")
SMALL: dict[str, Any] = {"backbone.width": 4, "backbone.modes": 3, "train.batch": 5, "train.compile": "false"}
POINTS = 16


def waves(count: int = 6, states: int = 12) -> np.ndarray:
    """Two channels (trajectory, time, channel, x) that move by a point per step, in float32."""
    start = np.random.default_rng(0).normal(size=(count, 2, POINTS)).cumsum(axis=2)
    start -= start.mean(axis=2, keepdims=True)
    return np.stack([np.roll(start, n, axis=2) for n in range(states)], axis=1).astype(np.float32)


def labelled() -> Any:
    """`waves` with the dimensions in another order, and everything named."""
    u = waves()
    dims = ("member", "time", "x")
    data = {
        "height": xarray.DataArray(u[:, :, 0], dims=dims, attrs={"units": "m"}).transpose("x", "member", "time"),
        "speed": (dims, u[:, :, 1].astype(np.float64), {"units": "m/s", "odd": {"not": "storable"}}),
        "depth": (("member",), np.arange(6.0)),
        "station": (("member",), list("abcdef")),
    }
    times = np.datetime64("2020-01-01") + np.arange(12) * np.timedelta64(6, "h")
    return xarray.Dataset(data, {"time": times, "x": ("x", 10 + 0.5 * np.arange(POINTS), {"units": "km"})})


def recorded(data: Any, folder: Path) -> tuple[Any, np.ndarray]:
    """What training reads of `data`: the recording and all states."""
    settings = data_settings(data, folder, {})
    recording = open_recording(Path(settings["data.path"]), settings.get("data.layout", ""))
    channels = range(len(recording.channels))
    return recording, np.stack([one.read(slice(None), channels) for one in recording.trajectories])


def test_an_xarray_dataset_is_read_by_the_names_of_its_dimensions(tmp_path: Path) -> None:
    given = labelled()
    before = given.copy(deep=True)
    recording, states = recorded(given, tmp_path)
    np.testing.assert_array_equal(states, waves())
    assert [(channel.name, channel.unit) for channel in recording.channels] == [("height", "m"), ("speed", "m/s")]
    assert (recording.dt, recording.time_unit) == (6, "h")
    assert (recording.axes[0].name, recording.axes[0].unit) == ("x", "km")
    np.testing.assert_array_equal(recording.axes[0].coordinates, 10 + 0.5 * np.arange(POINTS))
    assert [one.scalars for one in recording.trajectories] == [{"depth": float(n)} for n in range(6)]
    xarray.testing.assert_identical(given, before)
    assert recorded(given, tmp_path)[0].files == recording.files
    np.testing.assert_array_equal(recorded(given["speed"], tmp_path)[1], waves()[:, :, 1:])


def test_a_long_table_gives_the_same_as_the_dataset_that_it_was_made_from(tmp_path: Path) -> None:
    expected, states = recorded(labelled(), tmp_path)
    table = labelled().drop_vars("station").to_dataframe().sample(frac=1, random_state=0)
    for given in (table, table.reset_index()):
        found, same = recorded(given, tmp_path)
        np.testing.assert_array_equal(same, states)
        assert [one.scalars for one in found.trajectories] == [one.scalars for one in expected.trajectories]
        assert (found.dt, found.time_unit) == (6, "h")
        np.testing.assert_array_equal(found.axes[0].coordinates, expected.axes[0].coordinates)


class Items(Dataset[Any]):
    """A Dataset of one kind of item."""

    def __init__(self, item: Callable[[int], Any], count: int = 6) -> None:
        self.item, self.count = item, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Any:
        return self.item(number)


def test_items_of_torch_datasets_are_trajectories(tmp_path: Path) -> None:
    u, mu = torch.from_numpy(waves()), torch.arange(6.0)[:, None]
    for data in (u, Items(lambda i: u[i]), TensorDataset(u), list(u), Items(lambda i: {"u": u[i].numpy()})):
        np.testing.assert_array_equal(recorded(data, tmp_path)[1], waves())
    recording, states = recorded(Items(lambda i: {"u": u[i], "mu": mu[i]}), tmp_path)
    np.testing.assert_array_equal(states, waves())
    assert [one.scalars for one in recording.trajectories] == [{"mu": float(n)} for n in range(6)]
    parts = {"train": TensorDataset(u[:4]), "val": list(u[4:5]), "test": DataLoader(u[5:], batch_size=None)}
    recording, states = recorded(parts, tmp_path)
    assert [one.split for one in recording.trajectories] == ["train"] * 4 + ["val", "test"]
    np.testing.assert_array_equal(states, waves())


def test_a_loader_gives_the_same_data_however_it_shuffles(tmp_path: Path) -> None:
    u = torch.from_numpy(waves())
    loaders = (
        DataLoader(u, batch_size=4, shuffle=True),
        DataLoader(TensorDataset(u), batch_size=5, shuffle=True),
        DataLoader(u, batch_size=None),
    )
    files = {data_settings(loader, tmp_path, {})["data.path"] for loader in loaders}
    assert len(files) == 1
    np.testing.assert_array_equal(recorded(loaders[0], tmp_path)[1], waves())
    half = DataLoader(u, batch_size=2, sampler=SubsetRandomSampler([4, 1, 3]))
    np.testing.assert_array_equal(recorded(half, tmp_path)[1], waves()[[1, 3, 4]])


def test_trajectories_of_different_lengths_keep_them(tmp_path: Path) -> None:
    lengths = (12, 7, 9)
    settings = data_settings([part[:n] for part, n in zip(waves(), lengths, strict=False)], tmp_path, {})
    recording = open_recording(Path(settings["data.path"]), settings["data.layout"])
    assert tuple(one.frames for one in recording.trajectories) == lengths
    for one, part, n in zip(recording.trajectories, waves(), lengths, strict=False):
        np.testing.assert_array_equal(one.read(slice(None), [0, 1]), part[:n])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (Items(lambda i: (torch.zeros(1, 8), torch.zeros(1, 8))), "a tuple, as pairs of input and target are"),
        (Items(lambda i: {"x": torch.zeros(1, 8), "y": torch.zeros(1, 8)}), "a dict, as pairs"),
        (DataLoader(TensorDataset(torch.zeros(4, 1, 8), torch.zeros(4, 1, 8))), "a tuple, as pairs"),
        (hero.Windows(waves(), 3), "windows that overlap"),
        ([waves()[0], waves()[0, :, :, :8]], "trajectories of the shapes"),
        ([], "`data` of type list cannot be read"),
        (Items(lambda i: i, 0), "`data` are empty"),
        (lambda: labelled().rename(time="when").drop_vars("when"), "name the dimension of time `time`"),
        (lambda: labelled()[["height", "speed"]] * 1j, "height, speed is complex"),
        (lambda: labelled().drop_vars("station").to_dataframe().reset_index().drop(columns="time"), "it must be long"),
        (lambda: labelled()[["height"]].isel(x=[0, 0]).to_dataframe(), "several rows of the same"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_told_in_one_sentence(data: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(HeroError, match=words) as error:
        recorded(data() if isinstance(data, FunctionType) else data, tmp_path)
    assert "\n" not in str(error.value)


def test_from_a_dataset_to_predictions_as_netcdf_and_zarr(tmp_path: Path, call: Call) -> None:
    """Trained on xarray, predicted as xarray, written by the command, and read by xarray, doctor and evaluation."""
    folders = {"runs": tmp_path / "runs", "data_dir": tmp_path / "data"}
    result = hero.train(labelled(), "fno", "one_step", steps=3, settings=SMALL, **folders)
    assert result.config.source.channel_names == ("height", "speed")
    found = hero.evaluate(result, labelled())
    whole = hero.evaluate(result, {"u": waves(), "mu": np.arange(6.0)[:, None]})
    assert found.errors.shape == (6, 11)
    np.testing.assert_array_equal(found.errors, whole.errors)

    depths = np.array([[2.0], [5.0]], np.float32)
    rollout = result.predict(waves()[:2, 0], 5, depths)
    predicted = result.predict(waves()[:2, 0], 5, depths, as_xarray=True)
    for place, (name, unit) in enumerate((("height", "m"), ("speed", "m/s"))):
        np.testing.assert_array_equal(predicted[name].transpose("trajectory", "time", "x"), rollout[:, :, place])
        assert predicted[name].attrs["units"] == unit
    np.testing.assert_array_equal(predicted["time"], 6.0 * np.arange(1, 6))
    assert (predicted["time"].attrs["units"], predicted["x"].attrs["units"]) == ("h", "km")
    np.testing.assert_allclose(predicted["x"], labelled()["x"])
    np.testing.assert_array_equal(predicted["depth"], depths[:, 0])

    del (truth := labelled())["speed"].attrs["odd"]
    truth.to_netcdf(tmp_path / "truth.nc")
    for out in (tmp_path / "u.nc", tmp_path / "u.zarr"):
        code, _, err = call("predict", result.path, "--from", tmp_path / "truth.nc", "--steps", 11, "--out", out)
        assert (code, err) == (0, "")
        with xarray.open_dataset(out) as opened:
            expected = result.predict(waves()[:, 0], 11, np.arange(6.0)[:, None], as_xarray=True)
            xarray.testing.assert_allclose(opened, expected, rtol=1e-6)
            for part in ("height", "speed", "time", "x"):
                assert opened[part].attrs.get("units") == expected[part].attrs.get("units"), part
            assert opened.attrs["run"] == result.path.name
        _, errors = score_files(out, tmp_path / "truth.nc")
        np.testing.assert_allclose(errors["vrmse"], whole.errors, rtol=1e-4)
    assert not diagnose(open_recording(tmp_path / "u.nc"), "u.nc").problems


def test_neither_library_is_imported_unless_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("xarray", "pandas"):
        monkeypatch.setitem(sys.modules, library, None)  # an import would raise
    np.testing.assert_array_equal(recorded(list(waves()), tmp_path)[1], waves())
    with pytest.raises(HeroError, match=r"`data` of type int cannot be read"):
        data_settings(3, tmp_path, {})
