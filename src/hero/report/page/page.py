"""One self-contained HTML page: style, script and data are inside it, and its policy forbids it to load anything.

Text and tables are plain HTML that a reader without JavaScript sees too; curves and players are drawn by `page.js` from
the data in a JSON block. Whatever comes from data is escaped here or set as text there.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from hero.files import write_atomic
from hero.report.page.payload import payload
from hero.report.page.sources import Sources

CAPTIONS = {
    "landscape": "Mean test error of checkpoints kept during training, divided by that of the final model (the weights "
    "with the best validation score) at the same rollout step, as a logarithm. Red: worse than the final model; blue: "
    "better; the bottom row is zero by definition.",
    "probe": "One point per validation window: its activation α, the weight that history gives it, against its "
    "usefulness a, the inner product of its gradient with the gradient of the long-horizon risk. History helps to "
    "first order where the points rise to the right. In brackets a 95 % interval of the correlation.",
}
FOLDED_NOTICES = 6
"""More notices than this are folded."""

Data = Mapping[str, Any]


def write_page(sources: Sources, path: Path) -> Path:
    """Write the report of all that was gathered."""
    return write_atomic(path, render(payload(sources)).encode("utf-8"))


def render(data: Data) -> str:
    """The page of a payload."""
    style, script = _asset("page.css"), _asset("page.js")
    sections = [
        ("tables", "Results", "".join(map(table_html, data["tables"]))),
        ("curves", "Error along the rollout", CURVES_HTML if data["curves"]["panels"] else ""),
        ("players", "Rollouts", PLAYER_HTML if data["players"]["runs"] else ""),
        ("training", "Training", TRAINING_HTML if data["training"] else ""),
        ("analyses", "Analyses", "".join(map(_analysis_html, data["analyses"]))),
        ("statistics", "Statistics", "".join(map(_study_html, data["studies"]))),
        ("provenance", "Configuration and provenance", "".join(map(_provenance_html, data["runs"]))),
    ]
    shown = [section for section in sections if section[2]]
    return Template(_asset("page.html")).substitute(
        title=escape(data["title"]),
        policy=escape(_policy(style, script)),
        style=style,
        script=script,
        lead=_lead_html(data["lead"]),
        notices=_notices_html(data["notices"]),
        contents="".join(f'<li><a href="#{key}">{title}</a></li>' for key, title, _ in shown),
        sections="\n".join(
            f'<section id="{key}" aria-labelledby="{key}-title"><h2 id="{key}-title">{title}</h2>{body}</section>'
            for key, title, body in shown
        ),
        data=_json({key: data[key] for key in ("curves", "players", "training")}),
    )


def _asset(name: str) -> str:
    return resources.files("hero.report.page").joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Nothing may be loaded, and no other style or script than ours may run, wherever it comes from."""
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    style_hash, script_hash = (f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; img-src data:; style-src {style_hash}; script-src {script_hash}; "
        "base-uri 'none'; form-action 'none'"
    )


def _json(content: Any) -> str:
    """JSON that cannot end the script element around it."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _lead_html(sentences: Sequence[str]) -> str:
    if len(sentences) == 1:
        return f'<p class="lead">{escape(sentences[0])}</p>'
    return '<ul class="lead">' + "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences) + "</ul>"


def _notices_html(notices: Sequence[str]) -> str:
    if not notices:
        return ""
    items = "<ul>" + "".join(f"<li>{escape(notice)}</li>" for notice in notices) + "</ul>"
    if len(notices) <= FOLDED_NOTICES:
        return f'<div class="notices">{items}</div>'
    return f'<details class="notices"><summary>{len(notices)} things are missing</summary>{items}</details>'


def table_html(table: Data) -> str:
    """A table in a box that scrolls by itself; its headings become buttons that sort."""
    heading = f"<h3>{escape(table['title'])}</h3>" if table["title"] else ""
    columns = "".join(_heading_html(column) for column in table["columns"])
    rows = "\n".join("<tr>" + "".join(_cell_html(cell, i == 0) for i, cell in enumerate(row)) + "</tr>"
                     for row in table["rows"])  # fmt: skip
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in table["notes"])
    sortable = ' class="sortable"' if table.get("sortable", True) and len(table["rows"]) > 1 else ""
    label = escape(table["title"] or "Table")
    body = (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table{sortable}>'
        f"<thead><tr>{columns}</tr></thead><tbody>\n{rows}\n</tbody></table></div>{notes}"
    )
    if table.get("folded"):
        return f"<details><summary>{label} ({len(table['rows'])})</summary>{body}</details>"
    return heading + body


def _heading_html(column: Data) -> str:
    title = f' title="{escape(column["title"])}"' if column.get("title") else ""
    return f'<th scope="col"{title}>{escape(column["label"])}</th>'


def _cell_html(cell: Data, first: bool) -> str:
    value = cell["value"]
    raw = "" if value is None else f' data-value="{escape(str(value))}"'
    hover = f' title="{escape(repr(value))}"' if isinstance(value, float) and not first else ""
    kinds = " ".join(kind for kind in (cell.get("kind"), "best" if cell.get("best") else "") if kind)
    style = f' class="{escape(kinds)}"' if kinds else ""
    text = escape(cell["text"])
    main = f"<strong>{text}</strong>" if cell.get("best") else f"<span>{text}</span>"
    small = "".join(f"<small>{escape(line)}</small>" for line in (cell.get("small") or "").splitlines())
    return f'<th scope="row"{raw}>{main}{small}</th>' if first else f"<td{style}{raw}{hover}>{main}{small}</td>"


def _figure_html(source: str, title: str, caption: str) -> str:
    alt = escape(f"{title}. {caption}".strip())
    return f'<figure><img alt="{alt}" src="{source}"><figcaption>{escape(caption or title)}</figcaption></figure>'


def _analysis_html(part: Data) -> str:
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in part["sentences"])
    figure = _figure_html(part["image"], part["title"], CAPTIONS[part["kind"]]) if part["image"] else ""
    table = ""
    if part["table"]:
        table = f"<details><summary>All numbers of the probe</summary>{table_html(part['table'])}</details>"
    return f"<h3>{escape(part['title'])}: {escape(part['run'])}</h3>{sentences}{figure}{table}"


def _study_html(study: Data) -> str:
    figures = "".join(_figure_html(figure["image"], figure["name"], "") for figure in study["figures"])
    tables = "".join(map(table_html, study["tables"]))
    return f"<h3>{escape(study['title'])}</h3>{tables}{figures}" if figures or tables else ""


def _provenance_html(run: Data) -> str:
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in run["facts"].items())
    return (
        f"<details><summary>{escape(run['run'])}</summary><dl>{facts}</dl>"
        f'<pre tabindex="0" aria-label="Configuration"><code>{escape(run["config"])}</code></pre></details>'
    )


CURVES_HTML = """
<div class="controls">
<label>Metric <select id="curve-metric"></select></label>
<button type="button" id="curve-scale" aria-pressed="true">Logarithmic axis</button>
</div>
<p class="note">Mean over seeds; the band reaches from the lowest to the highest seed. A rollout is stable while it
stays at or below the dotted line. A cross marks the step from which a mean is infinite, because a rollout diverged; a
diamond is the paper’s mean. Move over a chart, touch it, or focus it and use the arrow keys, to read the values; the
names switch series off and on.</p>
<div id="curve-panels" class="panels"></div>
"""
PLAYER_HTML = """
<div class="controls">
<label>Run <select id="player-run"></select></label>
<button type="button" id="player-play">Play</button>
<label>Speed <select id="player-speed"><option value="4">slow</option><option value="12" selected>normal</option>
<option value="30">fast</option></select></label>
</div>
<div class="controls">
<label class="wide">Step <input type="range" id="player-slider" min="0" value="0" step="1"></label>
<output id="player-step" for="player-slider"></output></div>
<div id="player-fields" class="fields"></div>
<div id="player-charts" class="panels"></div>
<p class="note" id="player-notes"></p>
"""
TRAINING_HTML = """
<div class="controls"><label>Run <select id="training-run"></select></label></div>
<div id="training-charts" class="panels"></div>
"""
