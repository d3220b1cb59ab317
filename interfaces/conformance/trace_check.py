"""`check_trace`: every law that a recorded run can show, streamed; and whether the run explains itself."""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from interfaces.actions import Action, Checkpoint
from interfaces.backend import Capabilities
from interfaces.conformance.invariants import Monitor, Saved
from interfaces.conformance.violation import InvariantViolation
from interfaces.errors import TraceError
from interfaces.events import RANK, Event, RunStarted
from interfaces.loop import TrainingLoop
from interfaces.rollout import PolicyVersion
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


def check_trace(path: str | Path, *resumed: str | Path) -> TraceSummary:
    """Check a recorded run, simulated or real, of any size: laws, replay, and a summary.

    The trace is streamed; memory is bounded by what is outstanding in the run.

    Args:
        path: the trace.
        resumed: traces of the same run after it was killed and gone on with, in order. Each begins at one of
            the checkpoints before it: what came after that checkpoint never happened.

    Raises:
        InvariantViolation: a law is broken, or a fresh core answers otherwise (law 7).
        TraceError: not a trace, or not one that goes on from a checkpoint before it.
    """
    check = _Check()
    for part in (path, *resumed):
        check.part(Path(part))
    return check.summary(str(path))


class _Check:
    """One run, in one or several parts."""

    def __init__(self) -> None:
        self._header: Header | None = None
        self._kinds: Counter[str] = Counter()
        self._checkpoints: dict[int, Saved] = {}
        """By the version that each was taken at."""

    def part(self, path: Path) -> None:
        """Go on with a trace."""
        where = str(path)
        records = read_trace(path)
        header = next(records, None)
        if header is None:
            return  # killed before anything was written
        if not isinstance(header, Header):
            raise TraceError(f"{where}: no header; is this a trace?")
        answer: list[Action] = []
        answered = 0
        for record in records:
            if isinstance(record, RunStarted):
                self._begin(header, record.version, where)
            if type(record) in RANK:
                _complete(self._monitor, answer, answered)
                self._kinds[type(record).__name__] += 1
                answer, answered = self._feed(record), 0  # type: ignore[arg-type]
            elif type(record).__module__ == "interfaces.actions":
                _same(self._monitor, answer, answered, record)
                answered += 1

    def _begin(self, header: Header, version: PolicyVersion, where: str) -> None:
        if version == 0 or self._header is None:
            self._monitor = Monitor(_loop(header, where), keep=KEPT)
        elif version in self._checkpoints:
            self._monitor.kill_and_restore(self._checkpoints[version])
        else:
            raise TraceError(
                f"{where}: goes on at version {version}, and no earlier part has a checkpoint there"
            )
        self._header = header

    def _feed(self, event: Event) -> list[Action]:
        answer = self._monitor.feed(event)
        if any(isinstance(action, Checkpoint) for action in answer):
            version = self._monitor.loop.view.version
            self._checkpoints[version] = self._monitor.save()
            self._checkpoints.pop(version - KEPT, None)
        return answer

    def summary(self, where: str) -> TraceSummary:
        """Of all parts."""
        if self._header is None:
            raise TraceError(f"{where}: holds no run; is this a trace?")
        loop, view = self._monitor.loop, self._monitor.loop.view
        return TraceSummary(
            self._header.backend, loop.policy.name, self._kinds.total(), view.steps_finished,
            view.trained_groups, view.discarded_groups, self._monitor.max_staleness_seen, loop.ended,
            dict(self._kinds),
        )  # fmt: skip


def _loop(header: Header, where: str) -> TrainingLoop:
    return build_loop(from_json(json.dumps(header.scenario), where), Capabilities())


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
