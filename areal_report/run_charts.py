"""Charts of one run, or of several on the same axes. Each is None when no run has the data for it."""

from collections.abc import Sequence
from typing import Any

from areal_report.chart import Chart, Data, axis, percent, vertical
from areal_report.numbers import count
from areal_report.palette import MEASURE, MUTED, ROLLOUT, SCALE, TRAINER, series
from areal_report.source import Run
from interfaces.statistics import quantile


def timeline(runs: Sequence[Run]) -> Chart | None:
    """What every replica and the trainer did, as in Figures 1 and 3 of the AReaL paper."""
    drawn = [(run.name, run.timeline) for run in runs if run.timeline is not None]
    if not drawn:
        return None
    caption = (
        "Drag to zoom, double-click to see the whole run, hover for what, when and how much. Loads, "
        "interruptions and publishes are drawn at least one pixel wide."
    )
    coarse = max(data["resolution_s"] for _, data in drawn)
    if coarse:
        caption += f" Stretches below {coarse:.2g} s were joined to their neighbours."
    for name, data in drawn:
        if data["replicas"] > data["replicas_kept"]:
            who = f"{name}: " if len(drawn) > 1 else ""
            caption += f" {who}{data['replicas_kept']} of {data['replicas']} replicas are on this page."
    bodies = tuple({"name": name, **data} for name, data in drawn)
    title = "Timeline" if len(drawn) == 1 else "Timelines, on the same time axis"
    return Chart("timeline", title, caption, [], {}, 420, bodies)


def over_steps(runs: Sequence[Run]) -> Chart | None:
    """Step time, throughput and utilisation of each step."""
    shown = [(index, run) for index, run in enumerate(runs) if run.report.get("per_step")]
    if not shown:
        return None
    traces: list[Data] = []
    for index, run in shown:
        traces += _step_traces(run, series(index), alone=len(runs) == 1)
    layout: Data = {
        "xaxis": axis("training step", anchor="y3", unifiedhovertitle={"text": "step %{x}"}),
        "yaxis": axis("step time, s", domain=[0.7, 1.0], rangemode="tozero"),
        "yaxis2": axis("k tokens/s", domain=[0.36, 0.64], rangemode="tozero"),
        "yaxis3": axis("busy, %", domain=[0.0, 0.3], range=[0, 104]),
        "hovermode": "x unified",
        "shapes": [],
    }
    warmups = {run.report["steps"] - run.report["measured_steps"] for _, run in shown}
    caption = (
        "Top: time between the ends of two steps. Middle: tokens trained per second. Bottom: pools at work."
    )
    if len(runs) > 1:
        caption += " Dashed: hardware limit. At work: rollout pool solid, trainer dotted."
    if len(warmups) == 1 and (warmup := warmups.pop()) > 0:
        layout["shapes"].append({
            "type": "rect", "x0": -0.5, "x1": warmup - 0.5, "yref": "paper", "y0": 0, "y1": 1,
            "fillcolor": MUTED, "opacity": 0.13, "line": {"width": 0}, "layer": "below",
        })  # fmt: skip
        caption += f" Shaded: {warmup} warm-up steps, which count in no metric."
    return Chart("steps", "Step time, throughput and utilisation", caption, traces, layout, 620)


def _step_traces(run: Run, colour: str, alone: bool) -> list[Data]:
    rows = run.report["per_step"]
    steps = [row["step"] for row in rows]
    speed = [row["trained_tokens"] / row["step_time_s"] / 1e3 if row["step_time_s"] else None for row in rows]
    busy = {pool: [percent(row[f"{pool}_utilisation"]) for row in rows] for pool in ("rollout", "trainer")}
    who = "" if alone else f"{run.name}: "

    def line(name: str, y: str, values: list[Any], unit: str, hue: str, **style: Any) -> Data:
        return {
            "type": "scatter", "mode": "lines", "x": steps, "y": values, "yaxis": y, "name": who + name,
            "line": {"color": hue if alone else colour, "width": 2, **style},
            "hovertemplate": f"%{{y:.4~g}} {unit}", "legendgroup": None if alone else run.name,
        }  # fmt: skip

    traces = [
        line("step time", "y", [row["step_time_s"] for row in rows], "s", MEASURE),
        line("throughput", "y2", speed, "k tokens/s", MEASURE),
        line("rollout pool", "y3", busy["rollout"], "%", ROLLOUT),
        line("trainer", "y3", busy["trainer"], "%", TRAINER, dash="solid" if alone else "dot"),
    ]
    in_legend = {2, 3, 4} if alone else {0}
    floor = run.report.get("floor")
    if floor:
        least = [floor["step_time_s"]] * len(steps)
        name = "hardware limit (mean of the measured steps)" if alone else "least step time"
        traces.append(line(name, "y", least, "s", MUTED, dash="dash", width=1.5))
    named = {} if alone else {"name": run.name}
    return [
        {**trace, "showlegend": at in in_legend, **(named if at == 0 else {})}
        for at, trace in enumerate(traces)
    ]


def staleness(runs: Sequence[Run]) -> Chart | None:
    """Share of trained rollouts by staleness."""
    traces: list[Data] = []
    for index, run in enumerate(runs):
        histogram = (run.report.get("staleness") or {}).get("histogram")
        if histogram:
            whole = sum(histogram.values())
            traces.append({
                "type": "bar", "name": run.name, "marker": {"color": series(index)},
                "x": [int(age) for age in histogram],
                "y": [percent(n / whole) for n in histogram.values()], "customdata": list(histogram.values()),
                "hovertemplate": "staleness %{x}: %{y:.3~g} %, %{customdata:,} rollouts",
            })  # fmt: skip
    if not traces:
        return None
    oldest = max(age for trace in traces for age in trace["x"])
    layout = {
        "xaxis": axis("staleness, versions", dtick=1 if oldest <= 20 else None, range=[-0.6, oldest + 0.6]),
        "yaxis": axis("trained rollouts, %", rangemode="tozero"),
        "showlegend": len(runs) > 1, "bargap": 0.35,
    }  # fmt: skip
    caption = "Version a step starts from minus the oldest version in the rollout; measured steps."
    return Chart("staleness", "Staleness of what was trained", caption, traces, layout, 340)


def staleness_by_step(run: Run, number: int) -> Chart | None:
    """The histogram of each step, as a heat map."""
    rows = run.report.get("per_step") or []
    top = max((int(age) for row in rows for age in row["staleness_histogram"]), default=None)
    if top is None:
        return None
    shares: list[list[float | None]] = [[None] * len(rows) for _ in range(top + 1)]
    for column, row in enumerate(rows):
        whole = sum(row["staleness_histogram"].values())
        for age, n in row["staleness_histogram"].items():
            shares[int(age)][column] = percent(n / whole)
    steps = [row["step"] for row in rows]
    peaks = [max(row[column] or 0.0 for row in shares) for column in range(len(rows))]
    usual = quantile(peaks, 0.5) or 100.0
    heat = {
        "type": "heatmap", "x": steps, "y": list(range(top + 1)), "z": shares,
        "zmin": 0, "zmax": min(100.0, 1.5 * usual),
        "colorscale": [list(stop) for stop in SCALE], "xgap": 1 if len(rows) <= 120 else 0, "ygap": 1,
        "colorbar": {"title": {"text": "rollouts, %"}, "thickness": 12}, "hoverongaps": False,
        "hovertemplate": "step %{x}, staleness %{y}: %{z:.3~g} % of rollouts<extra></extra>",
    }  # fmt: skip
    mean = {
        "type": "scatter", "mode": "lines", "x": steps, "y": [row["staleness_mean"] for row in rows],
        "line": {"color": "#e4572e", "width": 2}, "name": "mean",
        "hovertemplate": "mean %{y:.3~g}<extra></extra>",
    }  # fmt: skip
    layout = {
        "xaxis": axis("training step"), "showlegend": False,
        "yaxis": axis("staleness, versions", dtick=1 if top <= 12 else None),
    }  # fmt: skip
    title = f"Staleness at every step: {run.name}"
    caption = "Colour: share of the step's rollouts (the scale ends where few steps go). Line: their mean."
    return Chart(f"staleness-steps-{number}", title, caption, [heat, mean], layout, 340)


def lengths(runs: Sequence[Run]) -> Chart | None:
    """Response lengths of what finished against what was trained: length bias."""
    traces: list[Data] = []
    marks: list[Data] = []
    for index, run in enumerate(runs):
        found = run.report.get("length_histogram")
        if not found or not found["admitted"]:
            continue
        means = run.report["mean_length"]
        for what, dash in (("admitted", "dot"), ("trained", "solid")):
            colour = series(index) if len(runs) > 1 else (MUTED if what == "admitted" else TRAINER)
            mean = means[what]
            who = "" if len(runs) == 1 else f"{run.name}: "
            name = f"{who}{what}" + (f", mean {count(mean)}" if mean is not None else "")
            traces.append(_lengths(found[what], found["bin_tokens"], name, colour, dash))
            if mean is not None:
                marks.append(vertical(mean, colour, "solid" if what == "trained" else "dot", opacity=0.7))
    if not traces:
        return None
    layout = {
        "xaxis": axis("response length, tokens", rangemode="tozero"),
        "yaxis": axis("rollouts in a bin, %", rangemode="tozero"), "shapes": marks,
    }  # fmt: skip
    caption = (
        "Finished (admitted) against trained rollouts. Trained ones being shorter means that the schedule "
        "favours short answers. Vertical lines: means."
    )
    return Chart("lengths", "Response lengths, admitted and trained", caption, traces, layout, 360)


def _lengths(histogram: dict[str, int], width: int, name: str, colour: str, dash: str) -> Data:
    whole = sum(histogram.values()) or 1
    last = max((int(first) for first in histogram), default=0)
    bins = range(0, last + 2 * width, width)
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": list(bins),
        "y": [percent(histogram.get(str(first), 0) / whole) for first in bins],
        "line": {"color": colour, "width": 2, "shape": "hv", "dash": dash},
        "hovertemplate": f"from %{{x:,}} tokens, {width} wide: %{{y:.3~g}} %",
    }  # fmt: skip
