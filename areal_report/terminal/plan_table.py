"""A plan (`plan.json`) as a table: a column a plan, beside synchronous training and the scenario as given."""

from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table

from areal_report.numbers import MISSING, count, plain, ratio, seconds, share
from areal_report.terminal.tables import grid

Data = dict[str, Any]
Row = tuple[str, Callable[[Data], str]]


def usd(value: float | None) -> str:
    """`$0.38`, `$1,234`."""
    if value is None:
        return MISSING
    return f"${value:,.0f}" if value >= 1000 else f"${value:.3g}"


def interval(plan: Data) -> str:
    """`151 k to 190 k`."""
    if "throughput_low" not in plan:
        return MISSING
    return f"{count(plan['throughput_low'])} to {count(plan['throughput_high'])}"


def gain(plan: Data, key: str) -> str:
    """`+1 GPU: +0.4 %`."""
    margin = plan.get(key)
    if margin is None or margin["gain"] is None:
        return MISSING
    unit = "GPU" if margin["gpus"] == 1 else "GPUs"
    return f"+{margin['gpus']} {unit}: {100 * margin['gain']:+.1f} %"


def against_best(plan: Data) -> str:
    """Ratio to the best plan, over all draws."""
    if "ratio_to_best_low" not in plan:
        return MISSING
    low, high = plan["ratio_to_best_low"], plan["ratio_to_best_high"]
    return f"{low:.3g} to {high:.3g}x" if low < high else ratio(low)


def bound(plan: Data) -> str:
    """Staleness bound and groups in flight of its policy."""
    eta, groups = plan["max_staleness"], plan["max_concurrent_groups"]
    parts = [] if eta is None else [f"{eta:g}"]
    parts += [] if groups is None else [f"{groups} groups"]
    return ", ".join(parts) or MISSING


def trainer(plan: Data) -> str:
    """`7 x 2 x 2`."""
    names = ("trainer_data_parallel", "trainer_tensor_parallel", "trainer_pipeline_parallel")
    return " x ".join(str(plan[name]) for name in names)


ROWS: tuple[Row, ...] = (
    ("GPUs, rollout + trainer", lambda p: p["split"]),
    ("engine: replicas x tensor", lambda p: f"{p['replicas']} x {p['engine_tensor_parallel']}"),
    ("trainer: data x tensor x pipeline", trainer),
    ("policy", lambda p: p["policy"]),
    ("staleness bound, in flight", bound),
    ("tokens/s", lambda p: count(p["throughput_tokens_per_s"])),
    ("  may be", interval),
    ("  at most", lambda p: count(p["bound_tokens_per_s"])),
    ("  ratio to plan 1", against_best),
    ("speedup over synchronous", lambda p: ratio(p["speedup"])),
    ("step time", lambda p: seconds(p["step_time_s"])),
    ("staleness mean / max", lambda p: f"{plain(p['staleness_mean'])} / {plain(p['staleness_max'])}"),
    ("cost per million tokens", lambda p: usd(p["usd_per_million_tokens"])),
    ("time, cost of all tokens", lambda p: f"{_hours(p)}, {usd(p['usd_to_tokens'])}"),
    ("limited by", lambda p: p["bottleneck"].replace("_", " ")),
    ("  rollout / trainer busy", lambda p: " / ".join(map(share, p["utilisation"].values()))),
    ("closed form: more for rollout", lambda p: gain(p, "more_rollout")),
    ("             more for training", lambda p: gain(p, "more_trainer")),
)  # fmt: skip


def _hours(plan: Data) -> str:
    hours = plan["hours_to_tokens"]
    return seconds(None if hours is None else 3600 * hours)


def columns(data: Data) -> list[tuple[str, Data]]:
    """Heading and content of each column."""
    found = [(f"plan {number}", plan) for number, plan in enumerate(data["plans"], 1)]
    for heading, key in (("synchronous", "synchronous"), ("as given", "as_given")):
        if data[key] is not None:
            found.append((heading, data[key]))
    return found


def plan_table(data: Data) -> Table:
    """All plans side by side."""
    shown = columns(data)
    table = grid("", *(heading for heading, _ in shown), no_wrap=True)
    for name, write in ROWS:
        table.add_row(name, *(write(plan) for _, plan in shown))
    return table


def notes(data: Data) -> Sequence[str]:
    """What a reader must know beside the table, a sentence each."""
    how = "all simulated that could be best" if data["exhaustive"] else "the most promising simulated"
    lines = [
        f"{data['configurations']:,} configurations estimated, {data['simulated']} simulated ({how}); "
        f"best {data['objective'].replace('_', ' ')} first."
    ]
    if data["samples"]:
        lines.append(
            f"May be: least and largest of {data['samples']} draws of the hardware file's efficiency ranges "
            "and seeds, the same for every plan."
        )
    lines += [
        f"Plans {number} and 1 cannot be told apart: over the same draws their ratio is {against_best(plan)}."
        for number, plan in enumerate(data["plans"], 1)
        if number > 1 and not plan["told_apart_from_best"]
    ]
    if data["why_not_as_given"]:
        lines.append(f"{data['why_not_as_given'][0].upper()}{data['why_not_as_given'][1:]}.")
    if data["usd_per_gpu_hour"] is None:
        lines.append(f"No cost: {data['hardware']} has no price; give --price USD_PER_GPU_HOUR.")
    return lines
