"""Residuals of a calibration: what the fit misses, and whether it misses it by a pattern."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

from areal_report.chart import Chart, Data, axis
from areal_report.palette import MUTED, series


class Row(Protocol):
    """One measurement and what the fit says about it."""

    @property
    def part(self) -> str:
        """Of the cost model."""

    @property
    def source(self) -> str:
        """File it comes from."""

    @property
    def size(self) -> float:
        """What it grows with."""

    @property
    def measured_s(self) -> float:
        """Seconds that it took."""

    @property
    def predicted_s(self) -> float:
        """Seconds of the fit."""


SIZES = {"decode": "sequences in the batch", "prefill": "tokens", "train": "tokens", "load": "bytes",
         "publish": "bytes"}  # fmt: skip


def residuals(rows: Sequence[Row], sizes: dict[str, str] | None = None) -> list[Chart]:
    """For each part: error over size, and predicted over measured."""
    parts: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        parts[row.part].append(row)
    return [_chart(part, found, (sizes or SIZES).get(part, "size")) for part, found in parts.items()]


def _chart(part: str, rows: Sequence[Row], size: str) -> Chart:
    by_source: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_source[row.source].append(row)
    traces: list[Data] = []
    for index, (source, found) in enumerate(by_source.items()):
        marker = {"color": series(index), "size": 7, "opacity": 0.75}
        common = {
            "type": "scatter",
            "mode": "markers",
            "name": source,
            "legendgroup": source,
            "marker": marker,
        }
        errors = [100.0 * (row.predicted_s / row.measured_s - 1.0) for row in found]
        traces += [
            {**common, "x": [row.size for row in found], "y": errors,
             "hovertemplate": "%{x:.4~g}: %{y:+.2f} %"},
            {**common, "x": [row.measured_s for row in found], "y": [row.predicted_s for row in found],
             "xaxis": "x2", "yaxis": "y2", "showlegend": False,
             "hovertemplate": "measured %{x:.4~g} s, predicted %{y:.4~g} s"},
        ]  # fmt: skip
    ends = [min(row.measured_s for row in rows), max(row.measured_s for row in rows)]
    line = {"color": MUTED, "width": 1, "dash": "dot"}
    traces.append(
        {"type": "scatter", "mode": "lines", "x": ends, "y": ends, "xaxis": "x2", "yaxis": "y2",
         "line": line, "showlegend": False, "hoverinfo": "skip"}
    )  # fmt: skip
    layout = {
        "xaxis": axis(size, domain=[0.0, 0.46]),
        "yaxis": axis("predicted - measured, %", zeroline=True),
        "xaxis2": axis("measured, s", type="log", domain=[0.56, 1.0], anchor="y2"),
        "yaxis2": axis("predicted, s", type="log", anchor="x2"),
        "hovermode": "closest",
    }
    caption = f"{len(rows)} rows. Points that bend away from 0 on the left mean that the form is wrong."
    return Chart(f"residuals-{part}", f"Residuals: {part}", caption, traces, layout)
