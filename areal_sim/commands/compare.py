"""`areal-sim compare`: scenarios side by side, as ratios to the first."""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from areal_report.terminal.options import Jobs, Json, Out, Png, ScenarioList, Seed, Sets, Trace, with_seed

if TYPE_CHECKING:
    from areal_report.run_directory import RunDirectory
    from areal_sim.executor.task import Outcome
    from interfaces.scenario import Resolved


def compare(  # noqa: PLR0917
    scenarios: ScenarioList,
    sets: Sets = [],  # noqa: B006
    out: Out = None,
    seed: Seed = None,
    as_json: Json = False,
    jobs: Jobs = None,
    trace: Trace = None,
    png: Png = False,
) -> None:
    """Simulate scenarios side by side: speedup, step time and where the time goes.

    [bold]areal-sim compare areal/table1_7b_sync areal/table1_7b_async[/]

    [bold]areal-sim compare a.toml b.toml --set run.steps=40 --out runs/a_b[/]
    """
    from areal_report.terminal.caveats import warn_outside
    from areal_sim.commands.recording import traced
    from areal_sim.commands.simulate import validate as check
    from areal_sim.executor.evaluate import attempt_all
    from areal_sim.executor.task import Task
    from interfaces.scenario_file import load

    if len(scenarios) < 2:
        raise typer.BadParameter("give at least two scenarios", param_hint="SCENARIO")
    points = [load(name, with_seed(sets, seed)) for name in scenarios]
    for point in points:
        check(point)
    places = [_place(out, number, name) for number, name in enumerate(scenarios, 1)] if out else []
    recorded = [bool(places) and traced(point, trace) for point in points]
    try:
        files = [place.trace_part if it else None for place, it in zip(places, recorded, strict=False)]
        tasks = [Task(*pair) for pair in zip_longest(points, files)]
        outcomes = attempt_all(tasks, "scenarios", jobs=jobs)
        reports = _reports(outcomes)
        _show(scenarios, reports, as_json)
        warn_outside(reports)
        for place, point, report in zip(places, points, reports, strict=False):
            _write(place, point, report)
    finally:
        for place in places:
            place.abandon()
    if out is not None:
        _write_comparison(out, places, _as_data(scenarios, reports), png)
        typer.echo(f"written: {out}", err=as_json)


def _reports(outcomes: "list[Outcome | None]") -> list[dict[str, Any]]:
    """All reports, or the end of the command with every message."""
    from areal_sim.commands.simulate import INTERRUPTED

    failed = [outcome for outcome in outcomes if outcome is not None and outcome.report is None]
    for outcome in failed:
        typer.echo(f"error: {outcome.error}", err=True)
    if failed:
        raise typer.Exit(failed[0].exit_code)
    reports = [outcome.report for outcome in outcomes if outcome is not None and outcome.report is not None]
    if len(reports) < len(outcomes):
        typer.echo("nothing to compare: not all scenarios were simulated", err=True)
        raise typer.Exit(INTERRUPTED)
    return reports


def _show(names: list[str], reports: list[dict[str, Any]], as_json: bool) -> None:
    from areal_report.figures import ratio_to
    from areal_report.terminal.output import to_json
    from areal_report.terminal.tables import compare_table, console

    ratios = [ratio_to(report, reports[0]) for report in reports]
    if as_json:
        typer.echo(to_json(_as_data(names, reports)), nl=False)
        return
    console().print(compare_table(names, reports, ratios))


def _as_data(names: list[str], reports: list[dict[str, Any]]) -> dict[str, Any]:
    from areal_report.figures import ratio_to

    rows = [
        {"name": name, "ratio_to_first": ratio_to(report, reports[0]), "report": report}
        for name, report in zip(names, reports, strict=True)
    ]
    return {"scenarios": rows}


def _place(out: Path, number: int, name: str) -> "RunDirectory":
    from areal_report.run_directory import RunDirectory

    return RunDirectory(out / f"{number}_{Path(name).stem}")


def _write(place: "RunDirectory", point: "Resolved", report: dict[str, Any]) -> None:
    from areal_report.terminal.output import to_json
    from interfaces.run_files import REPORT, SCENARIO
    from interfaces.scenario_file import to_json as scenario_json

    place.write(SCENARIO, scenario_json(point) + "\n")
    place.write(REPORT, to_json(report))
    place.commit()


def _write_comparison(out: Path, places: "list[RunDirectory]", data: dict[str, Any], png: bool) -> None:
    from areal_report.run_directory import write_atomically
    from areal_report.terminal.output import to_json
    from areal_sim.commands.report import write_page
    from interfaces.run_files import COMPARISON, PAGE

    write_atomically(out / COMPARISON, to_json(data))
    write_page([place.path for place in places], out / PAGE, png)
