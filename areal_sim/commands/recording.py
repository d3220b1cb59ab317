"""What of a simulation is written to disk as its trace."""

from typing import TYPE_CHECKING

import typer

from areal_report.terminal.options import TraceKind

if TYPE_CHECKING:
    from interfaces.scenario import Resolved

FULL_TRACE_ROLLOUTS = 300_000
"""A run of more rollouts is traced only on request: its trace would be hundreds of megabytes."""


def traced(resolved: "Resolved", asked: TraceKind | None) -> bool:
    """Whether this run gets a full trace; says so when it does not and nobody decided that."""
    work = resolved.scenario.workload
    rollouts = resolved.scenario.run.steps * work.batch_size * work.group_size
    if asked is None and rollouts > FULL_TRACE_ROLLOUTS:
        typer.echo(
            f"note: about {rollouts:,} rollouts: no full trace; ask for it with --trace full", err=True
        )
        return False
    return asked is not TraceKind.summary
