"""One self-contained HTML page: style, script and data are inside it, and its policy forbids it to load anything.

Text and tables are plain HTML that a reader without JavaScript sees too; curves and players are drawn by `page.js` from
the data in a JSON block. Values from data are escaped by the templates, or set as text by the script.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from markupsafe import Markup

from hero.files import write_atomic
from hero.report.content import change_table
from hero.report.inputs import ReportInputs
from hero.report.page.payload import image, payload
from hero.report.tables import format_number, template

SCRIPTS = ("basics.js", "chart.js", "player.js", "page.js")
"""In the order in which they need each other."""
FOLDED_NOTICES = 6
"""More notices than this are folded."""


def write_page(inputs: ReportInputs, path: Path) -> Path:
    """Write the report of all that was gathered."""
    return write_atomic(path, render(payload(inputs)).encode())


def render(data: Mapping[str, Any]) -> str:
    """The page of a payload. Style, script and JSON are ours or safe as they are; all else is escaped."""
    style = _asset("page.css")
    script = '\n"use strict";\n(() => {\n' + "\n".join(map(_asset, SCRIPTS)) + "})();\n"
    return template("page.html").render(
        data=data,
        policy=_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        json=Markup(_json({key: data[key] for key in ("curves", "players", "training")})),
        folded_notices=FOLDED_NOTICES,
        drawn=lambda run, kind: image(run.run.path / "figures" / f"{kind}.png"),
        change_table=lambda run: change_table(run.before, run.metrics),
        shown=lambda value: format_number(value) if isinstance(value, float) else str(value),
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
