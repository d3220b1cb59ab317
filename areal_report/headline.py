"""The numbers on top of the page, as HTML: cards of one run, a table of several, the points of a sweep."""

from collections.abc import Callable, Sequence
from html import escape

from areal_report.figures import COMPARED, cell, floor_step_s, floor_throughput, ratio_to
from areal_report.numbers import MISSING, count, plain, ratio, seconds, share
from areal_report.source import Run, Sweep, short
from areal_report.sweep_charts import OLDEST, STALENESS, THROUGHPUT

_SWEEP_COLUMNS = (
    ("step time", "step_time_s.mean", seconds),
    ("at least", "floor.step_time_s", seconds),
    ("tokens/s", THROUGHPUT, count),
    ("GPU-h/step", "gpu_hours_per_step", plain),
    ("staleness", STALENESS, plain),
    ("max", OLDEST, plain),
    ("rollout", "utilisation.rollout", share),
    ("trainer", "utilisation.trainer", share),
)


def describe(run: Run) -> str:
    """One line: scenario, policy, model, GPUs; as far as they are known."""
    parts = [str(run.report["scenario"])] if run.report.get("scenario") else []
    if run.scenario is not None:
        scenario, hardware, model = (run.scenario.get(key, {}) for key in ("scenario", "hardware", "model"))
        cluster, work = scenario.get("cluster", {}), scenario.get("workload", {})
        parts += [
            f"policy {scenario.get('policy', {}).get('name', '?')}",
            str(model.get("name", "?")),
            f"{cluster.get('rollout_gpus', '?')} rollout and {cluster.get('trainer_gpus', '?')} trainer GPUs "
            f"({hardware.get('name', '?')})",
            f"{work.get('batch_size', '?')} x {work.get('group_size', '?')} rollouts a step",
        ]
    if run.report.get("seed") is not None:
        parts.append(f"seed {run.report['seed']}")
    return ", ".join(parts)


def cards(run: Run) -> str:
    """What one run says, with spread and physical limit below each number that has one."""
    report = run.report
    times, stale = report.get("step_time_s") or {}, report.get("staleness") or {}
    least, most = floor_step_s(report), floor_throughput(report)
    speed = cell(COMPARED[2][1], report)
    busy = " / ".join(cell(COMPARED[row][1], report) for row in (7, 8))
    steps = cell(lambda r: f"{r['steps']} steps, {r['measured_steps']} measured", report)
    shown = (
        ("step time", cell(COMPARED[0][1], report), _spread(times, seconds), _limit("least", seconds, least)),
        ("trained tokens per second", speed, "prompt and response", _limit("most", count, most)),
        ("staleness, mean / max", cell(COMPARED[6][1], report), _spread(stale, plain), "in versions"),
        ("GPU-hours per step", cell(COMPARED[4][1], report), f"{report.get('gpus', MISSING)} GPUs", ""),
        ("rollout / trainer at work", busy, "share of each pool's time", ""),
        ("bottleneck", str(report.get("bottleneck", MISSING)).replace("_", " "), steps, ""),
    )
    return f'<div class="cards">{"".join(_card(*card) for card in shown)}</div>'


def _card(name: str, value: str, *below: str) -> str:
    lines = "".join(f'<div class="limit">{escape(line)}</div>' for line in below)
    top = f'<div class="name">{escape(name)}</div><div class="value">{escape(value)}</div>'
    return f'<div class="card">{top}{lines}</div>'


def _spread(summary: dict[str, float | None], write: Callable[[float | None], str]) -> str:
    return f"p50 {write(summary['p50'])}, p95 {write(summary['p95'])}" if "p50" in summary else ""


def _limit(which: str, write: Callable[[float | None], str], value: float | None) -> str:
    return f"limit: at {which} {write(value)}" if value is not None else ""


def comparison(runs: Sequence[Run]) -> str:
    """One column a run; ratios to the first."""
    base = runs[0].report
    ratios = [ratio_to(run.report, base) for run in runs]
    rows = [
        ("speedup (throughput)", [ratio(one["throughput"]) for one in ratios], True),
        ("step time, ratio", [ratio(one["step_time"]) for one in ratios], False),
        ("GPU-hours per step, ratio", [ratio(one["gpu_hours_per_step"]) for one in ratios], False),
        *((name, [cell(write, run.report) for run in runs], False) for name, write in COMPARED),
    ]
    return _table(["", *(run.name for run in runs)], [([name, *cells], bold) for name, cells, bold in rows])


def sweep(grid: Sweep) -> str:
    """One row a point; a point that failed has its message instead of numbers."""
    base = next((row.get(THROUGHPUT) for row in grid.rows if row.get(THROUGHPUT)), None)
    rows: list[tuple[list[str], bool]] = []
    for row in grid.rows:
        values = [row[key] for key in grid.keys]
        if row["error"]:
            rows.append(([*values, row["error"]], False))
            continue
        cells = [
            write(float(row[column])) if row.get(column) else MISSING for _, column, write in _SWEEP_COLUMNS
        ]
        speed = row.get(THROUGHPUT)
        first = ratio(float(speed) / float(base)) if speed and base and float(base) else MISSING
        rows.append(([*values, *cells, first, row.get("bottleneck", MISSING)], False))
    headings = [short(key) for key in grid.keys]
    headings += [name for name, _, _ in _SWEEP_COLUMNS]
    return _table([*headings, "to first", "bottleneck"], rows)


def _table(headings: Sequence[str], rows: Sequence[tuple[list[str], bool]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in headings)
    body = []
    for cells, bold in rows:
        span = len(headings) - len(cells)
        last = f' colspan="{span + 1}" class="wrap"' if span else ""
        texts = [escape(text).replace("  ", "&emsp;") for text in cells]
        inner = "".join(f"<td>{text}</td>" for text in texts[:-1]) + f"<td{last}>{texts[-1]}</td>"
        body.append(f'<tr class="strong">{inner}</tr>' if bold else f"<tr>{inner}</tr>")
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(body)}</table></div>'
