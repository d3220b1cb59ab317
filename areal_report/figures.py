"""Numbers of a report that tables and pages share: limits, ratios, and how each is written."""

from collections.abc import Callable
from typing import Any

from areal_report.numbers import MISSING, count, plain, seconds, share, shares

Report = dict[str, Any]


def floor_step_s(report: Report) -> float | None:
    """Least time of a step that this hardware allows; None where the cost model is not physical."""
    floor = report.get("floor")
    return floor["step_time_s"] if floor else None


def floor_throughput(report: Report) -> float | None:
    """Most trained tokens a second that this hardware allows."""
    step_s, steps = floor_step_s(report), report.get("measured_steps")
    return report["trained_tokens"] / steps / step_s if step_s and steps else None


def ratio_to(report: Report, base: Report) -> dict[str, float | None]:
    """Throughput, step time and GPU-hours as ratios to the base; None where either was not measured."""
    keys = {
        "throughput": "effective_throughput_tokens_per_s",
        "step_time": "step_time_s",
        "gpu_hours_per_step": "gpu_hours_per_step",
    }
    ratios: dict[str, float | None] = {}
    for name, key in keys.items():
        above, below = _value(report, key), _value(base, key)
        ratios[name] = above / below if above is not None and below else None
    return ratios


def _value(report: Report, key: str) -> float | None:
    found = report.get(key)
    value: float | None = found["mean"] if isinstance(found, dict) else found
    return value


COMPARED: tuple[tuple[str, Callable[[Report], str]], ...] = (
    ("step time", lambda r: seconds(r["step_time_s"]["mean"])),
    ("  at least", lambda r: seconds(floor_step_s(r))),
    ("effective throughput, tokens/s", lambda r: count(r["effective_throughput_tokens_per_s"])),
    ("  at most", lambda r: count(floor_throughput(r))),
    ("GPU-hours per step", lambda r: plain(r["gpu_hours_per_step"])),
    ("GPUs", lambda r: str(r["gpus"])),
    ("staleness mean / max", lambda r: f"{plain(r['staleness']['mean'])} / {plain(r['staleness']['max'])}"),
    ("rollout utilisation", lambda r: share(r["utilisation"]["rollout"])),
    ("trainer utilisation", lambda r: share(r["utilisation"]["trainer"])),
    ("rollout idle", lambda r: shares(r["idle_by_cause"]["rollout"])),
    ("trainer idle", lambda r: shares(r["idle_by_cause"]["trainer"])),
    ("bottleneck", lambda r: str(r["bottleneck"])),
)
"""Rows of a comparison, in order."""


def cell(write: Callable[[Report], str], report: Report) -> str:
    """One cell; "-" where the report (of a stalled or older run) has no such number."""
    try:
        return write(report)
    except (KeyError, TypeError):
        return MISSING
