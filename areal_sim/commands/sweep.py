"""`areal-sim sweep`: one scenario at every point of a grid, on all cores."""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from areal_report.terminal.options import (
    Jobs,
    Json,
    Out,
    Png,
    Ray,
    Resume,
    ScenarioArgument,
    Seed,
    Sets,
    with_seed,
)

if TYPE_CHECKING:
    from areal_sim.executor.task import Outcome
    from interfaces.scenario import Resolved


class Sweep(NamedTuple):
    """What was asked and, in the same order, what came out."""

    keys: list[str]
    points: list[tuple[str, ...]]
    outcomes: "list[Outcome | None]"


def sweep(  # noqa: PLR0917
    scenario: ScenarioArgument,
    over: Annotated[
        list[str],
        typer.Option(
            "--over", metavar="KEY=V1,V2,...", help="Values of one key; several --over: every combination."
        ),
    ],
    sets: Sets = [],  # noqa: B006
    out: Out = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write the table as CSV.", show_default=False)
    ] = None,
    seed: Seed = None,
    as_json: Json = False,
    jobs: Jobs = None,
    skip_invalid: Annotated[
        bool,
        typer.Option("--skip-invalid", help="Leave out points that cannot run, instead of refusing all."),
    ] = False,
    ray: Ray = None,
    resume: Resume = False,
    png: Png = False,
) -> None:
    """Simulate one scenario at every point of a grid; all points are checked before the first runs.

    [bold]areal-sim sweep areal/table7 --over policy.max_staleness=0,1,2,4,8[/]

    [bold]areal-sim sweep my.toml --over engine.max_num_seqs=128,256 --over run.seed=0,1,2 --csv a.csv[/]
    """
    from areal_report.terminal.caveats import warn_outside
    from areal_sim.commands.grid import axis, points
    from areal_sim.commands.journal import journal_in
    from areal_sim.executor.evaluate import attempt_all
    from areal_sim.executor.task import Task

    axes = [axis(text) for text in over]
    keys, values = [one.key for one in axes], points(axes)
    valid, outcomes = _check(scenario, keys, values, with_seed(sets, seed), skip_invalid)
    tasks = [Task(resolved) for resolved in valid.values()]
    with journal_in(out, resume) as journal:
        done = attempt_all(tasks, "points", jobs=jobs, ray=ray, journal=journal)
    for index, outcome in zip(valid, done, strict=True):
        outcomes[index] = outcome
    result = Sweep(keys, values, outcomes)
    _write(result, out, csv, png)
    _show(result, as_json)
    warn_outside(outcome.report for outcome in outcomes if outcome is not None)
    raise typer.Exit(_exit_code(outcomes))


def _check(
    scenario: str, keys: list[str], points: list[tuple[str, ...]], sets: list[str], skip_invalid: bool
) -> "tuple[dict[int, Resolved], list[Outcome | None]]":
    """The points that can run, by their place, and the messages of those that cannot."""
    from areal_sim.commands.simulate import validate as check
    from areal_sim.executor.task import Outcome
    from interfaces.errors import ScenarioError
    from interfaces.scenario_file import load

    valid: dict[int, Resolved] = {}
    outcomes: list[Outcome | None] = [None] * len(points)
    for index, values in enumerate(points):
        try:
            resolved = load(scenario, [*sets, *map("=".join, zip(keys, values, strict=True))])
            check(resolved)
            valid[index] = resolved
        except ScenarioError as error:
            if not skip_invalid:
                raise
            outcomes[index] = Outcome(None, str(error), error.exit_code)
    return valid, outcomes


def _exit_code(outcomes: "list[Outcome | None]") -> int:
    from areal_sim.commands.simulate import INTERRUPTED

    if None in outcomes:
        return INTERRUPTED
    return int(any(outcome is not None and outcome.report is None for outcome in outcomes))


def _message(outcome: "Outcome | None") -> str:
    from areal_report.terminal.tables import INTERRUPTED

    return INTERRUPTED if outcome is None else outcome.error or ""


def _show(result: Sweep, as_json: bool) -> None:
    from areal_report.terminal.output import to_json
    from areal_report.terminal.tables import console, sweep_table

    if as_json:
        rows = [_row(result.keys, *pair) for pair in zip(result.points, result.outcomes, strict=True)]
        typer.echo(to_json({"over": result.keys, "points": rows}), nl=False)
        return
    outcomes = result.outcomes
    reports = [o.report if o is not None and o.report is not None else _message(o) for o in outcomes]
    console().print(sweep_table(result.keys, result.points, reports))
    for values, outcome in zip(result.points, outcomes, strict=True):
        if outcome is not None and outcome.error is not None:
            point = ", ".join(map("=".join, zip(result.keys, values, strict=True)))
            typer.echo(f"error: {point}: {outcome.error}", err=True)


def _row(keys: list[str], values: tuple[str, ...], outcome: "Outcome | None") -> dict[str, Any]:
    point = dict(zip(keys, values, strict=True))
    if outcome is None or outcome.report is None:
        return {"point": point, "error": _message(outcome), "report": None}
    return {"point": point, "error": None, "report": outcome.report}


def _write(result: Sweep, out: Path | None, csv: Path | None, png: bool) -> None:
    from areal_sim.commands.report import write_page
    from interfaces.run_files import PAGE, SWEEP

    for path in filter(None, (csv, out and out / SWEEP)):
        _write_csv(path, result)
    if out is not None:
        write_page([out], out / PAGE, png)


def _write_csv(path: Path, result: Sweep) -> None:
    """One line a point: its values, its message if it failed, and every number of its report."""
    from areal_report.run_directory import write_atomically
    from areal_report.terminal.output import flatten, to_csv

    rows = []
    for values, outcome in zip(result.points, result.outcomes, strict=True):
        row = {**dict(zip(result.keys, values, strict=True)), "error": _message(outcome)}
        report = outcome.report if outcome is not None else None
        rows.append({**row, **(flatten(report) if report is not None else {})})
    write_atomically(path, to_csv(rows))
