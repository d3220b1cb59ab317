"""A tornado: the effect of each parameter at both ends of its range, the largest on top."""

from collections.abc import Sequence
from typing import Any

from areal_report.chart import Chart, Data, axis, vertical
from areal_report.palette import MUTED, ROLLOUT, TRAINER

MOST = 25


def tornado(title: str, metric: str, rows: Sequence[dict[str, Any]]) -> Chart:
    """Rows as `areal-sim sensitivity --json` has them, in its order; effects in % of the base."""
    shown = [row for row in rows if row["swing"] is not None][:MOST][::-1]
    names = [row["parameter"] for row in shown]
    traces: list[Data] = []
    for end, colour in (("low", ROLLOUT), ("high", TRAINER)):
        traces.append(
            {"type": "bar", "orientation": "h", "name": f"parameter at its {end} end", "y": names,
             "x": [100.0 * (row[f"ratio_{end}"] - 1.0) for row in shown], "marker": {"color": colour},
             "customdata": [f"{row[end]:.4g} (now {row['value']:.4g})" for row in shown],
             "hovertemplate": "%{y} = %{customdata}: %{x:+.2f} %<extra></extra>"}
        )  # fmt: skip
    layout = {
        "barmode": "overlay",
        "xaxis": axis(f"change of {metric}, %", zeroline=True),
        "yaxis": axis("", type="category"),
        "shapes": [vertical(0.0, MUTED, "solid")],
        "hovermode": "closest",
    }
    caption = f"Measure what is on top first: the answer hangs on it. At most {MOST} parameters are shown."
    return Chart("tornado", title, caption, traces, layout, height=160 + 26 * len(shown))
