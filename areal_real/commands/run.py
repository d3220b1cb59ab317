"""`areal-real run` and `areal-real resume`: a scenario on real engines, from the start or after a kill."""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from areal_report.terminal.options import Json, Out, ScenarioArgument, Seed, Sets, with_seed

if TYPE_CHECKING:
    from areal_real.directory import RealDirectory
    from interfaces.scenario import Resolved

INTERRUPTED = 130
"""Exit code after Ctrl-C, as a shell reports it."""
RunDirectoryArgument = Annotated[Path, typer.Argument(metavar="DIR", help="What `run --out DIR` left.")]


def run(
    scenario: ScenarioArgument,
    sets: Sets = [],  # noqa: B006
    out: Out = None,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Run one scenario on vLLM and PyTorch: the file that `areal-sim run` takes, unchanged.

    [bold]areal-real run local/letter_chain[/]

    [bold]areal-real run local/letter_chain --set policy.max_staleness=8 --out runs/a[/]
    """
    from areal_real.directory import RealDirectory
    from interfaces.scenario_file import load
    from interfaces.scenario_file import to_json as scenario_json

    resolved = load(scenario, with_seed(sets, seed))
    _refuse_early(resolved)
    with tempfile.TemporaryDirectory(prefix="areal-real-") as temporary:
        directory = RealDirectory(out or Path(temporary))
        directory.begin(scenario_json(resolved) + "\n")
        _finish(resolved, directory, as_json, out)


def resume(directory: RunDirectoryArgument, as_json: Json = False) -> None:
    """Go on with a run that was killed or stopped, from its last checkpoint.

    [bold]areal-real resume runs/a[/]
    """
    from areal_real.directory import RealDirectory, scenario_of

    resolved = scenario_of(directory)
    place = RealDirectory(directory)
    place.keep_earlier_trace()
    _finish(resolved, place, as_json, directory)


def _refuse_early(resolved: "Resolved") -> None:
    """Everything that can be refused before anything is written."""
    from areal_real.setup import CAPABILITIES, refuse_what_is_only_simulated
    from interfaces.setup import build_loop

    refuse_what_is_only_simulated(resolved)
    build_loop(resolved, CAPABILITIES)


def _finish(resolved: "Resolved", directory: "RealDirectory", as_json: bool, out: Path | None) -> None:
    """Run to the end, write the report and the page, show the result."""
    from areal_real.commands.drive import drive
    from areal_report.run_directory import write_atomically
    from areal_report.terminal.output import to_json
    from interfaces.run_files import REPORT

    try:
        report = drive(resolved, directory)
        write_atomically(directory.path / REPORT, to_json(report))
    finally:
        directory.close()
    _show(report, resolved, out, as_json)
    if out is not None:
        _write_page(out)
    if report["ended"] == "stopped":
        raise typer.Exit(INTERRUPTED)


def _show(report: dict[str, Any], resolved: "Resolved", out: Path | None, as_json: bool) -> None:
    from areal_real.commands.tables import closing_line, training_table
    from areal_report.terminal.output import to_json
    from areal_report.terminal.tables import console, run_table, title

    if as_json:
        typer.echo(to_json(report), nl=False)
        return
    output = console()
    output.print(title(resolved), highlight=False)
    output.print()
    output.print(run_table(report, "measured"))
    output.print(training_table(report))
    output.print(closing_line(report), highlight=False)
    if out is not None:
        output.print(f"written: {out}", highlight=False, soft_wrap=True)


def _write_page(out: Path) -> None:
    from areal_report.page import page
    from areal_report.run_directory import write_atomically
    from areal_report.terminal.progress import Bar
    from interfaces.run_files import PAGE

    with Bar("page: steps read", None) as bar:
        write_atomically(out / PAGE, page([out], bar.update))
