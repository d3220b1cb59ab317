"""`check_trace`: every law that a recorded run can show, streamed; and whether the run explains itself."""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from interfaces.actions import Action
from interfaces.backend import Capabilities
from interfaces.conformance.invariants import Monitor
from interfaces.conformance.violation import InvariantViolation
from interfaces.errors import TraceError
from interfaces.events import RANK, Event
from interfaces.loop import TrainingLoop
from interfaces.scenario_file import from_json
from interfaces.setup import build_loop
from interfaces.trace import Header, Record, read_trace

KEPT = 12
"""Steps of history that a violation shows."""


@dataclass(frozen=True)
class TraceSummary:
    """What a trace holds, after all laws were found to hold in it."""

    backend: str
    policy: str
    events: int
    steps: int
    trained_groups: int
    discarded_groups: int
    max_staleness: int
    """Largest staleness that any step consumed; -1 without a step."""
    ended: str | None
    """Why the run ended; None: it was cut short."""
    by_event: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        end = f"ended ({self.ended})" if self.ended else "cut short"
        return (
            f"{self.events:,} events of a {self.backend} run of {self.policy!r}, {end}: {self.steps:,} "
            f"steps, "
            f"{self.trained_groups:,} groups trained, {self.discarded_groups:,} discarded, staleness at most "
            f"{self.max_staleness}; all laws hold, and a fresh core gives the same answers"
        )


def check_trace(path: str | Path) -> TraceSummary:
    """Check a recorded run, simulated or real, of any size: laws, replay, and a summary.

    The trace is streamed; memory is bounded by what is outstanding in the run.

    Raises:
        InvariantViolation: a law is broken, or a fresh core answers otherwise (law 7).
        TraceError: not a trace.
    """
    where = str(path)
    records = read_trace(Path(path))
    header = next(records, None)
    if not isinstance(header, Header):
        raise TraceError(f"{where}: no header; is this a trace?")
    loop = _loop(header, where)
    monitor = Monitor(loop, keep=KEPT)
    kinds: Counter[str] = Counter()
    answer: list[Action] = []
    answered = 0
    for record in records:
        if type(record) in RANK:
            _complete(monitor, answer, answered)
            kinds[type(record).__name__] += 1
            answer, answered = monitor.feed(_event(record)), 0
        elif type(record).__module__ == "interfaces.actions":
            _same(monitor, answer, answered, record)
            answered += 1
    view = monitor.loop.view
    return TraceSummary(
        header.backend, loop.policy.name, kinds.total(), view.steps_finished, view.trained_groups,
        view.discarded_groups, monitor.max_staleness_seen, monitor.loop.ended, dict(kinds),
    )  # fmt: skip


def _loop(header: Header, where: str) -> TrainingLoop:
    return build_loop(from_json(json.dumps(header.scenario), where), Capabilities())


def _event(record: Record) -> Event:
    return record  # type: ignore[return-value]


def _complete(monitor: Monitor, answer: list[Action], answered: int) -> None:
    if answered < len(answer):
        cause = "the trace is of another policy or version, or the policy keeps state"
        monitor.report(7, f"the recorded answer includes {answer[answered]}", "it is not recorded", cause)


def _same(monitor: Monitor, answer: list[Action], answered: int, record: Record) -> None:
    replayed = answer[answered] if answered < len(answer) else None
    if replayed == record and type(replayed) is type(record):
        return
    cause = "the trace is of another policy or version, or the policy keeps state"
    monitor.report(7, f"recorded: {record}", f"replayed: {replayed}", cause)


__all__ = ["InvariantViolation", "TraceSummary", "check_trace"]
