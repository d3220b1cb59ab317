"""`areal-sim report`: recorded runs, comparisons and sweeps as one HTML page."""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from areal_report.terminal.options import Png


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
    png: Png = False,
) -> None:
    """Draw recorded runs, comparisons and sweeps as one HTML page that needs no network.

    [bold]areal-sim report runs/a[/]

    [bold]areal-sim report runs/sync runs/async -o sync_async.html --png[/]
    """
    from interfaces.run_files import PAGE

    place = output or (directories[0] / PAGE if len(directories) == 1 else Path(PAGE))
    write_page(directories, place, png)
    typer.echo(f"written: {place}")


def write_page(directories: Sequence[Path], place: Path, png: bool = False) -> None:
    """Write the page of these directories; with `png`, its charts as pictures in a folder beside it.

    Raises:
        SourceError: a directory holds nothing to show.
        TraceError: a trace is damaged.
        OutputError: the page cannot be written.
        BrowserError: pictures are asked for, and there is no browser to draw them.
    """
    from areal_report.page import page
    from areal_report.pictures import find_browser, save_pictures
    from areal_report.run_directory import write_atomically
    from areal_report.terminal.progress import Bar

    browser = find_browser() if png else None
    with Bar("page: steps read", None) as bar:
        text = page(directories, bar.update)
    write_atomically(place, text)
    if browser is not None:
        for picture in save_pictures(place, browser):
            typer.echo(f"written: {picture}", err=True)
