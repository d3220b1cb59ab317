"""One simulation as a task: what goes in, what comes out, and the key under which it is remembered."""

import contextlib
import hashlib
import json
import traceback
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from areal_report.identity import complete
from areal_report.run_directory import writing
from areal_sim.simulation import Simulation
from interfaces.errors import TestbedError
from interfaces.scenario import Resolved
from interfaces.scenario_file import from_json, to_json
from interfaces.trace import SCHEMA, Header, TraceWriter

DEFECT = 1
"""Exit code of what is not the scenario's fault: a bug, or a worker that died."""


class Task(NamedTuple):
    """What to simulate, and where to record it."""

    resolved: Resolved
    trace: Path | None = None


class Outcome(NamedTuple):
    """What became of one simulation: a report or the message of what went wrong."""

    report: dict[str, Any] | None
    error: str | None = None
    exit_code: int = 0

    @property
    def final(self) -> bool:
        """Whether trying again would give the same: a report, or an error of the scenario itself."""
        return self.exit_code != DEFECT


LOST = Outcome(None, "its process was killed twice, perhaps for memory; try fewer --jobs", DEFECT)


@cache
def _version() -> str:
    return version("areal-testbed")


def key(resolved: Resolved) -> str:
    """Digest of all that a report depends on: the resolved scenario, the files it names, this program."""
    text = to_json(resolved)
    digest = hashlib.sha256(f"{_version()}\n{text}".encode())
    for file in _files(json.loads(text)["scenario"]):
        digest.update(_content(file))
    return digest.hexdigest()[:32]


def _files(value: Any) -> Iterator[str]:
    """Every `file = ...` of a scenario: calibrated costs, empirical distributions."""
    if isinstance(value, dict):
        if isinstance(value.get("file"), str):
            yield value["file"]
        for below in value.values():
            yield from _files(below)
    elif isinstance(value, list):
        for below in value:
            yield from _files(below)


@cache
def _content(file: str) -> bytes:
    return hashlib.sha256(Path(file).read_bytes()).digest()


def header(resolved: Resolved) -> Header:
    """Line 1 of the trace of this run."""
    return Header(SCHEMA, "sim", resolved.scenario.run.seed, json.loads(to_json(resolved)), _version())


def attempt(resolved: Resolved, trace: Path | None = None) -> Outcome:
    """Simulate, and record it if there is a place; an error becomes its message, so that others go on."""
    try:
        if trace is None:
            return Outcome(complete(Simulation(resolved).run(), resolved))
        with writing(trace), contextlib.closing(TraceWriter(trace, header(resolved))) as writer:
            return Outcome(complete(Simulation(resolved, writer).run(), resolved))
    except TestbedError as error:
        return Outcome(None, str(error), error.exit_code)
    except Exception as error:  # a bug in one point of a sweep must not lose the others
        traceback.print_exc()
        return Outcome(None, f"{type(error).__name__}: {error}", DEFECT)


def attempt_text(text: str) -> tuple[dict[str, Any] | None, str | None, int]:
    """`attempt` for a worker on another machine: the resolved scenario as JSON in, plain data out."""
    outcome = attempt(from_json(text))
    return outcome.report, outcome.error, outcome.exit_code
