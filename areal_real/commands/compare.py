"""`areal-real compare`: finished runs side by side, what was predicted and what was measured."""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from areal_report.terminal.options import Json


def compare(
    directories: Annotated[
        list[Path],
        typer.Argument(metavar="DIR DIR...", help="What run --out left, simulated or real."),
    ],
    as_json: Json = False,
) -> None:
    """Compare finished runs; ratios are to the first.

    [bold]areal-real compare runs/predicted runs/measured[/]
    """
    from areal_report.figures import ratio_to
    from areal_report.terminal.output import to_json
    from areal_report.terminal.tables import compare_table, console

    names = [str(directory) for directory in directories]
    reports = [_report(directory) for directory in directories]
    ratios = [ratio_to(report, reports[0]) for report in reports]
    if as_json:
        rows = zip(names, ratios, reports, strict=True)
        data = [{"name": name, "ratio_to_first": ratio, "report": report} for name, ratio, report in rows]
        typer.echo(to_json({"runs": data}), nl=False)
    else:
        console().print(compare_table(names, reports, ratios))


def _report(directory: Path) -> dict[str, Any]:
    from interfaces.errors import TraceError
    from interfaces.run_files import REPORT

    path = directory / REPORT
    try:
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TraceError(f"{path}: no report of a run ({error}); run it with --out {directory}") from None
    if "step_time_s" not in report:
        raise TraceError(f"{path}: the run stalled or is not one of this project; nothing to compare")
    return report
