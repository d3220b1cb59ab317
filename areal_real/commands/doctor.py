"""`areal-real doctor`: what is installed, what would run, what is missing and how to get it."""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

from typing import Annotated

import typer

from areal_report.terminal.options import Json

Quick = Annotated[bool, typer.Option("--quick", help="Look only at what is installed; import nothing.")]


def doctor(quick: Quick = False, as_json: Json = False) -> None:
    """Look whether a real run would work here; what is missing comes with the command that gets it.

    Ends with status 1 if it would not.

    [bold]areal-real doctor[/]
    """
    from dataclasses import asdict

    from rich.markup import escape

    from areal_real.doctor import able, examine
    from areal_report.terminal.output import to_json
    from areal_report.terminal.tables import console, grid

    findings = examine(probes=not quick)
    runs = able(findings)
    if as_json:
        typer.echo(to_json({"runs": runs, "findings": [asdict(finding) for finding in findings]}), nl=False)
    else:
        table = grid("", "", "found", "to do")
        for finding in findings:
            mark = "ok" if finding.ok else "-" if finding.optional else "MISSING"
            table.add_row(*map(escape, (finding.what, mark, finding.seen, finding.remedy)))
        output = console()
        output.print(table)
        output.print(
            "areal-real run local/letter_chain would run here" if runs else "a real run would not start here",
            highlight=False,
        )
    if not runs:
        raise typer.Exit(1)
