"""`areal-sim trace`: look into a recorded run."""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from interfaces.loop import TrainingLoop
    from interfaces.trace import Header, Record


def trace(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A run directory (run --out), or a trace file.")
    ],
    perfetto: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a timeline for ui.perfetto.dev; .gz compresses.", show_default=False
        ),
    ] = None,
) -> None:
    """Summarise a recorded run, check that it explains itself, or export its timeline.

    [bold]areal-sim trace runs/a[/]

    [bold]areal-sim trace runs/a --perfetto runs/a/timeline.json[/]
    """
    from areal_report.run_directory import find_trace

    path = find_trace(directory)
    if perfetto is not None:
        _export(path, perfetto)
    else:
        _summarise(path)


def _open(path: Path) -> "tuple[Header, TrainingLoop]":
    """The header of a trace and a fresh core for its scenario."""
    import json

    from interfaces.backend import Capabilities
    from interfaces.errors import TraceError
    from interfaces.scenario_file import from_json
    from interfaces.setup import build_loop
    from interfaces.trace import Header, read_trace

    header = next(read_trace(path), None)
    if not isinstance(header, Header):
        raise TraceError(f"{path}: does not begin with a header; is this file a trace of areal-sim?")
    resolved = from_json(json.dumps(header.scenario), str(path))
    return header, build_loop(resolved, Capabilities())


def _summarise(path: Path) -> None:
    from interfaces.trace import read_trace, replay

    header, loop = _open(path)
    counts: Counter[tuple[str, str]] = Counter(
        (_kind(record), type(record).__name__) for record in read_trace(path)
    )
    where = header.scenario.get("where", "?")
    typer.echo(f"{path}: {where}, backend {header.backend}, seed {header.seed}, version {header.version}")
    for what in ("event", "action", "telemetry"):
        named = {name: count for (kind, name), count in counts.items() if kind == what}
        listed = ", ".join(f"{name} {count:,}" for name, count in sorted(named.items(), key=lambda i: -i[1]))
        typer.echo(f"{sum(named.values()):,} {what} records: {listed or 'none'}")
    events = replay(read_trace(path), loop, str(path))
    ending = f"ended: {loop.ended}" if loop.ended else "not ended: the trace stops in the middle of the run"
    typer.echo(f"replay: a fresh core gives the recorded actions for all {events:,} events; {ending}")


def _kind(record: "Record") -> str:
    from interfaces.events import RANK
    from interfaces.telemetry import Telemetry
    from interfaces.trace import Header

    if isinstance(record, Header | Telemetry):
        return "header" if isinstance(record, Header) else "telemetry"
    return "event" if type(record) in RANK else "action"


def _export(path: Path, out: Path) -> None:
    from areal_report.run_directory import writing
    from interfaces.perfetto import export
    from interfaces.trace import read_trace

    _, loop = _open(path)
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        export(read_trace(path), loop, out, str(path))
    typer.echo(f"written: {out} (open it at https://ui.perfetto.dev)")
