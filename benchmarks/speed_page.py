"""Tables and figure of docs/reference/speed.md, made from `results/speed/` alone; a part of `make results`.

Between `<!-- begin NAME -->` and `<!-- end NAME -->` the page holds what is written here, "not run" where
`results/speed/` has no file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.growth import growth_figure
from benchmarks.speed_files import read_speed
from hero.files import write_atomic
from hero.report.figures.style import save

PAGE, FIGURE = Path("docs/reference/speed.md"), Path("docs/figures/growth.png")
NOT_RUN = "not run"
Parts = dict[str, Any]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def time_text(seconds: float) -> str:
    """Milliseconds below ten seconds, else seconds, three digits."""
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def measured_on(parts: Parts) -> str:
    """The commits and days of all parts; one of each where they were measured together."""
    told = sorted({f"{part['about']['commit']}, {part['about']['day']}" for part in parts.values()})
    return f"Measured at {'; '.join(told)}."


def beside(rows: Sequence[Parts], label: str) -> str:
    """Time and memory of a participant, each over ours."""
    found = {row["participant"]: row for row in rows}
    if label not in found:
        return ""
    row, ours = found[label], found["hero"]
    if "failed" in row or "failed" in ours:
        return "failed"
    memory = row["peak_bytes"] / max(ours["peak_bytes"], 1)
    return f"{row['median_seconds'] / ours['median_seconds']:.2f} ({memory:.2f})"


def grouped(rows: Sequence[Parts], fields: Sequence[str]) -> list[list[Parts]]:
    """Rows of the same work, in order."""
    groups: dict[tuple[Any, ...], list[Parts]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in fields), []).append(row)
    return list(groups.values())


WORK = ("network", "dims", "points", "width", "modes", "depth", "batch", "steps")


def own(rows: Sequence[Parts]) -> str:
    """Our time and memory."""
    ours = next(row for row in rows if row["participant"] == "hero")
    return "failed" if "failed" in ours else f"{time_text(ours['median_seconds'])}, {ours['peak_bytes'] / 2**20:.0f} MB"


def sizes_table(parts: Parts) -> str:
    """Sizes that people train: ours, then the others' time over ours, in brackets their memory over ours."""
    lines = []
    for part in sorted(parts):
        for rows in grouped(parts[part]["rows"], WORK):
            first = rows[0]
            grid = f"{first['points']}{('', '²', '³')[first['dims'] - 1]}"
            name = f"{first['network']} {grid}, width {first['width']}, batch {first['batch']}"
            name += f", {first['modes']} modes" if first["network"] == "fno" else ""
            others = [beside(rows, label) for label in ("other transform", "neuralop", "authors")]
            lines.append([name, own(rows), *others])
    return table(["update", "hero", "other transform", "neuralop", "authors"], lines)


def peers_table(parts: Parts) -> str:
    """Training and inference of the paper's networks."""
    labels = ("hero eager", "hero compiled", "neuralop", "apebench")
    lines = []
    for part in sorted(parts):
        result = parts[part]["rows"]
        for rows in grouped(result["training"] + result["inference"], ("kind", *WORK)):
            first = rows[0]
            name = f"{first['kind']} {first['dims']}D, {first['batch']} x {first['steps']}"
            lines.append([name, own(rows), *(beside(rows, label) for label in labels)])
    return table(["(batch x steps)", "hero", *labels], lines)


def limits_line(parts: Parts) -> str:
    """Our training time over the limit of the machine."""
    found = [
        f"{row['median_seconds'] / row['limit_seconds']:.1f} ({row['dims']}D)"
        for part in sorted(parts)
        for row in parts[part]["rows"]["training"]
        if row["participant"] == "hero" and "failed" not in row
    ]
    return f"Training is at {', '.join(found)} times the limit of the machine."


def updates_table(parts: Parts) -> str:
    """An update of HERO and of SOAP over a push-forward update with AdamW."""
    arms = list(dict.fromkeys(row["arm"] for part in parts.values() for row in part["rows"]))
    lines = []
    for part in sorted(parts):
        found = {row["arm"]: row for row in parts[part]["rows"]}
        cells = [f"{time_text(found[arm]['seconds'])} ({found[arm]['ratio']:.2f})" for arm in arms]
        lines.append([f"{part}D", *cells])
    return table(["", *arms], lines)


def solution_table(parts: Parts) -> str:
    """Seconds from the command to the evaluated operator, over ours in brackets, and the error that was reached."""
    ours = parts.get("hero", {}).get("rows", {})
    lines = []
    for name, part in parts.items():
        cells = []
        for state in ("cold", "warm"):
            seconds = part["rows"].get(state, {}).get("seconds")
            over = f" ({seconds / ours[state]['seconds']:.1f})" if seconds and state in ours else ""
            cells.append(f"{seconds:.0f} s{over}" if seconds else NOT_RUN)
        reached = part["rows"]["cold"]
        lines.append(
            [name, str(part["rows"]["updates"]), *cells, f"{reached['gm100']:.3g}", f"{reached['nrmse@100']:.3g}"]
        )
    return table(["", "updates", "cold", "warm", "GM100", "nRMSE@100"], lines)


TABLES: dict[str, tuple[str, Callable[[Parts], str]]] = {
    "solution": ("solution", solution_table),
    "peers": ("peers", lambda parts: f"{peers_table(parts)}\n\n{limits_line(parts)}"),
    "updates": ("updates", updates_table),
    "sizes": ("sizes", sizes_table),
}
"""By the name on the page: the file, and what is made of it."""


def filled(text: str, folder: Path) -> str:
    """The page with its tables as the stored measurements give them."""
    for name, (file, make) in TABLES.items():
        parts = read_speed(file, folder)
        made = f"{measured_on(parts)}\n\n{make(parts)}" if parts else NOT_RUN
        block = f"<!-- begin {name} -->\n{made}\n<!-- end {name} -->"
        marks = re.compile(rf"<!-- begin {name} -->\n.*?<!-- end {name} -->", re.DOTALL)
        text = marks.sub(block.replace("\\", r"\\"), text)
    return text


def build_speed(results: Path, root: Path) -> list[Path]:
    """Write the tables into the page, and the figure; returns what was written."""
    page, folder = root / PAGE, results / "speed"
    written = [write_atomic(page, filled(page.read_text(encoding="utf-8"), folder).encode())]
    if growth := read_speed("growth", folder):
        written.append(save(growth_figure(growth), root / FIGURE))
    return written
