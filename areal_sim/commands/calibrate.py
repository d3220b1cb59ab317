"""`areal-sim calibrate`: measured times in, calibrated costs out."""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from areal_report.terminal.options import Json

if TYPE_CHECKING:
    from interfaces.calibration import Calibration, PartName


class DecodeForm(StrEnum):
    """How a decode step depends on the batch."""

    auto = "auto"
    line = "line"
    table = "table"


def calibrate(  # noqa: PLR0917
    sources: Annotated[
        list[Path],
        typer.Option(
            "--from", metavar="FILE", help="Profile, run directory, trace, .csv or .parquet; repeat."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The calibrated costs.")],
    fixed: Annotated[
        list[str],
        typer.Option(
            "--fix", metavar="PART.PARAMETER=S", help="Set a parameter by hand.", show_default=False
        ),
    ] = [],  # noqa: B006
    decode: Annotated[
        DecodeForm,
        typer.Option(help="Decode step: a line in the batch, or a table (mixture of experts)."),
    ] = DecodeForm.auto,
    simplify: Annotated[
        bool, typer.Option("--simplify", help="Leave out, and say so, what the data cannot identify.")
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option("--page", metavar="FILE", help="Write residual plots (HTML).", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Fit costs to measured times: decode, prefill, training, loads, publishes.

    [bold]areal-sim calibrate --from profile.jsonl --from runs/real_1 -o cost.json[/]

    Then name the file in a scenario: [bold]cost.file = "cost.json"[/].
    """
    from areal_report.run_directory import write_atomically
    from areal_sim.calibration import assemble
    from areal_sim.calibration.read import read_all
    from interfaces.calibration import write_calibration

    by_hand = dict(_fixed(text) for text in fixed)
    made, residuals = assemble.calibrate(read_all(sources), decode.value, by_hand, simplify=simplify)
    write_atomically(output, write_calibration(made))
    if as_json:
        typer.echo(write_calibration(made), nl=False)
    else:
        _show(made)
    if page is not None:
        from areal_report.calibration_charts import residuals as charts
        from areal_report.page import charts_page

        write_atomically(page, charts_page("Calibration", ", ".join(made.sources), charts(residuals)))
        typer.echo(f"written: {page}", err=as_json)
    typer.echo(f'written: {output} (use it: cost.file = "{output.name}")', err=as_json)


def _fixed(text: str) -> "tuple[tuple[PartName, str], float]":
    from interfaces.calibration import PARAMETERS
    from interfaces.errors import ScenarioError

    place, equals, value = text.partition("=")
    for part, names in PARAMETERS.items():
        for name in names:
            if place.strip() == f"{part}.{name}" and equals:
                try:
                    seconds = float(value)
                except ValueError:
                    seconds = -1.0
                if 0.0 <= seconds < float("inf"):
                    return (part, name), seconds
                raise ScenarioError("--fix", place, value, "must be a number >= 0", "give seconds per unit")
    known = ", ".join(f"{part}.{name}" for part, names in PARAMETERS.items() for name in names)
    raise ScenarioError("--fix", "argument", text, "is not PART.PARAMETER=SECONDS", f"use one of {known}")


def _show(made: "Calibration") -> None:
    from areal_report.terminal.tables import console, grid

    table = grid(
        "part", "parameter", "seconds per unit", "95 % interval", "rows", "median error", "worst error",
        "measured range", no_wrap=True,
    )  # fmt: skip
    for name, part in made.parts.items():
        lead = [str(part.rows), f"{part.median_error:.1%}", f"{part.worst_error:.1%}"]
        ranges = ", ".join(f"{key} {one.low:,.0f} to {one.high:,.0f}" for key, one in part.validity.items())
        cells = [name, *lead, ranges]
        for parameter, estimate in part.parameters.items():
            interval = f"{estimate.low:.4g} to {estimate.high:.4g}"
            why = part.assumed.get(parameter)
            shown = f"assumed, {why}" if why else interval
            table.add_row(cells[0], parameter, f"{estimate.value:.4g}", shown, *cells[1:])
            cells = [""] * 5
    console().print(table)
