"""One trace schema for simulated and real runs: JSON lines, gzip-compressed when the name ends in `.gz`.

Line 1 is the header (schema, backend, seed, resolved scenario). Then, in the order of the run: every event
fed to the core (`{"event": name, ...}`), each of the actions it answered (`{"action": name, ...}`), and
what the backend measured (`{"telemetry": name, ...}`). Times are seconds since the run began.
"""

import gzip
import json
from collections.abc import Callable, Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple, cast, get_args

from interfaces.actions import Action, InFlight
from interfaces.errors import TraceError
from interfaces.events import ORDER, Event
from interfaces.loop import TrainingLoop
from interfaces.rollout import Segment
from interfaces.telemetry import Telemetry

SCHEMA = 1

_KINDS: dict[str, dict[str, Any]] = {
    "event": {kind.__name__: kind for kind in ORDER},
    "action": {kind.__name__: kind for kind in get_args(Action)},
    "telemetry": {kind.__name__: kind for kind in get_args(Telemetry)},
}


class Header(NamedTuple):
    """What a run was."""

    schema: int
    backend: str
    """"sim" or "real"."""
    seed: int
    scenario: dict[str, Any]
    """The resolved scenario (scenario, hardware and model), as JSON."""
    version: str
    """Of this package."""
    held: tuple[tuple[int, int, tuple[tuple[int, int], ...]], ...] | None = None
    """Of a run that goes on after a kill: rollout, prompt tokens and segments of what was ready to train."""


Record = Header | Event | Action | Telemetry


def _encode(value: object) -> object:
    if isinstance(value, InFlight):
        return value.value
    raise TypeError(f"{type(value).__name__} has no place in a trace")


def _in_flight(value: str | None) -> InFlight | None:
    return None if value is None else InFlight(value)


_DECODE: dict[str, Callable[[Any], object]] = {
    "segments": lambda value: tuple(Segment(*segment) for segment in value),
    "replicas": tuple,
    "groups": tuple,
    "rollouts": tuple,
    "running": tuple,
    "in_flight": _in_flight,
    "exceptions": lambda value: tuple((rollout, InFlight(action)) for rollout, action in value),
}


def encode(what: str, record: NamedTuple) -> str:
    """One line, without the line end. Keys in the order of the fields: the same run gives the same bytes."""
    return json.dumps(
        {what: type(record).__name__, **record._asdict()}, default=_encode, separators=(",", ":")
    )


def decode(line: str, where: str) -> Record:
    """The record of one line.

    Raises:
        TraceError: not a record of this schema.
    """
    try:
        data = json.loads(line)
        if "schema" in data:
            if data["schema"] != SCHEMA:
                raise TraceError(f"{where}: trace schema {data['schema']}, this version reads {SCHEMA}")
            return Header(**data)
        what = next(iter(data))
        kind = _KINDS[what][data.pop(what)]
        record: Record = kind(**{k: _DECODE[k](v) if k in _DECODE else v for k, v in data.items()})
        return record
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        raise TraceError(
            f"{where}: not a trace record ({error}); is this file a trace of areal-sim?"
        ) from None


class TraceWriter:
    """Streams a trace to disk; what is written up to the last `flush` survives a kill."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self._raw: BinaryIO = path.open("wb")
        self._zip: IO[bytes] = self._raw
        if path.suffix == ".gz":  # no name and no time in the file: the same run gives the same bytes
            self._zip = cast("IO[bytes]", gzip.GzipFile("", "wb", 4, self._raw, mtime=0))
        self._file = TextIOWrapper(self._zip, encoding="utf-8", newline="\n")
        known = {key: value for key, value in header._asdict().items() if value is not None}
        self._file.write(json.dumps(known, separators=(",", ":")) + "\n")

    def fed(self, event: Event, actions: list[Action]) -> None:
        """Write an event and what the core answered."""
        lines = [encode("event", event), *(encode("action", action) for action in actions), ""]
        self._file.write("\n".join(lines))

    def telemetry(self, record: Telemetry) -> None:
        """Write a measurement."""
        self._file.write(encode("telemetry", record) + "\n")

    def flush(self) -> None:
        """Make all written so far readable."""
        self._file.flush()

    def close(self) -> None:
        """Finish the file."""
        self._file.close()
        self._raw.close()


def read_trace(path: Path, only: frozenset[str] | None = None) -> Iterator[Record]:
    """The records of a trace, streamed. A file cut short by a kill yields what is whole.

    Args:
        path: the file.
        only: names of the records to yield beside the header, such as `Span`; the others are skipped unread.

    Raises:
        TraceError: no such file, or a line that is not a record.
    """
    if not path.exists():
        raise TraceError(f"{path}: no such file; run `areal-sim run SCENARIO --out DIR` first")
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith("\n"):
                    return
                if only is not None and number > 1 and _name(line) not in only:
                    continue
                yield decode(line, f"{path}:{number}")
    except EOFError:
        return
    except (gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: not a readable trace ({error})") from None


def _name(line: str) -> str:
    """`Span` of `{"telemetry":"Span",...`; empty if the line does not begin like that."""
    parts = line.split('"', 4)
    return parts[3] if len(parts) == 5 else ""


def replay(records: Iterator[Record], loop: TrainingLoop, where: str) -> int:
    """Feed a trace's events to a fresh core and compare its answers; returns the number of events.

    Raises:
        TraceError: at the first action that differs.
    """
    expected: list[Action] = []
    answered = 0
    events = 0
    for record in records:
        kind = type(record).__name__
        if kind in _KINDS["event"]:
            if answered != len(expected):
                raise TraceError(f"{where}: event {events}: the trace lacks {expected[answered]}")
            expected, answered = loop.feed(record), 0  # type: ignore[arg-type]
            events += 1
        elif kind in _KINDS["action"]:
            seen = expected[answered] if answered < len(expected) else None
            if seen != record or type(seen) is not type(record):
                raise TraceError(f"{where}: event {events}: recorded {record}, replayed {seen}")
            answered += 1
    return events
