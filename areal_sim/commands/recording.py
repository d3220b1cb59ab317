"""What of a simulation is written to disk as its trace."""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

from typing import TYPE_CHECKING

import typer

from areal_report.terminal.options import TraceKind

if TYPE_CHECKING:
    from interfaces.scenario import Resolved
    from interfaces.trace import Header

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


def header(resolved: "Resolved") -> "Header":
    """Line 1 of its trace."""
    import json
    from importlib.metadata import version

    from interfaces.scenario_file import to_json
    from interfaces.trace import SCHEMA, Header

    scenario = json.loads(to_json(resolved))
    return Header(SCHEMA, "sim", resolved.scenario.run.seed, scenario, version("areal-testbed"))
