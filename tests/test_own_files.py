"""Files as simulations leave them, written by the libraries that people use: read, examined, trained on, predicted."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from conftest import Call
from foreign import refused
from foreign_arrays import matlab, states
from hero.data.formats import open_recording
from test_files import through_the_flow, waves
from test_formats_arrays import whole


def names_of(recording: object) -> list[str]:
    return [channel.name for channel in recording.channels]  # type: ignore[attr-defined]


def test_fields_that_share_axes_are_channels_by_name(tmp_path: Path, call: Call) -> None:
    u = waves(4, 9, 3, 8, 6)
    axes = {"x": np.arange(8.0), "y": np.arange(6.0), "t": 0.5 * np.arange(9)}
    file = tmp_path / "f.npz"
    fields = {"temperature": u[:, :, 0], "wind": np.moveaxis(u[:, :, 1:], 2, -1), "hill": u[0, 0, 0]}
    others = {"reynolds": [1.0, 2, 3, 4], "seed": np.arange(4), "spectrum": np.ones((4, 9))}
    np.savez(file, **fields, **others, **axes)
    recording = open_recording(file)
    assert names_of(recording) == ["temperature", "wind_0", "wind_1"]
    assert np.array_equal(whole(recording), u)
    assert recording.dt == 0.5
    assert [dict(run.scalars) for run in recording.trajectories] == [{"reynolds": n} for n in (1.0, 2, 3, 4)]
    assert recording.field_names == ("hill",)
    assert np.array_equal(recording.trajectories[1].fields()[0], u[0, 0, 0])  # type: ignore[misc]
    assert any("Not used: seed (4,), spectrum (4, 9)" in note for note in recording.notes)
    config = through_the_flow(file, tmp_path, call).config
    assert config.source.conditioning == ("reynolds", "hill")
    assert config.source.channel_names == ("temperature", "wind_0", "wind_1")


@pytest.mark.parametrize("kind", ["mat", "struct", "h5", "groups"])
def test_named_fields_of_matlab_and_hdf5(tmp_path: Path, kind: str) -> None:
    u, x, t = states(9, 2, 8, seed=3), np.linspace(0, 1, 8), 0.1 * np.arange(9)
    fields = {"Ca": u[:, 0], "Cb": u[:, 1], "x": x, "t": t, "nu": 0.5}
    path = tmp_path / "f.dat"
    if kind in ("mat", "struct"):
        matlab.savemat(tmp_path / "f.mat", {"run": fields} if kind == "struct" else fields, do_compression=True)
        path = tmp_path / "f.mat"
    else:
        with h5py.File(path, "w") as file:
            for group in ("run_a", "run_b") if kind == "groups" else ("",):
                for name, values in fields.items():
                    file[f"{group}/fields/{name}" if group else name] = values
    recording = open_recording(path)
    assert names_of(recording) == ["Ca", "Cb"]
    assert np.array_equal(whole(recording), np.stack([u] * len(recording.trajectories)))
    assert len(recording.trajectories) == (2 if kind == "groups" else 1)
    assert recording.dt == pytest.approx(0.1)
    assert np.array_equal(recording.axes[0].coordinates, x)
    assert recording.trajectories[0].scalars == {"nu": 0.5}


def test_velocity_and_pressure_are_no_poseidon_file(tmp_path: Path) -> None:
    u = states(3, 7, 3, 8, 8)
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["velocity"], file["pressure"] = u[:, :, :2], u[:, :, 2]
    recording = open_recording(tmp_path / "f.h5")
    assert names_of(recording) == ["pressure", "velocity_0", "velocity_1"]
    assert np.array_equal(whole(recording), u[:, :, [2, 0, 1]])


def test_complex_fields_are_two_channels(tmp_path: Path) -> None:
    u = waves(1, 30, 2, 12)[0].astype("f8")
    psi = u[:, 0] + 1j * u[:, 1]
    x, t = np.arange(12.0)[None], np.arange(30.0)[:, None]
    matlab.savemat(tmp_path / "nls.mat", {"uu": psi.T, "x": x, "t": t})
    np.save(tmp_path / "nls.npy", psi)
    with h5py.File(tmp_path / "nls.h5", "w") as file:
        file["psi"], file["t"] = psi, t[:, 0]
    for name, base, layout in (("nls.mat", "uu", ""), ("nls.npy", "u", "tx"), ("nls.h5", "psi", "tx")):
        recording = open_recording(tmp_path / name, layout)
        assert names_of(recording) == [f"{base}_real", f"{base}_imag"]
        assert np.array_equal(whole(recording)[0], u)
        assert any("complex" in note for note in recording.notes)


def test_an_imaginary_part_of_rounding_is_dropped_and_said(tmp_path: Path) -> None:
    u, x, t = waves(1, 60, 1, 16)[0, :, 0], np.arange(16.0), np.arange(60.0)
    matlab.savemat(tmp_path / "kdv.mat", {"usol": (u + 2e-6j * u).T, "x": x, "t": t})
    recording = open_recording(tmp_path / "kdv.mat")
    assert np.array_equal(whole(recording)[0, :, 0], u)
    assert any("rounding" in note for note in recording.notes)


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_flattened_grids_are_unfolded(tmp_path: Path, dtype: str) -> None:
    u = states(3, 9, 2, 5, 4, seed=4).astype(dtype)
    np.save(tmp_path / "f.npy", u[:, :, 0].reshape(3, 9, 20))
    recording = open_recording(tmp_path / "f.npy", "b t (x=5 y=4)")
    assert recording.space == (5, 4)
    assert np.array_equal(whole(recording)[:, :, 0], u[:, :, 0].real)
    part = recording.trajectories[2].read(slice(1, 8, 3), [0])
    assert np.array_equal(part[:, 0], u[2, 1:8:3, 0].real)
    np.savez(tmp_path / "f.npz", a=u[:, :, 0].reshape(27, 20), b=u[:, :, 1].reshape(27, 20), mu=np.ones((3, 2)))
    recording = open_recording(tmp_path / "f.npz", "(b=3 t=9)(x=5 y=4)")
    assert np.array_equal(whole(recording), u.real)
    for layout in ("bt(x=5 y=5)", "bt(x y)", "b(x=5 y=4)"):
        refused(tmp_path / "f.npy", "(3, 9, 20)", "as in 'b t (x=21 y=21)'", layout=layout)


def test_flattened_states_go_through_the_flow(tmp_path: Path, call: Call) -> None:
    np.save(tmp_path / "f.npy", waves(10, 8, 1, 8, 6).reshape(10, 8, 48))
    run = through_the_flow(tmp_path / "f.npy", tmp_path, call, "data.layout=b t (x=8 y=6)")
    assert run.config.source.space == (8, 6)
    (tmp_path / "sim").mkdir()
    for frame in range(9):
        np.save(tmp_path / "sim" / f"u_{frame}.npy", states(48, seed=frame))
    recording = open_recording(tmp_path / "sim", "u_{t}.npy (x=8 y=6)")
    assert np.array_equal(whole(recording)[0, 5, 0], states(48, seed=5).reshape(8, 6))


@pytest.mark.parametrize("command", ["doctor", "train"])
def test_a_file_without_space_is_refused_in_one_sentence(tmp_path: Path, call: Call, command: str) -> None:
    np.savez(tmp_path / "ode.npz", t=0.1 * np.arange(25), u=states(25, 3))
    code, _, err = call(command, tmp_path / "ode.npz")
    assert code == 2
    assert "no axis of space" in err
    assert "data.layout=tx" in err


def test_staggered_grids_are_averaged_to_cells(tmp_path: Path) -> None:
    u, v, p = states(7, 9, 6), states(7, 8, 7, seed=1), states(7, 8, 6, seed=2)
    axes = {"x": np.arange(8.0), "y": np.arange(6.0), "t": np.arange(7.0)}
    np.savez(tmp_path / "f.npz", u=u, v=v, p=p, **axes)
    recording = open_recording(tmp_path / "f.npz")
    assert names_of(recording) == ["u", "v", "p"]
    expected = np.stack([(u[:, 1:] + u[:, :-1]) / 2, (v[:, :, 1:] + v[:, :, :-1]) / 2, p], axis=1)
    assert np.array_equal(whole(recording)[0], expected)
    assert sum("faces" in note for note in recording.notes) == 2
    np.savez(tmp_path / "g.npz", u=p, w=states(8, 8, 6), **axes)  # one state more is no staggered grid
    assert names_of(open_recording(tmp_path / "g.npz")) == ["u"]
    np.savez(tmp_path / "h.npz", train=states(4, 7, 8), test=states(5, 6, 8))  # nor are splits of other sizes
    assert [one.frames for one in open_recording(tmp_path / "h.npz", "btx").trajectories] == [7] * 4 + [6] * 5
