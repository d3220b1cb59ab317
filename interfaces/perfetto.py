"""A trace as a timeline: Chrome trace JSON, which ui.perfetto.dev opens; for simulated and real runs.

Process "rollout pool" has a thread a replica, process "trainer" one; both show spans. Process "queues" has
the counters: rollouts running and pending, groups ready to train, staleness of each batch taken. Publishes
and replica failures are instants. Times are microseconds. The trace is streamed; counters come from the core,
which is fed every event on the way.
"""

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from interfaces.actions import Action, Train
from interfaces.errors import ProtocolError, TraceError
from interfaces.events import Event, ReplicaDown, ReplicaUp, RunStarted, WeightsPublished
from interfaces.loop import TrainingLoop
from interfaces.rollout import staleness
from interfaces.telemetry import Span
from interfaces.trace import Record

ROLLOUT_POOL, TRAINER, QUEUES = 1, 2, 3
_PROCESSES = {ROLLOUT_POOL: "rollout pool", TRAINER: "trainer", QUEUES: "queues"}
_COLOURS = {
    "prefill": "thread_state_runnable", "decode": "thread_state_running", "recompute": "terrible",
    "load": "thread_state_iowait", "idle": "grey", "down": "black", "train": "thread_state_running",
    "publish": "thread_state_iowait",
}  # fmt: skip

Entry = dict[str, Any]


def export(records: Iterable[Record], loop: TrainingLoop, path: Path, where: str) -> None:
    """Write the timeline of a trace; compressed if the name ends in `.gz`.

    Args:
        records: the trace, as `read_trace` yields it.
        loop: a fresh core for the same scenario.
        path: the file to write.
        where: name of the trace, for messages.

    Raises:
        TraceError: an event cannot be true in the state that the events before it led to.
        OSError: the file cannot be written.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8") as out:
        out.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        separator = ""
        for entry in entries(records, loop, where):
            out.write(separator + json.dumps(entry, separators=(",", ":")))
            separator = ",\n"
        out.write("\n]}\n")


def entries(records: Iterable[Record], loop: TrainingLoop, where: str) -> Iterator[Entry]:
    """The entries of the timeline, in the order of the trace."""
    counters = _Counters(loop)
    for process, name in _PROCESSES.items():
        yield _named("process_name", process, 0, name)
        yield {**_named("process_sort_index", process, 0, ""), "args": {"sort_index": process}}
    yield _named("thread_name", TRAINER, 0, "trainer")
    for record in records:
        if isinstance(record, Span):
            yield _span(record)
        elif isinstance(record, Event):
            yield from _event(record)
            try:
                answer = loop.feed(record)
            except (ProtocolError, LookupError) as error:
                raise TraceError(f"{where}: does not replay: {error}") from None
            yield from counters.after(record.at, answer)


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _named(what: str, process: int, thread: int, name: str) -> Entry:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _span(span: Span) -> Entry:
    """A complete event ("X"). An idle span carries its cause in its name."""
    on_replica = span.track.startswith("replica ")
    name = f"idle: {span.detail}" if span.kind == "idle" else span.kind
    start = _us(span.start)
    entry: Entry = {
        "ph": "X", "name": name, "cat": span.kind, "ts": start, "dur": round(_us(span.end) - start, 3),
        "pid": ROLLOUT_POOL if on_replica else TRAINER,
        "tid": int(span.track.removeprefix("replica ")) if on_replica else 0,
        "args": {"cause" if span.kind == "idle" else "detail": span.detail} if span.detail else {},
    }  # fmt: skip
    if span.kind in _COLOURS:
        entry["cname"] = _COLOURS[span.kind]
    return entry


def _event(event: Event) -> Iterator[Entry]:
    """Names of the threads, and instants."""
    if isinstance(event, RunStarted):
        for replica in event.replicas:
            yield _named("thread_name", ROLLOUT_POOL, replica, f"replica {replica}")
    elif isinstance(event, WeightsPublished):
        yield _instant(event.at, TRAINER, 0, f"version {event.version} published", "p")
    elif isinstance(event, ReplicaDown):
        yield _instant(event.at, ROLLOUT_POOL, event.replica, f"down: {event.reason}", "t")
    elif isinstance(event, ReplicaUp):
        yield _named("thread_name", ROLLOUT_POOL, event.replica, f"replica {event.replica}")
        yield _instant(event.at, ROLLOUT_POOL, event.replica, "up", "t")


def _instant(at: float, process: int, thread: int, name: str, scope: str) -> Entry:
    return {"ph": "i", "name": name, "ts": _us(at), "pid": process, "tid": thread, "s": scope}


class _Counters:
    """Emits a counter whenever it changed since it was last emitted."""

    def __init__(self, loop: TrainingLoop) -> None:
        self._loop = loop
        self._last: dict[str, Entry] = {}

    def after(self, at: float, answer: list[Action]) -> Iterator[Entry]:
        view = self._loop.view
        yield from self._emit(
            at, "rollouts", {"running": view.running_rollouts, "pending": view.pending_rollouts}
        )
        yield from self._emit(at, "groups ready to train", {"groups": len(view.ready)})
        for action in answer:
            if isinstance(action, Train):
                yield from self._emit(at, "staleness of the batch taken", self._staleness(action))

    def _staleness(self, train: Train) -> Entry:
        held = self._loop.view.training
        ages = [
            staleness(train.version, rollout.head_version)
            for group in train.groups
            for rollout in held[group].rollouts
        ]
        return {"mean": round(sum(ages) / len(ages), 6), "max": max(ages)} if ages else {"mean": 0, "max": 0}

    def _emit(self, at: float, name: str, values: Entry) -> Iterator[Entry]:
        if self._last.get(name) != values:
            self._last[name] = values
            yield {"ph": "C", "name": name, "ts": _us(at), "pid": QUEUES, "tid": 0, "args": values}
