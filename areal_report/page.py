"""The page: one HTML file with everything in it. It loads nothing, so it opens by double click, anywhere.

Plotly and the data are inside, compressed; the page's script unpacks them.
"""

import base64
import gzip
import json
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path

from areal_report import headline, plan_charts, run_charts, sweep_charts, time_share
from areal_report.chart import Chart, Data
from areal_report.palette import KINDS, kind, ordered
from areal_report.source import Progress, Run, Sweep, plans, read

_SECTION = '<section><h2>{title}</h2><p class="caption">{caption}</p>{body}</section>'
_CHART = '<div class="chart"><div id="{id}" style="min-height:{height}px"></div>{tip}</div>'


def page(paths: Sequence[Path], progress: Progress = lambda _: None) -> str:
    """The HTML of everything in these directories.

    Raises:
        SourceError: a directory holds nothing to show.
        TraceError: a trace is damaged.
    """
    runs, sweeps = read(paths, progress)
    return render(runs, sweeps, plans(paths))


def render(runs: Sequence[Run], sweeps: Sequence[Sweep], planned: Sequence[Data] = ()) -> str:
    """The HTML of plans, runs and sweeps."""
    charts: list[Chart] = []
    sections: list[str] = []
    for number, plan in enumerate(planned):
        made = plan_charts.charts(plan, number)
        title = f"The best plans for {plan['gpus']} GPUs"
        caption = f"{plan['model']} on {plan['hardware']}, scenario {plan['scenario']}."
        body = plan_charts.table(plan)
        sections.append(_SECTION.format(title=escape(title), caption=escape(caption), body=body))
        sections += map(_section, made)
        charts += made
    of_runs = run_charts_of(runs)
    sections += [_head(runs)] if runs else []
    sections += [_missing(runs), *map(_section, of_runs)]
    charts += of_runs
    for number, sweep in enumerate(sweeps):
        made = sweep_charts.charts(sweep, number)
        caption = f"{len(sweep.rows)} points over {', '.join(sweep.keys)}. {sweep_charts.fastest(sweep)}"
        body = headline.sweep(sweep)
        lead = _SECTION.format(title=escape(f"Sweep: {sweep.name}"), caption=escape(caption), body=body)
        sections += [lead, *map(_section, made)]
        charts += made
    title, sub = _title(runs, sweeps)
    if planned:
        title, sub = f"Plan for {planned[0]['gpus']} GPUs", planned[0]["scenario"]
    return _assembled(title, sub, "\n".join(sections), charts)


def charts_page(title: str, sub: str, charts: Sequence[Chart]) -> str:
    """The HTML of these charts alone."""
    return _assembled(title, sub, "\n".join(map(_section, charts)), charts)


def run_charts_of(runs: Sequence[Run]) -> list[Chart]:
    """All that these runs have the data for."""
    made = [
        run_charts.timeline(runs),
        time_share.of_runs(runs),
        run_charts.over_steps(runs),
        run_charts.staleness(runs),
        *(run_charts.staleness_by_step(run, number) for number, run in enumerate(runs)),
        run_charts.lengths(runs),
    ]
    return [chart for chart in made if chart is not None]


def _title(runs: Sequence[Run], sweeps: Sequence[Sweep]) -> tuple[str, str]:
    names = [run.name for run in runs] + [sweep.name for sweep in sweeps]
    if len(names) == 1:
        what = f"Run {names[0]}" if runs else f"Sweep {names[0]}"
        scenarios = {row.get("scenario", "") for sweep in sweeps for row in sweep.rows} - {""}
        return what, headline.describe(runs[0]) if runs else ", ".join(sorted(scenarios))
    return " against ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else ""), ""


def _head(runs: Sequence[Run]) -> str:
    if len(runs) == 1:
        return f"<section>{headline.cards(runs[0])}</section>"
    lines = "".join(f"<br><b>{escape(run.name)}</b>: {escape(headline.describe(run))}" for run in runs)
    caption = f"Ratios are to the first. “At least” and “at most”: limits of the hardware.{lines}"
    return _SECTION.format(title="Comparison", caption=caption, body=headline.comparison(runs))


def _missing(runs: Sequence[Run]) -> str:
    notes = [(run.name, note) for run in runs for note in run.missing]
    if not notes:
        return ""
    items = "".join(f"<li><b>{escape(name)}</b>: {escape(note)}</li>" for name, note in notes)
    return f'<section class="note"><b>What this page cannot show</b><ul>{items}</ul></section>'


def _section(chart: Chart) -> str:
    tip = ""
    if chart.timelines:
        tip = '<div class="tip" role="tooltip"></div>'
    controls = '<div class="controls"></div>' if chart.timelines else ""
    body = _CHART.format(id=chart.id, height=chart.height, tip=tip)
    body = body.replace('<div class="chart">', f'<div class="chart">{controls}', 1)
    return _SECTION.format(title=escape(chart.title), caption=escape(chart.caption), body=body)


def _assembled(title: str, sub: str, body: str, charts: Sequence[Chart]) -> str:
    data: Data = {"charts": [chart.as_data() for chart in charts], "palette": _palette(charts)}
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{_asset("page.css")}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
<p class="sub">{escape(sub)}</p>
<section class="note" id="failed" hidden></section>
<noscript><section class="note">The charts of this page need JavaScript.</section></noscript>
{body}
<footer>Made by areal-sim. Every metric is defined in docs/reference/json_report.md.
The camera button of a chart saves it as PNG.</footer>
</main>
<script type="text/plain" id="page-data">{_packed(text.encode())}</script>
<script type="text/plain" id="plotly-js">{_plotly()}</script>
<script>
{_asset("timeline.js")}{_asset("page.js")}</script>
</body>
</html>
"""


def _palette(charts: Sequence[Chart]) -> Data:
    names = {name for chart in charts for run in chart.timelines for name in run["kinds"]} | set(KINDS)
    return {"order": ordered(names), "kinds": {name: kind(name)._asdict() for name in names}}


def _packed(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii")


@cache
def _plotly() -> str:
    return _packed((files("plotly") / "package_data" / "plotly.min.js").read_bytes())


def _asset(name: str) -> str:
    return (files("areal_report") / "assets" / name).read_text(encoding="utf-8")
