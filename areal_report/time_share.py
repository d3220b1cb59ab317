"""Where the time of both pools went: stacked bars by kind, idle time by cause."""

from collections.abc import Sequence

from areal_report.chart import Chart, Data, axis, percent
from areal_report.palette import kind, ordered
from areal_report.source import Run, Sweep

MOST_ROWS = 40
Shares = dict[str, dict[str, float]]
"""By pool ("rollout", "trainer"), then by kind: shares of its time."""


def of_runs(runs: Sequence[Run]) -> Chart | None:
    """A row for each run."""
    rows = [(run.name, run.report["time_share"]) for run in runs if run.report.get("time_share")]
    return _chart("time-share", "Where the GPU time went", rows) if rows else None


def of_sweep(sweep: Sweep, number: int) -> Chart | None:
    """A row for each point."""
    rows: list[tuple[str, Shares]] = []
    for row in sweep.rows:
        shares: Shares = {"rollout": {}, "trainer": {}}
        for column, cell in row.items():
            if column.startswith("time_share.") and cell:
                _, pool, name = column.split(".", 2)
                shares[pool][name] = float(cell)
        if shares["rollout"] or shares["trainer"]:
            rows.append((sweep.label(row), shares))
    if not rows:
        return None
    more = f" The first {MOST_ROWS} of {len(rows)} points." if len(rows) > MOST_ROWS else ""
    return _chart(f"sweep-time-{number}", "Where the GPU time went, by point", rows[:MOST_ROWS], more)


def _chart(name: str, title: str, rows: Sequence[tuple[str, Shares]], more: str = "") -> Chart:
    kinds = ordered(
        {k for _, shares in rows for pool in shares.values() for k, v in pool.items() if v > 5e-4}
    )
    traces: list[Data] = []
    for number, pool in enumerate(("rollout", "trainer"), 1):
        for one in kinds:
            values = [percent(shares[pool].get(one, 0.0)) for _, shares in rows]
            if any(values):
                traces.append(_bars(one, [row for row, _ in rows], values, number, traces))
    layout = {
        "barmode": "stack", "hovermode": "closest", "bargap": 0.35,
        "xaxis": axis("rollout pool: share of its time, %", domain=[0.0, 0.485], range=[0, 100]),
        "xaxis2": axis("trainer: share of its time, %", domain=[0.515, 1.0], range=[0, 100], anchor="y"),
        "yaxis": axis("", type="category", autorange="reversed"),
    }  # fmt: skip
    caption = f"Measured steps. Grey and yellow is idle time, by its cause.{more}"
    return Chart(name, title, caption, traces, layout, 200 + 34 * len(rows))


def _bars(
    name: str, rows: list[str], values: list[float | None], column: int, before: Sequence[Data]
) -> Data:
    look = kind(name)
    return {
        "type": "bar", "orientation": "h", "y": rows, "x": values, "name": look.label, "legendgroup": name,
        "showlegend": all(trace["legendgroup"] != name for trace in before),
        "xaxis": "x" if column == 1 else "x2", "marker": {"color": look.colour},
        "hovertemplate": f"%{{y}}<br>{look.label}: %{{x:.3~g}} %<extra></extra>",
    }  # fmt: skip
