"""Charts of a plan: how sure each prediction is, and what the search saw."""

from html import escape

from areal_report.chart import Chart, Data, axis
from areal_report.palette import MUTED, series
from areal_report.source import Sweep
from areal_report.sweep_charts import OLDEST, STALENESS, THROUGHPUT, heat, pareto_chart, points
from areal_report.terminal.plan_table import ROWS, columns, notes

_BOUND, _SPLIT = "policy.max_staleness", "cluster.rollout_gpus"


def charts(plan: Data, number: int) -> list[Chart]:
    """All that this plan has the data for."""
    seen = points(as_sweep(plan))
    made = [_intervals(plan, number), _pools(plan, number)]
    if seen:
        made += [heat(seen, (_BOUND, _SPLIT), f"plan-{number}"), pareto_chart(seen, f"plan-{number}")]
    return made


def as_sweep(plan: Data) -> Sweep:
    """What the search simulated, as the points of a sweep."""
    keys = tuple(key for key in plan["points"][0] if "." in key) if plan["points"] else ()
    rows = tuple(
        {
            **{key: str(row[key]) for key in keys},
            "error": "",
            THROUGHPUT: str(row["throughput_tokens_per_s"] or ""),
            STALENESS: str(row["staleness_mean"]),
            OLDEST: str(row["staleness_max"] or 0),
        }
        for row in plan["points"]
    )
    return Sweep("plan", keys, rows)


def table(plan: Data) -> str:
    """The plans side by side, and the sentences below them, as HTML."""
    shown = columns(plan)
    head = "".join(f"<th>{escape(heading)}</th>" for heading, _ in shown)
    body = "".join(
        f"<tr><td>{escape(name).replace('  ', '&emsp;')}</td>"
        + "".join(f"<td>{escape(write(one))}</td>" for _, one in shown)
        + "</tr>"
        for name, write in ROWS
    )
    lines = "".join(f"<li>{escape(line)}</li>" for line in notes(plan))
    return f'<div class="scroll"><table><tr><th></th>{head}</tr>{body}</table></div><ul>{lines}</ul>'


def _intervals(plan: Data, number: int) -> Chart:
    shown = columns(plan)
    names = [heading for heading, _ in shown]
    speeds = [float(one["throughput_tokens_per_s"]) / 1e3 for _, one in shown]
    lows = [float(one.get("throughput_low") or one["throughput_tokens_per_s"]) / 1e3 for _, one in shown]
    highs = [float(one.get("throughput_high") or one["throughput_tokens_per_s"]) / 1e3 for _, one in shown]
    draws = [
        (heading, value / 1e3)
        for heading, one in shown for value in one.get("throughput_samples", ()) if value
    ]  # fmt: skip
    traces: list[Data] = [
        {
            "type": "scatter", "mode": "markers", "name": "predicted", "y": names, "x": speeds,
            "marker": {"color": series(0), "size": 11},
            "error_x": {
                "type": "data", "symmetric": False, "thickness": 2, "width": 7,
                "array": [high - mid for high, mid in zip(highs, speeds, strict=True)],
                "arrayminus": [mid - low for low, mid in zip(lows, speeds, strict=True)],
            },
            "hovertemplate": "%{y}: %{x:.4~g} k tokens/s<extra></extra>",
        },
        {
            "type": "scatter", "mode": "markers", "name": "one draw", "y": [name for name, _ in draws],
            "x": [value for _, value in draws],
            "marker": {"color": MUTED, "size": 8, "symbol": "line-ns-open"},
            "hovertemplate": "%{y}, one draw: %{x:.4~g} k tokens/s<extra></extra>",
        },
    ]  # fmt: skip
    layout = {
        "xaxis": axis("throughput, k tokens/s", rangemode="tozero"),
        "yaxis": axis("plan", type="category", autorange="reversed"),
    }
    caption = (
        "Bars: least and largest over the draws of efficiencies and seeds. Draws are common to all plans: "
        "plans whose bars overlap may still be told apart, draw by draw."
    )
    title = "How fast each plan is, and how sure that is"
    return Chart(f"plan-intervals-{number}", title, caption, traces, layout, 150 + 46 * len(names))


def _pools(plan: Data, number: int) -> Chart:
    shown = columns(plan)
    traces: list[Data] = [
        {
            "type": "bar", "name": name, "x": [heading for heading, _ in shown],
            "y": [one[key] / 1e3 for _, one in shown], "marker": {"color": colour},
            "hovertemplate": f"{name}: %{{y:.4~g}} k tokens/s<extra></extra>",
        }
        for name, key, colour in (
            ("generation alone", "rollout_alone_tokens_per_s", series(0)),
            ("training alone", "trainer_alone_tokens_per_s", series(2)),
            ("both, simulated", "throughput_tokens_per_s", MUTED),
        )
    ]  # fmt: skip
    layout = {
        "barmode": "group", "bargap": 0.3, "xaxis": axis("plan", type="category"),
        "yaxis": axis("k tokens/s", rangemode="tozero"),
    }  # fmt: skip
    caption = (
        "What each pool would sustain if it never waited for the other, in closed form, and what both reach "
        "together. The lower of the two limits; a good split makes them equal."
    )
    return Chart(f"plan-pools-{number}", "Which pool limits", caption, traces, layout, 380)
