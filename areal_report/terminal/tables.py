"""Reports as tables on the terminal, the physical floor beside every predicted time and throughput."""

from collections.abc import Collection, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from areal_report.figures import COMPARED, floor_step_s, floor_throughput, ratio_to
from areal_report.numbers import MISSING, count, plain, ratio, seconds, share, shares
from interfaces.scenario import Resolved

INTERRUPTED = "interrupted"
"""Instead of the report of a point that Ctrl-C prevented."""

PLAIN_WIDTH = 200
"""Most columns when the output is not a terminal; tables take what they need."""


def console() -> Console:
    """Standard output."""
    plain_output = Console()
    return plain_output if plain_output.is_terminal else Console(width=PLAIN_WIDTH)


def grid(*headings: str, no_wrap: bool = False) -> Table:
    """An empty table; the first column names the rows."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for index, heading in enumerate(headings):
        style = "bold" if index == 0 else ""
        table.add_column(heading, style=style, overflow="fold", no_wrap=no_wrap)
    return table


def title(resolved: Resolved) -> str:
    """One line that says what was simulated."""
    scenario = resolved.scenario
    cluster, work = scenario.cluster, scenario.workload
    return (
        f"{resolved.where}: policy {scenario.policy.name}, {resolved.model.name}\n"
        f"{cluster.rollout_gpus} rollout and {cluster.trainer_gpus} trainer GPUs ({resolved.hardware.name}), "
        f"{work.batch_size} x {work.group_size} rollouts a step"
    )


def run_table(report: dict[str, Any], how: str = "predicted") -> Table:
    """Everything a run says, one row a question; `how` heads the column of its numbers."""
    table = grid("", how, "physical limit")
    times = report["step_time_s"]
    spread = f"{seconds(times['mean'])}  (p50 {seconds(times['p50'])}, p95 {seconds(times['p95'])})"
    table.add_row("step time", spread, f"at least {seconds(floor_step_s(report))}")
    throughput = f"{count(report['effective_throughput_tokens_per_s'])} tokens/s"
    table.add_row("effective throughput", throughput, f"at most {count(floor_throughput(report))} tokens/s")
    table.add_row("GPU-hours per step", plain(report["gpu_hours_per_step"]), "")
    for name, text in _schedule_rows(report):
        table.add_row(name, text, "")
    for name, text in _volume_rows(report):
        table.add_row(name, text, "")
    table.add_row("bottleneck", f"[bold]{report['bottleneck']}[/]", "")
    return table


def _schedule_rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    stale, busy, idle = report["staleness"], report["utilisation"], report["idle_by_cause"]
    blocked = {cause: value for cause, value in report["blocked_by"].items() if value}
    by_time = ", ".join(
        f"{cause} {seconds(value)}" for cause, value in sorted(blocked.items(), key=lambda i: -i[1])
    )
    return [
        ("staleness", f"mean {plain(stale['mean'])}, p50 {plain(stale['p50'])}, p95 {plain(stale['p95'])}, "
                      f"max {plain(stale['max'])} versions"),
        ("utilisation", f"rollout {share(busy['rollout'])}, trainer {share(busy['trainer'])}"),
        ("rollout idle, by cause", shares(idle["rollout"])),
        ("trainer idle, by cause", shares(idle["trainer"])),
        ("admission blocked by", by_time or "nothing"),
    ]  # fmt: skip


def _volume_rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    length = report["mean_length"]
    generated, trained = count(report["generated_tokens"]), count(report["trained_tokens"])
    dropped, recomputed = count(report["dropped_tokens"]), count(report["recomputed_tokens"])
    return [
        ("tokens", f"generated {generated}, trained {trained}"),
        ("tokens lost", f"dropped {dropped}, recomputed {recomputed}"),
        *_starving(report["starving"]),
        ("mean length", f"admitted {count(length['admitted'])}, trained {count(length['trained'])} tokens"),
    ]


def _starving(found: dict[str, int]) -> list[tuple[str, str]]:
    """A row only if there is something to say."""
    if not found["prompts"]:
        return []
    text = f"{found['prompts']} prompts never train, the worst was started {found['most_starts']} times"
    return [("starving", f"[bold red]{text}[/]")]


def closing_line(report: dict[str, Any]) -> str:
    """How much was simulated, and how long that took."""
    partial = "PARTIAL: " if report["partial"] else ""
    return (
        f"{partial}{report['steps']} steps ({report['measured_steps']} measured), "
        f"{seconds(report['sim_time_s'])} of cluster time, simulated in {report['wall_s']:.2f} s"
    )


def compare_table(
    names: Sequence[str], reports: Sequence[dict[str, Any]], ratios: Sequence[dict[str, Any]]
) -> Table:
    """One column a scenario; the ratios are to the first."""
    table = grid("", *names)
    table.add_row("speedup (throughput)", *(ratio(r["throughput"]) for r in ratios), style="bold")
    table.add_row("step time, ratio", *(ratio(r["step_time"]) for r in ratios), end_section=True)
    for name, text in COMPARED:
        table.add_row(name, *(text(report) for report in reports))
    return table


def sweep_table(
    keys: Sequence[str], points: Sequence[Sequence[str]], reports: Sequence[dict[str, Any] | str]
) -> Table:
    """One row a point, in the order asked for; a point that failed has its message instead of numbers."""
    table = grid(
        *(key.rpartition(".")[2] for key in keys), "step time", "at least", "tokens/s", "at most", "to first",
        "staleness, max", "rollout", "trainer", "bottleneck", no_wrap=True,
    )  # fmt: skip
    base = next((report for report in reports if isinstance(report, dict)), None)
    for values, report in zip(points, reports, strict=True):
        if isinstance(report, str) or base is None:
            state = "interrupted" if report == INTERRUPTED else "[red]failed[/]"
            table.add_row(*values, state, *[MISSING] * 8)
            continue
        stale, busy = report["staleness"], report["utilisation"]
        table.add_row(
            *values, seconds(report["step_time_s"]["mean"]), seconds(floor_step_s(report)),
            count(report["effective_throughput_tokens_per_s"]), count(floor_throughput(report)),
            ratio(ratio_to(report, base)["throughput"]), f"{plain(stale['mean'])}, {plain(stale['max'])}",
            share(busy["rollout"]), share(busy["trainer"]), str(report["bottleneck"]),
        )  # fmt: skip
    return table


def zoo_table(systems: Sequence[tuple[str, dict[str, Any] | str]], front: Collection[str]) -> Table:
    """One row a system, in the order given; `*` marks the Pareto front of throughput and mean staleness."""
    table = grid(
        "system", "", "step time", "tokens/s", "stale mean", "p95", "max", "token mean", "recomputed",
        "dropped", "length", "buffer", "rollout idle", "trainer idle", no_wrap=True,
    )  # fmt: skip
    for name, report in systems:
        if isinstance(report, str):
            state = "interrupted" if report == INTERRUPTED else "[red]failed[/]"
            table.add_row(name, "", state, *[MISSING] * 11)
            continue
        stale, generated, length = report["staleness"], report["generated_tokens"], report["mean_length"]
        bias = length["trained"] / length["admitted"] if length["trained"] and length["admitted"] else None
        table.add_row(
            name, "*" if name in front else "", seconds(report["step_time_s"]["mean"]),
            count(report["effective_throughput_tokens_per_s"]), plain(stale["mean"]), plain(stale["p95"]),
            plain(stale["max"]), plain(report["token_staleness"]["mean"]),
            share(report["recomputed_tokens"] / generated if generated else None),
            share(report["dropped_tokens"] / generated if generated else None), ratio(bias),
            str(report["buffer"]["max_rollouts"]), _idle(report["idle_by_cause"]["rollout"]),
            _idle(report["idle_by_cause"]["trainer"]),
        )  # fmt: skip
    return table


def _idle(by_cause: dict[str, float]) -> str:
    """`37 %, staleness_gate`: all of it, and the largest cause."""
    whole = sum(by_cause.values())
    if whole < 0.005:
        return share(0.0)
    return f"{share(whole)}, {max(by_cause, key=lambda cause: by_cause[cause])}"
