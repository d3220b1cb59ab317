"""`areal-sim report`: recorded runs, comparisons and sweeps as one HTML page."""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer


def report(
    directories: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...", help="Results of run, compare or sweep (--out); several: side by side."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="The page.", show_default="DIR/report.html"),
    ] = None,
) -> None:
    """Draw recorded runs, comparisons and sweeps as one HTML page that needs no network.

    [bold]areal-sim report runs/a[/]

    [bold]areal-sim report runs/sync runs/async -o sync_async.html[/]
    """
    from interfaces.run_files import PAGE

    place = output or (directories[0] / PAGE if len(directories) == 1 else Path(PAGE))
    write_page(directories, place)
    typer.echo(f"written: {place}")


def write_page(directories: Sequence[Path], place: Path) -> None:
    """Write the page of these directories.

    Raises:
        SourceError: a directory holds nothing to show.
        TraceError: a trace is damaged.
        OutputError: the page cannot be written.
    """
    from areal_report.page import page
    from areal_report.run_directory import write_atomically
    from areal_report.terminal.progress import Bar

    with Bar("page: steps read", None) as bar:
        text = page(directories, bar.update)
    write_atomically(place, text)
