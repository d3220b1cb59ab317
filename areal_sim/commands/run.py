"""`areal-sim run`: one scenario in, one report out."""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

from typing import TYPE_CHECKING, Any

import typer

from areal_report.terminal.options import (
    Json,
    Out,
    Png,
    ScenarioArgument,
    Seed,
    Sets,
    Trace,
    TraceKind,
    with_seed,
)

if TYPE_CHECKING:
    from areal_report.run_directory import RunDirectory
    from interfaces.scenario import Resolved
    from interfaces.trace import TraceWriter


def run(  # noqa: PLR0917
    scenario: ScenarioArgument,
    sets: Sets = [],  # noqa: B006
    out: Out = None,
    seed: Seed = None,
    as_json: Json = False,
    trace: Trace = None,
    png: Png = False,
) -> None:
    """Simulate one scenario and print what it predicts.

    [bold]areal-sim run areal/table7[/]

    [bold]areal-sim run my.toml --set policy.max_staleness=8 --out runs/a[/]
    """
    from areal_report.run_directory import RunDirectory
    from areal_report.terminal.caveats import warn_outside
    from areal_sim.commands.report import write_page
    from areal_sim.commands.simulate import INTERRUPTED
    from interfaces.run_files import PAGE
    from interfaces.scenario_file import load

    if trace is TraceKind.full and out is None:
        raise typer.BadParameter("a full trace needs a place: add --out DIR", param_hint="--trace")
    resolved = load(scenario, with_seed(sets, seed))
    directory = RunDirectory(out) if out is not None else None
    report = _simulate(resolved, directory, trace)
    _show(report, resolved, directory, as_json)
    warn_outside([report])
    if out is not None:
        write_page([out], out / PAGE, png)
    if report["partial"] and report["ended"] is None:
        raise typer.Exit(INTERRUPTED)


def _simulate(
    resolved: "Resolved", directory: "RunDirectory | None", trace: TraceKind | None
) -> dict[str, Any]:
    """Run it; whatever happens, the directory is left whole."""
    from areal_report.identity import complete, identity
    from areal_report.run_directory import writing
    from areal_report.terminal.output import to_json
    from interfaces.errors import StallError
    from interfaces.run_files import REPORT, SCENARIO
    from interfaces.scenario_file import to_json as scenario_json

    if directory is None:
        return complete(_run(resolved, None), resolved)
    try:
        directory.write(SCENARIO, scenario_json(resolved) + "\n")
        try:
            with writing(directory.path):
                report = complete(_run(resolved, _writer(resolved, directory, trace)), resolved)
        except StallError as error:
            stalled = {**identity(resolved), "partial": True, "ended": "stall", "error": str(error)}
            directory.write(REPORT, to_json(stalled))
            directory.commit()
            raise
        directory.write(REPORT, to_json(report))
        directory.commit()
    except BaseException:
        directory.abandon()
        raise
    return report


def _run(resolved: "Resolved", writer: "TraceWriter | None") -> dict[str, Any]:
    from areal_report.numbers import seconds
    from areal_report.terminal.progress import Bar
    from areal_sim.commands.simulate import stop_on_interrupt
    from areal_sim.simulation import Simulation

    with Bar("steps", resolved.scenario.run.steps) as bar:
        simulation = Simulation(
            resolved, writer, lambda done, at: bar.update(done, f"{seconds(at)} simulated")
        )
        with stop_on_interrupt(simulation):
            return simulation.run()


def _writer(resolved: "Resolved", directory: "RunDirectory", trace: TraceKind | None) -> "TraceWriter | None":
    from areal_sim.commands.recording import traced
    from areal_sim.executor.task import header

    return directory.trace(header(resolved)) if traced(resolved, trace) else None


def _show(
    report: dict[str, Any], resolved: "Resolved", directory: "RunDirectory | None", as_json: bool
) -> None:
    from areal_report.terminal.output import to_json
    from areal_report.terminal.tables import closing_line, console, run_table, title

    if as_json:
        typer.echo(to_json(report), nl=False)
        return
    output = console()
    output.print(title(resolved), highlight=False)
    output.print()
    output.print(run_table(report))
    output.print(closing_line(report), highlight=False)
    if directory is not None:
        output.print(f"written: {directory.path}", highlight=False, soft_wrap=True)
