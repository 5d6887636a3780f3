"""The command `hero doctor`: a file of trajectories before training, or a trained run whose rollout fails."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hero.cli.options import Folders, JsonFile, Open, argument, option
from hero.cli.show import show, show_file
from hero.console import say
from hero.errors import HeroError

if TYPE_CHECKING:
    from hero.analysis.doctor import Diagnosis


def doctor(
    name: Annotated[str, argument("FILE|FOLDER|RUN", "Trajectories in a file or folder, or a trained run.", "run")],
    where: Folders,
    layout: Annotated[
        str, option("WORD", "Axes of an array, such as btcxy, or names of files, such as sim_{b}/{c}_{t}.npy.")
    ] = "",
    out: Annotated[Path | None, option("DIR", "Folder of the pictures (default: doctor-NAME).")] = None,
    json: JsonFile = None,
    open: Open = False,
) -> int:
    """Check whether trajectories are fit for training, or explain why the rollout of a run fails.

    Exit code of a file: 0 fit for training, 1 problems to solve first, 2 unreadable.
    """
    folder = find_only_run(name, where)
    if folder is not None:
        pictures, code = examine_run(folder, where.data, json), 0
    else:
        pictures = out or Path(f"doctor-{Path(name).resolve().stem}")
        code = examine_file(Path(name), layout, pictures, json)
    if open:
        show_file(pictures)
    return code


def examine_file(path: Path, layout: str, out: Path, json: Path | None) -> int:
    """Print the diagnosis of a file, draw its pictures, and return the exit code."""
    from hero.analysis.doctor import diagnose
    from hero.data.formats import open_recording
    from hero.report import doctor
    from hero.report.figures.doctor import figures
    from hero.report.figures.style import save

    recording = open_recording(path, layout)
    found = diagnose(recording, str(path), layout)
    for table in (doctor.facts_table(found), doctor.channels_table(found), doctor.findings_table(found)):
        show(table)
    for name, figure in figures(found, recording).items():
        save(figure, out / f"{name}.png")
    if json:
        found.write(json)
    network = "" if found.problems else show_operator(found, out)
    say(f"pictures: {out}", style="dim")
    say(*doctor.verdict(found, network))
    return int(bool(found.problems))


def show_operator(found: "Diagnosis", data_dir: Path) -> str:
    """Print what the operator keeps that the command of a diagnosis trains; returns its network and what it costs."""
    from hero.parts import RECOMMENDED
    from hero.report.content import structure_table
    from hero.runs.config import make_config
    from hero.runs.structure import find_structure, sample_data
    from hero.study.cost.count import network_sentence

    words = [f"{key}={value}" for key, value in found.settings.items()]
    config = make_config(RECOMMENDED, overrides=[f"data.path={found.source}", *words])
    show(structure_table(find_structure(config, sample_data(config, data_dir))))
    return network_sentence(config)


def find_only_run(name: str, where: Folders) -> Path | None:
    """The run of that name; None where it is not a run but something on the disk, or nothing at all."""
    if Path(name).exists() and not (Path(name) / "config.toml").is_file():
        return None
    try:
        return where.find(name)
    except HeroError:
        if Path(name).suffix or "/" in name or ":" in name:
            return None  # a missing file: its reader says so
        raise


def examine_run(run: Path, data_dir: Path, json: Path | None) -> Path:
    """Print why the rollout of a run fails, and draw it; returns the picture."""
    from hero.analysis.doctor_run import doctor_run
    from hero.report.doctor import run_table
    from hero.report.figures.doctor import run_figure
    from hero.report.figures.style import save

    found = doctor_run(run, data_dir)
    show(run_table(found))
    path = save(run_figure(found), run / "figures" / "doctor.png")
    say(f"figure: {path}", style="dim")
    if json:
        found.write(json)
    say(found.verdict)
    return path
