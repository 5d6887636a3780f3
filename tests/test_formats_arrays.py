"""Formats of arrays: files are written in the layout of others and read back bit for bit."""

from __future__ import annotations

import pickle
import zipfile
from datetime import datetime
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import foreign_arrays as foreign
from foreign import refused
from foreign_arrays import states
from hero.data.files.recording import Recording
from hero.data.formats import open_recording
from hero.data.formats.arrays import held
from hero.data.formats.slabs import Slab, layout_of, space_of
from hero.data.formats.xarray import read_xarray

ALL = slice(None)


def whole(recording: Recording) -> np.ndarray:
    """(trajectory, time, channel, *space)"""
    channels = list(range(len(recording.channels)))
    values = [trajectory.read(slice(0, trajectory.frames), channels) for trajectory in recording.trajectories]
    assert all(len(part) == t.frames for part, t in zip(values, recording.trajectories, strict=True))
    return np.stack(values)


@pytest.mark.parametrize("ending", ["npy", "h5"])
@pytest.mark.parametrize("layout", ["btcxy", "bxytc", "tyxcb", "cbtxy", "txy", "xyt", "btx", "btcxyz", "btp", "zbt"])
def test_layout_words(tmp_path: Path, layout: str, ending: str) -> None:
    lengths = {"b": 3, "t": 5, "c": 2, "x": 6, "y": 4, "z": 7, "p": 9}
    array = states(*(lengths[letter] for letter in layout))
    path = tmp_path / f"u.{ending}"
    if ending == "npy":
        np.save(path, array)
    else:
        with h5py.File(path, "w") as file:
            file["deep/inside"], file["note"] = array, "text"
    recording = open_recording(path, layout)
    ours = [letter for letter in "btcxyzp" if letter in layout]
    expected = array.transpose([layout.index(letter) for letter in ours])
    expected = expected if "b" in layout else expected[None]
    expected = expected if "c" in layout else np.expand_dims(expected, 2)
    assert np.array_equal(whole(recording), expected)
    assert recording.space == expected.shape[3:]
    assert recording.dt == 1
    base = "u" if ending == "npy" else "inside"
    assert [channel.name for channel in recording.channels] == ([f"{base}0", f"{base}1"] if "c" in layout else [base])


@settings(max_examples=40, deadline=None)
@given(
    layout=st.permutations("btcx"),
    frames=st.tuples(st.integers(0, 6), st.integers(0, 6), st.sampled_from([1, 2])),
    channels=st.lists(st.integers(0, 3), min_size=1, max_size=4),
)
def test_parts_equal_numpy(layout: list[str], frames: tuple[int, int, int], channels: list[int]) -> None:
    array = states(6, 4, 2, 3).transpose([["t", "c", "b", "x"].index(letter) for letter in layout])
    part = slice(*frames)
    full = array.transpose([layout.index(letter) for letter in "btcx"])
    slab = Slab(held(Path("u"), "u", array), "".join(layout), space_of("".join(layout), array.shape))
    assert np.array_equal(slab.read(1, part, channels), full[1, part][:, channels])


@pytest.mark.parametrize("shape", [(20, 64), (5, 20, 64), (5, 20, 64, 64), (5, 20, 64, 64, 3), (4, 5, 30, 32, 2, 1, 1)])
def test_npy_ambiguous_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    np.save(tmp_path / "u.npy", np.zeros(shape))
    refused(tmp_path / "u.npy", str(shape), *["data.layout="] * (len(shape) < 7))


@pytest.mark.parametrize("word", ["btx", "btcxyy", "bbcxy", "bacxy", "bcxyz", "btcpx"])
def test_wrong_layout_words(tmp_path: Path, word: str) -> None:
    np.save(tmp_path / "u.npy", np.zeros((2, 3, 1, 4, 4)))
    refused(tmp_path / "u.npy", f"data.layout={word!r}", layout=word)


def test_layout_from_lengths() -> None:
    def found(shape: tuple[int, ...], **lengths: int) -> str:
        return layout_of("", shape, lengths, name="u", path=Path("f"))

    assert found((64, 20), t=20, x=64) == "xt"
    assert found((20, 64), t=20, x=64) == "tx"
    assert found((5, 64, 20), t=20, x=64) == "bxt"
    assert found((20, 64, 3), t=20, x=64) == "txc"
    assert found((20, 32, 32), t=20, x=32, y=32) == "txy"
    assert found((20, 16, 32), t=20, x=32, y=16) == "tyx"
    assert found((5, 20, 3, 64), t=20, x=64) == "btcx"
    assert found((5, 20, 64, 3), x=64) == "btxc"
    assert found((20, 64), x=64) == "tx"
    for shape, lengths in [((20, 20), {"t": 20, "x": 20}), ((5, 20, 64), {"x": 64}), ((5, 20, 11), {"p": 11})]:
        refused(partial(found, shape, **lengths), str(shape), "data.layout=")


def test_npz_splits_scalars_and_coordinates(tmp_path: Path) -> None:
    train, test = states(4, 6, 1, 16), states(2, 9, 1, 16, seed=1)
    mu = states(4, 2)
    for save in (np.savez, np.savez_compressed):
        facts = {"x": np.arange(16) / 4, "dt": 0.25, "rows": np.zeros(7), "nu_train": [1.0, 2, 3, 4]}
        save(tmp_path / "f.npz", train=train, test=test, mu_train=mu, mu_test=states(2, 2), nu_test=[5.0, 6], **facts)
        recording = open_recording(tmp_path / "f.npz")
        assert [trajectory.split for trajectory in recording.trajectories] == ["train"] * 4 + ["test"] * 2
        assert np.array_equal(recording.trajectories[2].read(slice(1, 5, 2), [0]), train[2, 1:5:2])
        assert np.array_equal(recording.trajectories[5].read(ALL, [0]), test[1])
        numbers = [(run.scalars["mu0"], run.scalars["mu1"]) for run in recording.trajectories[:4]]
        assert numbers == [tuple(row) for row in mu.tolist()]
        assert [run.scalars["nu"] for run in recording.trajectories] == [1, 2, 3, 4, 5, 6]
        assert any("rows (7,)" in note for note in recording.notes)
        assert recording.dt == 0.25
        assert np.array_equal(recording.axes[0].coordinates, np.arange(16) / 4)


def test_npz_point_cloud(tmp_path: Path) -> None:
    u, coords, weights = states(2, 5, 3, 11), states(11, 2), states(11) ** 2
    np.savez(tmp_path / "f.npz", u=u, coords=coords, weights=weights)
    recording = open_recording(tmp_path / "f.npz")
    assert np.array_equal(whole(recording), u)
    assert np.array_equal(recording.points, coords)
    assert np.array_equal(recording.weights, weights)
    assert [axis.name for axis in recording.axes] == ["point"]
    np.savez(tmp_path / "f.npz", u=u, coords=coords, weights=weights[:4])
    refused(tmp_path / "f.npz", "weights", "(4,)", "11 points")
    np.savez(tmp_path / "f.npz", alpha=np.zeros(3), beta=np.zeros((4, 5)))
    refused(tmp_path / "f.npz", "alpha (3,), beta (4, 5)")


def test_pickles_are_never_run(tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    u = states(2, 5, 1, 16)
    recording = open_recording(foreign.write_npz_trap(tmp_path / "good.npz", trap, u=u))
    assert np.array_equal(whole(recording), u)
    traps = [
        foreign.write_npz_trap(tmp_path / "bad.npz", trap),
        foreign.write_phiflow(tmp_path / "velo_000010.npz", trap),
        foreign.write_torch_trap(tmp_path / "f.pt", trap),
        foreign.write_pickle(tmp_path / "f.pkl", trap),
    ]
    np.save(tmp_path / "object.npy", np.array([foreign.Trap(trap)], dtype=object))
    for path in [*traps, tmp_path / "object.npy"]:
        refused(path)
    assert not trap.exists()
    np.load(tmp_path / "object.npy", allow_pickle=True)  # the trap works
    assert trap.exists()


@pytest.mark.parametrize("place", ["filter", "compressor"])
def test_zarr_pickle_codec_is_never_run(tmp_path: Path, place: str) -> None:
    pytest.importorskip("zarr")
    trap = tmp_path / "ran"
    store = foreign.write_zarr_trap(tmp_path / "f.zarr", trap, place)
    refused(store)
    assert not trap.exists()
    pickle.loads((store / "time" / "0").read_bytes())  # the trap works
    assert trap.exists()


def test_damaged_and_lying_files(tmp_path: Path) -> None:
    refused(foreign.write_phiflow(tmp_path / "velo_000010.npz", tmp_path / "ran"), "PhiFlow", "numpy.save")
    np.save(tmp_path / "u.npy", np.zeros((2, 4, 1, 16)))
    content = (tmp_path / "u.npy").read_bytes()
    (tmp_path / "u.npy").write_bytes(content[:-8])
    refused(tmp_path / "u.npy", "1,024 bytes", "1,016")
    np.savez(tmp_path / "f.npz", u=np.zeros((2, 4, 1, 16)))
    (tmp_path / "f.npz").write_bytes((tmp_path / "f.npz").read_bytes()[:-30])
    refused(tmp_path / "f.npz")
    (tmp_path / "f.txt").write_text("1 2 3")
    refused(tmp_path / "f.txt", "b'1 2 3'")
    refused(tmp_path / "missing.npy")
    np.save(tmp_path / "text.npy", np.array([["a"]]))
    refused(tmp_path / "text.npy", "<U1")
    with zipfile.ZipFile(tmp_path / "f.zip", "w") as file:
        file.writestr("read.me", "")
    refused(tmp_path / "f.zip", "zip file")


@pytest.mark.parametrize("with_start", [True, False])
def test_fno_mat(tmp_path: Path, with_start: bool) -> None:
    u = states(3, 7, 8, 8)  # (N, T, H, W)
    recording = open_recording(foreign.write_fno(tmp_path / "ns.mat", u, with_start))
    assert np.array_equal(whole(recording), u[:, :, None])
    assert [axis.name for axis in recording.axes] == ["x", "y"]


@pytest.mark.parametrize("names", ["usol t", "uu tt", "u t"])
@pytest.mark.parametrize("transposed", [True, False])
def test_pinn_mat(tmp_path: Path, names: str, transposed: bool) -> None:
    u, x, t = states(11, 16), np.linspace(-1, 1, 16), np.linspace(0, 0.5, 11)
    recording = open_recording(foreign.write_pinn(tmp_path / "f.mat", u, x, t, names, transposed))
    assert np.array_equal(whole(recording), u[None, :, None])
    assert np.array_equal(recording.axes[0].coordinates, x)
    assert recording.dt == pytest.approx(0.05, rel=1e-8)


def test_neuralop(tmp_path: Path) -> None:
    y = states(6, 5, 16)
    recording = open_recording(foreign.write_neuralop(tmp_path / "f.pt", y[:, 0], y, 0.01))
    assert np.array_equal(whole(recording), y[:, :, None])
    assert {trajectory.scalars["visc"] for trajectory in recording.trajectories} == {0.01}

    x = states(6, 16, seed=3)
    recording = open_recording(foreign.write_neuralop(tmp_path / "g.pt", x, y, 0.01))
    longer = np.concatenate([x[:, None], y], axis=1)
    assert np.array_equal(whole(recording), longer[:, :, None])
    for part in (slice(0, 1), slice(1, 3), slice(2, None), slice(0, 6, 2), slice(-2, None)):
        assert np.array_equal(recording.trajectories[2].read(part, [0]), longer[2, part][:, None])
    torch.save({"x": torch.from_numpy(x), "y": torch.from_numpy(y), "visc": torch.tensor(0.5)}, tmp_path / "h.pt")
    assert {trajectory.scalars["visc"] for trajectory in open_recording(tmp_path / "h.pt").trajectories} == {0.5}
    torch.save({"x": torch.zeros(6, 16, 16), "y": torch.zeros(6, 16, 16)}, tmp_path / "darcy.pt")
    refused(tmp_path / "darcy.pt", "(6, 16, 16)")


@pytest.mark.parametrize("legacy", [False, True])
def test_tensors(tmp_path: Path, legacy: bool) -> None:
    u = torch.from_numpy(states(2, 9, 5, 8, 8)).transpose(1, 2)
    torch.save(u, tmp_path / "u.pt", _use_new_zipfile_serialization=not legacy)
    recording = open_recording(tmp_path / "u.pt", "btcxy")
    assert np.array_equal(whole(recording), u.numpy())
    torch.save({"train": u, "test": u[:1].to(torch.bfloat16)}, tmp_path / "d.pt")
    recording = open_recording(tmp_path / "d.pt", "btcxy")
    assert [t.split for t in recording.trajectories] == ["train", "train", "test"]
    assert np.array_equal(recording.trajectories[2].read(ALL, [1]), u[0, :, 1:2].to(torch.bfloat16).float().numpy())
    torch.save([1, 2], tmp_path / "l.pt")
    refused(tmp_path / "l.pt", "list")


def test_cfdbench(tmp_path: Path) -> None:
    cases = [(states(5 + i, 2, 6, 4, seed=i), {"vel_in": 0.5 * i, "density": 3, "name": "cavity"}) for i in range(3)]
    cases[1][1]["extra"] = 1
    folder = foreign.write_cfdbench(tmp_path / "cavity", cases)
    recording = open_recording(folder)
    for trajectory, (u, facts) in zip(recording.trajectories, cases, strict=True):
        assert np.array_equal(trajectory.read(ALL, [0, 1]), u)
        assert np.array_equal(trajectory.read(slice(1, 3), [1]), u[1:3, 1:])
        assert dict(trajectory.scalars) == {"vel_in": facts["vel_in"], "density": 3}
    assert [channel.name for channel in recording.channels] == ["u", "v"]
    assert "extra" in recording.notes[0]
    assert len(open_recording(folder / "bc" / "case0001").trajectories) == 1
    np.save(folder / "bc" / "case0002" / "v.npy", np.zeros((7, 6, 5)))
    refused(folder, "case0002", "(7, 6, 5)")
    (folder / "bc" / "case0002" / "v.npy").unlink()
    refused(folder, "case0002", "v.npy")


def test_folder_of_splits(tmp_path: Path) -> None:
    train, test = states(3, 6, 1, 16), states(2, 9, 1, 16)
    np.save(tmp_path / "1d_phy_ks_train.npy", train)
    np.save(tmp_path / "1d_phy_ks_test.npy", test)
    (tmp_path / "1d_phy_ks.json").write_text('{"info": {"num_spatial_dims": 1, "domain_extent": 60.0, "dt": 0.1}}')
    recording = open_recording(tmp_path)
    assert [trajectory.split for trajectory in recording.trajectories] == ["train"] * 3 + ["test"] * 2
    assert np.array_equal(recording.trajectories[4].read(ALL, [0]), test[1])
    assert recording.dt == 0.1
    assert recording.axes[0].periodic
    assert recording.axes[0].coordinates[-1] == 60 * 15 / 16


def test_folder_of_array_files(tmp_path: Path) -> None:
    u = states(4, 6, 1, 16)
    (tmp_path / "README.md").write_text("four runs")
    for row, split in enumerate(["train", "train", "valid", "test"]):
        (tmp_path / split).mkdir(exist_ok=True)
        np.save(tmp_path / split / f"run_{row}.npy", u[row])
    recording = open_recording(tmp_path, "tcx")
    found = {t.split: t.read(ALL, [0]) for t in recording.trajectories}
    assert [t.split for t in recording.trajectories].count("train") == 2
    assert np.array_equal(found["val"], u[2])
    assert np.array_equal(found["test"], u[3])
    assert len(recording.files) == 4


def weather(tmp_path: Path) -> tuple[object, np.ndarray, np.ndarray]:
    """A dataset with latitude, longitude, levels, a packed variable and a field without time."""
    xarray = pytest.importorskip("xarray")
    u = states(6, 2, 8, 16).astype(np.float32)
    packed = np.round(states(6, 8, 16) * 100) / 100
    coordinates = {
        "time": ("time", np.arange(6) * 6, {"units": "hours since 2020-01-01"}),
        "plev": ("plev", [850.0, 500.0], {"positive": "down", "units": "hPa"}),
        "lat": ("lat", np.linspace(-80, 80, 8), {"units": "degrees_north"}),
        "lon": ("lon", np.arange(16) * 22.5, {"standard_name": "longitude"}),
    }
    variables = {
        "ta": (("time", "plev", "lat", "lon"), u, {"units": "K"}),
        "pr": (("lon", "time", "lat"), packed.transpose(2, 0, 1)),
        "orog": (("lat", "lon"), u[0, 0] * 3),
        "mean": (("time",), np.zeros(6)),
    }
    return xarray.Dataset(variables, coordinates), u, packed


@pytest.mark.parametrize("kind", ["h5netcdf", "scipy", "zarr2", "zarr3", "zip"])
@pytest.mark.filterwarnings("ignore:Consolidated metadata", "ignore:Duplicate name", "ignore:saving variable")
def test_netcdf_and_zarr(tmp_path: Path, kind: str) -> None:
    dataset, u, packed = weather(tmp_path)
    path = tmp_path / "file"
    encoding = {"pr": {"dtype": "int16", "scale_factor": 0.01}}
    if kind in ("h5netcdf", "scipy"):
        dataset.to_netcdf(path, engine=kind, encoding=encoding)
    elif kind == "zip":
        import zarr

        store = zarr.storage.ZipStore(path, mode="w")
        dataset.to_zarr(store, encoding=encoding)
        store.close()
    else:
        dataset.to_zarr(path, zarr_format=int(kind[-1]), encoding=encoding)
    recording = open_recording(path)
    names = [channel.name for channel in recording.channels]
    assert sorted(names) == ["pr", "ta_500", "ta_850"]
    (trajectory,) = recording.trajectories
    at = [names.index(name) for name in ("ta_850", "ta_500")]
    assert np.array_equal(trajectory.read(slice(1, 6, 2), at), u[1:6:2])
    assert np.allclose(trajectory.read(ALL, [names.index("pr")])[:, 0], packed, rtol=0, atol=1e-6)
    assert np.array_equal(trajectory.fields(), u[:1, 0] * 3)
    assert recording.field_names == ("orog",)
    assert [(axis.name, axis.periodic) for axis in recording.axes] == [("lat", False), ("lon", True)]
    assert (recording.dt, recording.time_unit) == (6, "h")
    assert np.array_equal(recording.times[0] - recording.times[0][0], 6 * np.arange(6))
    assert recording.channels[at[0]].unit == "K"
    assert "mean" in recording.notes[-1]


class Date(datetime):
    """A day of a calendar without leap years, as cftime has them."""

    calendar = "noleap"


def test_times_that_are_objects(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    days = [Date(1970, 1, 1), Date(1970, 1, 1, 6), Date(1970, 1, 2)]
    for times, found in ((days, ([0, 6, 24], "h")), (["May", "June", "July"], None)):
        coordinates = {"time": np.array(times, dtype=object)}
        recording = read_xarray(tmp_path, xarray.Dataset({"u": (("time", "x"), states(3, 8))}, coordinates), "")
        assert [(part.tolist(), recording.time_unit) for part in recording.times] == ([found] if found else [])


def test_netcdf_regional_longitude_and_refusal(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    variable = (("time", "lat", "lon"), states(4, 5, 6))
    dataset = xarray.Dataset({"u": variable}, {"lon": ("lon", np.arange(6.0)), "lat": ("lat", np.arange(5.0))})
    dataset.to_netcdf(tmp_path / "f.nc", engine="h5netcdf")
    assert [axis.periodic for axis in open_recording(tmp_path / "f.nc").axes] == [False, False]
    xarray.Dataset({"u": (("a", "lon"), np.zeros((4, 6)))}).to_netcdf(tmp_path / "g.nc", engine="scipy")
    refused(tmp_path / "g.nc", "u (a 4, lon 6)")


def test_zarr_without_names_of_dimensions(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    u = states(3, 6, 2, 16)
    for version in (2, 3):
        group = zarr.open_group(tmp_path / f"{version}.zarr", mode="w", zarr_format=version)
        group.create_array("u", data=u)
        assert np.array_equal(whole(open_recording(tmp_path / f"{version}.zarr")), u)
    zarr.create_array(store=str(tmp_path / "array.zarr"), data=u)
    assert np.array_equal(whole(open_recording(tmp_path / "array.zarr")), u)
