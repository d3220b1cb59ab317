"""What a real run shows beside the tables that it shares with the simulator."""

from typing import Any

from rich.table import Table

from areal_report.numbers import seconds
from areal_report.terminal.tables import grid

SHOWN_STEPS = 10
COLUMNS = {
    "reward": "reward", "loss": "loss", "KL to behaviour": "kl_behaviour", "entropy": "entropy",
    "clipped": "clip_fraction", "ratio min": "ratio_min", "ratio max": "ratio_max",
    "weight max": "behaviour_weight_max", "staleness": "staleness_mean", "held-out": "evaluation_reward",
}  # fmt: skip


def training_table(report: dict[str, Any]) -> Table:
    """Statistics of the training, a row a step; of long runs every n-th."""
    steps = report["training"]
    columns = {title: key for title, key in COLUMNS.items() if any(key in step for step in steps)}
    table = grid("step", *columns)
    stride = max(1, -(-len(steps) // SHOWN_STEPS))
    for step in steps[::-stride][::-1]:
        values = (f"{step[key]:.4g}" if key in step else "" for key in columns.values())
        table.add_row(str(step["step"] + 1), *values)
    return table


def closing_line(report: dict[str, Any]) -> str:
    """How much was run, and how long that took with all set-up."""
    partial = "PARTIAL: " if report["partial"] else ""
    return (
        f"{partial}{report['steps']} steps ({report['measured_steps']} measured) in "
        f"{seconds(report['sim_time_s'])}, {seconds(report['wall_s'])} with start and end"
    )
