"""The command `hero doctor`: a file of trajectories before training, or a trained run whose rollout fails."""

from pathlib import Path
from typing import Annotated

from hero.cli.options import Folders, JsonFile, argument, option
from hero.cli.show import show
from hero.console import say


def doctor(
    name: Annotated[str, argument("FILE|FOLDER|RUN", "Trajectories in a file or folder, or a trained run.", "run")],
    where: Folders,
    layout: Annotated[str, option("WORD", "Order of the axes of a bare array, such as btcxy.")] = "",
    out: Annotated[Path | None, option("DIR", "Folder of the pictures (default: doctor-NAME).")] = None,
    json: JsonFile = None,
) -> int:
    """Tell whether trajectories are fit for training, and what to type.

    Exit code: 0 fit for training, 1 problems to solve first, 2 unreadable.
    """
    return examine_file(Path(name), layout, out or Path(f"doctor-{Path(name).resolve().stem}"), json)


def examine_file(path: Path, layout: str, out: Path, json: Path | None) -> int:
    """Print the diagnosis of a file, draw its pictures, and return the exit code."""
    from hero.data.readers import open_recording
    from hero.evaluation.doctor import diagnose
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
    say(f"pictures: {out}", style="dim")
    say(*doctor.verdict(found))
    return int(bool(found.problems))
