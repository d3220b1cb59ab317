"""The journal of a command with `--out`, and what `--resume` needs."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from interfaces.run_files import POINTS

if TYPE_CHECKING:
    from areal_sim.executor.journal import Journal


def journal_in(out: Path | None, resume: bool) -> "contextlib.AbstractContextManager[Journal | None]":
    """The journal in this directory, opened to go on or anew; None without a directory.

    Raises:
        OutputError: it cannot be written, or not be read.
    """
    from areal_sim.executor.journal import Journal  # noqa: PLC0415 (--help must answer at once)

    if out is None:
        if resume:
            raise typer.BadParameter(
                "needs the directory of the earlier command: add --out DIR", param_hint="--resume"
            )
        return contextlib.nullcontext()
    journal = Journal(out / POINTS, resume)
    if journal.resumed:
        typer.echo(f"resumed: {journal.resumed} finished points in {journal.path}", err=True)
    return journal
