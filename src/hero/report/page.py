"""One self-contained HTML page per run: the verdict in a sentence, the table, the pictures, the config, the provenance.

The page loads nothing: images are data URIs and the style is inline, so it can be mailed, archived or read offline.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from hero.files import write_atomic
from hero.report.figures import Log, series
from hero.report.reference import paper_value
from hero.report.tables import MISSING, diverged_of, format_number, metric_rows

STRATEGIES = {
    "one_step": "one-step training",
    "push_forward": "push-forward training",
    "refiner": "PDE-Refiner",
    "recurrent": "recurrent training",
    "diverted_chain": "a diverted chain",
    "history_replay": "history replay",
    "hero": "HERO",
    "fixed_weight": "a fixed-weight control of HERO",
}
BACKBONES = {"fno": "FNO", "transolver": "Transolver"}
CAPTIONS = {
    "error": "Relative error of every test rollout against the step, on a logarithmic axis. A rollout is stable while "
    "it stays at or below the dotted line; a cross marks the step at which one left the finite range.",
    "fields": "Truth, prediction and their difference for the test trajectory with median GM100: a typical case, "
    "chosen by this rule and not by eye. Truth and prediction share one colour scale.",
    "spectrum": "Power per wavenumber of the same trajectory, averaged over directions. A prediction that falls below "
    "the truth has smoothed small scales away; one that rises above it adds noise.",
    "training": "Loss, validation error and learning rate over the optimiser steps. The star is the checkpoint that "
    "was kept, chosen on validation data only; for HERO also its weights and which candidate it selected.",
    "history": "What the relative term saw: the gate α that scales each sample's gradient, how much worse than the "
    "current rollout the selected reference was, and the diagnostics of each candidate (means over samples).",
    "landscape": "Mean test error of checkpoints kept during training, divided by that of the final model (the weights "
    "with the best validation score) at the same rollout step, as a logarithm. Red: worse than the final model; blue: "
    "better; the bottom row is zero by definition.",
    "probe": "One point per validation window: its activation α, the weight that history gives it, against its "
    "usefulness a, the inner product of its gradient with the gradient of the long-horizon risk. History helps to "
    "first order where the points rise to the right. In brackets a 95 % interval of the correlation.",
}
_VERDICTS = {"better": "better", "worse": "worse", "within": "within one std", "": MISSING}

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --page: #ffffff; --tint: #f3f5f8;
  --good: #00674b; --bad: #a83c00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --soft: #9da7b3; --line: #3a424c; --page: #14171b;
  --tint: #1e2329; --good: #4fd0a5; --bad: #ff9a5c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
main, footer { max-width: 64rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; margin: 0.5rem 0; } h2 { font-size: 1.15rem; margin: 2rem 0 0.5rem; }
.lead { font-size: 1.15rem; padding: 0.8rem 1rem; background: var(--tint); border-left: 4px solid var(--soft); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: 0.4rem 0.6rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th:first-child, td:first-child { text-align: left; }
td { font-variant-numeric: tabular-nums; white-space: nowrap; }
tbody th { font-weight: 600; min-width: 12rem; }
small { display: block; font-weight: 400; color: var(--soft); line-height: 1.35; }
.better { color: var(--good); } .worse { color: var(--bad); }
figure { margin: 1rem 0 2rem; }
figure img { width: 100%; height: auto; background: #ffffff; border: 1px solid var(--line); border-radius: 4px; }
figcaption, footer, .note { color: var(--soft); font-size: 0.92rem; }
pre { overflow-x: auto; padding: 0.8rem; background: var(--tint); font-size: 0.88rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 1rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
"""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
<p class="lead">{sentence}</p>
<section>
<h2>Metrics</h2>
{table}
</section>
<section>
<h2>Figures</h2>
{figures}
</section>
<section>
<h2>Configuration</h2>
<pre><code>{config}</code></pre>
</section>
<section>
<h2>Provenance</h2>
{provenance}
</section>
</main>
</body>
</html>
"""


def write_report(
    run_dir: Path,
    metrics: Mapping[str, Any],
    config_text: str,
    log: Log,
    figures: Mapping[str, Path],
    task_title: str | None = None,
) -> Path:
    """Write `run_dir/report.html`; `figures` maps a heading to a PNG whose file name selects its caption."""
    task = task_title or str(metrics["task"]).replace("_", " ").capitalize()
    page = _PAGE.format(
        title=escape(f"{task}: {_backbone(metrics)}, {_strategy(metrics)}"),
        style=_STYLE,
        sentence=escape(summary_sentence(metrics, task)),
        table=_metrics_html(metrics),
        figures="\n".join(_figure_html(title, path) for title, path in figures.items()),
        config=escape(config_text),
        provenance=_provenance_html(metrics, log),
    )
    return write_atomic(Path(run_dir) / "report.html", page.encode("utf-8"))


def summary_sentence(metrics: Mapping[str, Any], task_title: str) -> str:
    """ "FNO trained with HERO on Burgers: nRMSE@100 0.031, paper 0.153; 0 of 30 rollouts diverged." """
    test = metrics.get("test") or {}
    name = "nrmse@100" if "nrmse@100" in test else "nrmse@1"
    published = paper_value(metrics["task"], metrics["backbone"], metrics["strategy"])
    beside = f", paper {published[name]['mean']:g}" if published else ""
    return (
        f"{_backbone(metrics)} trained with {_strategy(metrics)} on {task_title}: "
        f"{name.replace('nrmse', 'nRMSE')} {format_number(test.get(name))}{beside}; "
        f"{diverged_of(metrics)} rollouts diverged."
    )


def _backbone(metrics: Mapping[str, Any]) -> str:
    return BACKBONES.get(metrics["backbone"], str(metrics["backbone"]))


def _strategy(metrics: Mapping[str, Any]) -> str:
    return STRATEGIES.get(metrics["strategy"], str(metrics["strategy"]))


def _metrics_html(metrics: Mapping[str, Any]) -> str:
    lines = []
    for row in metric_rows(metrics):
        cells = "".join(f"<td>{escape(text)}</td>" for text in (row.ours, row.paper, row.ratio))
        verdict = f'<td class="{row.verdict}">{_VERDICTS[row.verdict]}</td>' if row.verdict else f"<td>{MISSING}</td>"
        label = f'<th scope="row">{escape(row.label)}<small>{escape(row.definition)}</small></th>'
        lines.append(f"<tr>{label}{cells}{verdict}</tr>")
    head = "".join(f'<th scope="col">{c}</th>' for c in ("Metric", "Ours", "Paper (mean ± std)", "Ratio", "Ours is"))
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n'
        + "\n".join(lines)
        + "\n</tbody></table></div>\n"
        '<p class="note">Ours is this one run. The paper’s values are its published means over five seeds, on its own '
        "data; they are printed for reference. Ratio is ours divided by the paper’s mean. ∞ means that at least one "
        "rollout diverged.</p>"
    )


def _figure_html(title: str, path: Path) -> str:
    caption = escape(CAPTIONS.get(path.stem, title))
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return (
        f"<h3>{escape(title)}</h3>\n"
        f'<figure><img alt="{escape(title)}. {caption}" src="data:image/png;base64,{data}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _provenance_html(metrics: Mapping[str, Any], log: Log) -> str:
    facts: dict[str, Any] = {
        "run": metrics.get("run"),
        "task": metrics.get("task"),
        "backbone": metrics.get("backbone"),
        "strategy": metrics.get("strategy"),
        "seed": metrics.get("seed"),
        "parameters": metrics.get("parameters"),
        "best checkpoint at step": metrics.get("best_step"),
        "validations": len(series(log, "val_gm100")[0]),
    }
    facts |= {key.replace("_", " "): value for key, value in (metrics.get("training") or {}).items()}
    facts |= {f"version of {name}": value for name, value in (metrics.get("versions") or {}).items()}
    items = (f"<dt>{escape(name)}</dt><dd>{escape(_fact(value))}</dd>" for name, value in facts.items())
    return "<dl>" + "\n".join(items) + "</dl>"


def _fact(value: Any) -> str:
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format_number(value) if isinstance(value, float) else str(value)
