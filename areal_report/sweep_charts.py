"""Charts of a sweep: the bound against throughput and staleness, a heat map of two keys, the Pareto front."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from areal_report import time_share
from areal_report.chart import Chart, Data, axis
from areal_report.numbers import count
from areal_report.palette import MUTED, VALUES, series
from areal_report.source import Sweep, short

SEED = "run.seed"
THROUGHPUT, STALENESS, OLDEST = "effective_throughput_tokens_per_s", "staleness.mean", "staleness.max"
_PREFERRED = "policy.max_staleness"
_MOST_LINES = 8


class Point(NamedTuple):
    """One point, over all its seeds: mean, least and largest of every number."""

    values: dict[str, str]
    numbers: dict[str, tuple[float, float, float]]

    def mean(self, column: str) -> float | None:
        """None where nothing was measured."""
        found = self.numbers.get(column)
        return found[0] if found else None


def points(sweep: Sweep) -> list[Point]:
    """Those that ran, seeds together, in the order of the sweep."""
    groups: defaultdict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    keys = varied(sweep)
    for row in sweep.rows:
        if not row["error"]:
            groups[tuple(row[key] for key in keys)].append(row)
    return [Point(dict(zip(keys, values, strict=True)), _numbers(rows)) for values, rows in groups.items()]


def varied(sweep: Sweep) -> list[str]:
    """Its keys without the seed, unless that is all there is; the staleness bound first."""
    keys = [key for key in sweep.keys if key != SEED] or list(sweep.keys)
    return sorted(keys, key=lambda key: key != _PREFERRED)


def fastest(sweep: Sweep) -> str:
    """One sentence on the point with the largest throughput."""
    found = [point for point in points(sweep) if point.mean(THROUGHPUT) is not None]
    if not found:
        return "No point ran."
    best = max(found, key=lambda point: point.mean(THROUGHPUT) or 0.0)
    where = _named(best, varied(sweep))
    return f"Fastest: {where} with {count(best.mean(THROUGHPUT))} tokens/s."


def _numbers(rows: Sequence[dict[str, str]]) -> dict[str, tuple[float, float, float]]:
    numbers: dict[str, tuple[float, float, float]] = {}
    for column in rows[0]:
        try:
            found = [float(row[column]) for row in rows if row[column]]
        except ValueError:
            continue
        if found:
            numbers[column] = (sum(found) / len(found), min(found), max(found))
    return numbers


def charts(sweep: Sweep, number: int) -> list[Chart]:
    """All that this sweep has the data for."""
    found = points(sweep)
    if not found:
        return []
    keys = varied(sweep)
    made = [_lines(found, keys, number), pareto_chart(found, number)]
    if len(keys) >= 2:
        made.insert(1, heat(found, keys, number))
    share = time_share.of_sweep(sweep, number)
    return [*made, *([share] if share is not None else [])]


def _named(point: Point, keys: Sequence[str]) -> str:
    if len(point.values) == 1:
        return "".join(point.values[key] for key in keys)
    return ", ".join(f"{short(key)} {point.values[key]}" for key in keys)


def _lines(found: Sequence[Point], keys: Sequence[str], number: int) -> Chart:
    key, others = keys[0], keys[1:]
    lines: defaultdict[str, list[Point]] = defaultdict(list)
    for point in found:
        lines[_named(point, others)].append(point)
    traces: list[Data] = []
    for index, (name, line) in enumerate(list(lines.items())[:_MOST_LINES]):
        colour, x = series(index), [point.values[key] for point in line]
        mode = "lines+markers" if all(map(_is_number, x)) else "markers"
        common: Data = {"type": "scatter", "mode": mode, "x": x, "name": name or "throughput"}
        group = {"legendgroup": name, "showlegend": bool(name)}
        traces += [
            {**common, **group, "y": _column(line, THROUGHPUT, 1e-3), "line": {"color": colour, "width": 2},
             "error_y": _spread(line, THROUGHPUT, 1e-3), "hovertemplate": "%{y:.4~g} k tokens/s"},
            {**common, **group, "y": _column(line, STALENESS), "yaxis": "y2", "showlegend": False,
             "line": {"color": colour, "width": 2}, "hovertemplate": "mean staleness %{y:.3~g}"},
            {**common, **group, "y": _column(line, OLDEST), "yaxis": "y2", "showlegend": False,
             "line": {"color": colour, "width": 1.2, "dash": "dot"},
             "marker": {"symbol": "circle-open", "size": 9}, "hovertemplate": "max %{y:.3~g}"},
        ]  # fmt: skip
    layout = {
        "xaxis": axis(key, type="category", anchor="y2", unifiedhovertitle={"text": f"{key} %{{x}}"}),
        "yaxis": axis("throughput, k tokens/s", domain=[0.46, 1.0], rangemode="tozero"),
        "yaxis2": axis("staleness, versions", domain=[0.0, 0.38], rangemode="tozero"),
        "hovermode": "x unified",
    }
    more = f" The first {_MOST_LINES} of {len(lines)} lines." if len(lines) > _MOST_LINES else ""
    caption = (
        f"Staleness: mean solid, largest dotted and open. Bars: spread over the seeds, if several.{more}"
    )
    title = f"Throughput and staleness against {short(key)}"
    return Chart(f"sweep-lines-{number}", title, caption, traces, layout, 520)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _column(line: Sequence[Point], column: str, scale: float = 1.0) -> list[float | None]:
    means = [point.mean(column) for point in line]
    return [None if mean is None else mean * scale for mean in means]


def _spread(line: Sequence[Point], column: str, scale: float) -> Data:
    triples = [point.numbers.get(column, (0.0, 0.0, 0.0)) for point in line]
    return {
        "type": "data", "symmetric": False, "visible": any(low < high for _, low, high in triples),
        "array": [(high - mean) * scale for mean, _, high in triples],
        "arrayminus": [(mean - low) * scale for mean, low, _ in triples],
    }  # fmt: skip


def heat(found: Sequence[Point], keys: Sequence[str], number: int | str) -> Chart:
    """Throughput over the first two keys, the best over the others."""
    across, down = keys[0], keys[1]
    x = list(dict.fromkeys(point.values[across] for point in found))
    y = list(dict.fromkeys(point.values[down] for point in found))
    best: dict[tuple[str, str], tuple[float, float | None]] = {}
    for point in found:
        speed, cell = point.mean(THROUGHPUT), (point.values[down], point.values[across])
        if speed is not None and speed > best.get(cell, (0.0, None))[0]:
            best[cell] = speed, point.mean(STALENESS)

    def table(write: Callable[[float, float | None], float | str | None]) -> list[list[float | str | None]]:
        return [[write(*best[row, col]) if (row, col) in best else None for col in x] for row in y]

    cells = {
        "type": "heatmap", "x": x, "y": y, "z": table(lambda speed, _: round(speed / 1e3, 3)),
        "text": table(lambda speed, age: f"{speed / 1e3:.4g}<br>η̄ {age or 0:.2g}"),
        "texttemplate": "%{text}", "colorscale": VALUES, "xgap": 2, "ygap": 2, "hoverongaps": False,
        "colorbar": {"title": {"text": "k tokens/s"}, "thickness": 12},
        "hovertemplate": f"{across} %{{x}}<br>{down} %{{y}}<br>%{{z:.4~g}} k tokens/s<extra></extra>",
    }  # fmt: skip
    layout = {"xaxis": axis(across, type="category"), "yaxis": axis(down, type="category")}
    others = f", the best over {', '.join(keys[2:])}" if len(keys) > 2 else ""
    caption = (
        f"In each cell: throughput in k tokens/s{others}, and below it η̄, the mean staleness in versions."
    )
    title = f"Throughput over {short(across)} and {short(down)}"
    return Chart(f"sweep-heat-{number}", title, caption, [cells], layout, 160 + 62 * max(3, len(y)))


def pareto_chart(found: Sequence[Point], number: int | str) -> Chart:
    """Throughput against mean staleness, the front marked."""
    usable = [p for p in found if p.mean(THROUGHPUT) is not None and p.mean(STALENESS) is not None]
    front = pareto(usable)
    on_it = {id(point) for point in front}
    rest = [point for point in usable if id(point) not in on_it]
    labels = len(front) <= 12

    def dots(name: str, chosen: Sequence[Point], colour: str, mode: str) -> Data:
        keys = list(found[0].values)
        return {
            "type": "scatter", "mode": mode, "name": name, "x": _column(chosen, STALENESS),
            "y": _column(chosen, THROUGHPUT, 1e-3), "text": [_named(point, keys) for point in chosen],
            "textposition": ["bottom right", "top left"] * len(chosen), "textfont": {"size": 11},
            "cliponaxis": False,
            "marker": {"color": colour, "size": 10}, "line": {"color": colour, "width": 2, "shape": "hv"},
            "hovertemplate": "%{text}<br>staleness %{x:.3~g}<br>%{y:.4~g} k tokens/s<extra></extra>",
        }  # fmt: skip

    traces = [
        dots("dominated", rest, MUTED, "markers"),
        dots("Pareto front", front, series(0), "lines+markers+text" if labels else "lines+markers"),
    ]
    layout = {
        "xaxis": axis("mean staleness, versions", rangemode="tozero"),
        "yaxis": axis("throughput, k tokens/s", rangemode="tozero"), "hovermode": "closest",
    }  # fmt: skip
    caption = (
        "On the front no point is faster at the same or a lower staleness. Hover: the values of the point."
    )
    return Chart(f"sweep-pareto-{number}", "Throughput against staleness", caption, traces, layout, 420)


def pareto(found: Sequence[Point]) -> list[Point]:
    """Points that no other beats in throughput at the same or a lower staleness; by staleness."""
    front: list[Point] = []
    fastest = float("-inf")
    for point in sorted(found, key=lambda p: (p.mean(STALENESS) or 0.0, -(p.mean(THROUGHPUT) or 0.0))):
        speed = point.mean(THROUGHPUT) or 0.0
        if speed > fastest:
            front.append(point)
            fastest = speed
    return front
