"""What `areal-sim plan` leaves on disk: a scenario for each plan, its data, two recorded runs and a page."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from areal_report.run_directory import OutputError, RunDirectory, write_atomically
from areal_report.terminal.output import to_json
from areal_report.terminal.plan_table import bound, interval, trainer
from areal_sim.commands.recording import traced
from areal_sim.commands.report import write_page
from areal_sim.executor.task import Task, attempt
from areal_sim.plan.fidelity import settled
from areal_sim.plan.search import Point
from interfaces.run_files import PAGE, PLAN, REPORT, SCENARIO
from interfaces.scenario_file import to_json as scenario_json
from interfaces.scenario_toml import to_toml

if TYPE_CHECKING:
    from areal_sim.plan.result import Result
    from interfaces.scenario import Resolved

_MARK = "Written by areal-sim plan"


def write_plans(base: "Resolved", result: "Result", data: dict[str, Any], out: Path | None) -> list[Path]:
    """A scenario file for each plan, in `out` or here; a file that is not an earlier plan is left alone.

    Raises:
        OutputError: such a file is in the way, or it cannot be written.
    """
    folder = out or Path()
    files = [folder / row["file"] for row in data["plans"]]
    for file in files:
        if file.exists() and _MARK not in file.read_text(encoding="utf-8", errors="replace")[:200]:
            raise OutputError(f"{file}: was not written by areal-sim plan; move it, or choose --out")
    for file, plan, row in zip(files, result.plans, data["plans"], strict=True):
        comments = (
            f"{_MARK} from {base.where}: plan {files.index(file) + 1} of {len(files)}.",
            f"GPUs {row['split']}, trainer {trainer(row)} (data x tensor x pipeline), "
            f"{row['policy']}, staleness bound and groups in flight {bound(row)}.",
            f"Predicted {row['throughput_tokens_per_s']:,.0f} tokens/s; may be {interval(row)}.",
            f"Limited by {row['limit']}.",
        )
        write_atomically(file, to_toml(plan.point.choice.apply(base), comments))
    return files


def write_results(base: "Resolved", result: "Result", data: dict[str, Any], out: Path, png: bool) -> None:
    """`plan.json`, the runs of the best plan and of synchronous training, and the page of all of it."""
    write_atomically(out / PLAN, to_json(data))
    shown = [("1_plan", result.plans[0].point)]
    if result.synchronous is not None:
        shown.append(("2_synchronous", result.synchronous))
    for name, point in shown:
        _record(base, point, out / name)
    write_page([out], out / PAGE, png)


def _record(base: "Resolved", point: Point, path: Path) -> None:
    """The run behind a prediction, with its trace."""
    resolved = settled(point.choice.apply(base), point.choice)
    place = RunDirectory(path)
    try:
        outcome = attempt(*Task(resolved, place.trace_part if traced(resolved, None) else None))
        if outcome.report is None:
            typer.echo(f"note: {path.name} is not on the page: {outcome.error}", err=True)
            return
        place.write(SCENARIO, scenario_json(resolved) + "\n")
        place.write(REPORT, to_json(outcome.report))
        place.commit()
    finally:
        place.abandon()
