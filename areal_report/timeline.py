"""The spans of a trace, thinned as they stream in: what a page can hold and a browser can draw at any zoom.

Neighbours of the same kind become one. Spans too short to see join the longer neighbour, which remembers how
much of it they were; training, loads and interruptions stay as they are. If there are still too many, "too
short" grows. The work is proportional to the trace, the memory to what is kept.
"""

import re
from typing import Any, NamedTuple

from areal_report.palette import kind as look
from areal_report.palette import ordered
from interfaces.events import RolloutFinished, RunStarted
from interfaces.telemetry import Span

MOST_SPANS = 40_000
"""On one page."""
MOST_REPLICAS = 32
"""On one page, and never fewer than `LEAST_REPLICAS` of each run."""
LEAST_REPLICAS = 8
_COARSE = 4000
"""A mark shorter than the run divided by this may be thinned too."""
_NUMBER = re.compile(r"\d+")


class _Kept(NamedTuple):
    """One stretch of a track, in seconds."""

    start: float
    end: float
    kind: str
    number: int | None
    """Tokens, version or step; see `palette.Kind.counted`."""
    inner: float
    """Seconds of it that were other, shorter things."""
    finished: int
    """Rollouts that ended here, and their response tokens."""
    tokens: int


class Timeline:
    """Folds the spans of one run; `as_data` gives columns of integers."""

    def __init__(self, replicas: int = MOST_REPLICAS, spans: int = MOST_SPANS) -> None:
        self._most_replicas, self._most_spans = replicas, spans
        self._tracks: dict[str, list[_Kept]] = {"trainer": []}
        self._finished: dict[int, tuple[int, int]] = {}
        self._kept = 0
        self.resolution = 0.0
        """Seconds below which spans have joined their neighbours."""
        self.end = 0.0
        self.replicas = 0
        """Of the run, drawn or not."""

    def add(self, record: object) -> None:
        """Take a record of the trace; only a few kinds matter."""
        if type(record) is Span:
            self._span(record)
        elif type(record) is RolloutFinished:
            count, tokens = self._finished.get(record.replica, (0, 0))
            made = sum(segment.tokens for segment in record.segments)
            self._finished[record.replica] = count + 1, tokens + made
        elif type(record) is RunStarted:
            self.replicas = len(record.replicas)

    def _span(self, span: Span) -> None:
        self.end = max(self.end, span.end)
        track = self._tracks.get(span.track)
        if track is None:
            replica = int(span.track.rpartition(" ")[2])
            self.replicas = max(self.replicas, replica + 1)
            if replica >= self._most_replicas:
                return
            track = self._tracks[span.track] = []
        idle = span.kind == "idle"
        found = None if idle else _NUMBER.search(span.detail)
        finished = tokens = 0
        if span.kind == "decode":
            finished, tokens = self._finished.pop(int(span.track.rpartition(" ")[2]), (0, 0))
        kind = f"idle:{span.detail}" if idle else span.kind
        number = int(found.group()) if found else None
        before = len(track)
        self._append(track, _Kept(span.start, span.end, kind, number, 0.0, finished, tokens))
        self._kept += len(track) - before
        while self._kept > self._most_spans:
            self._thin()

    def _append(self, track: list[_Kept], new: _Kept) -> None:
        """Add a span, or join it to the one before."""
        last = track[-1] if track else None
        if last is None or new.start - last.end > max(1e-9, self.resolution):
            track.append(new)
        elif new.kind == last.kind and (new.number == last.number or _counts_tokens(new.kind)):
            track[-1] = _joined(last, new, last, last.inner + new.inner)
        elif self._short(new) and not self._is_mark(last):
            track[-1] = _joined(last, new, last, last.inner + new.end - new.start)
        elif self._short(last) and not self._is_mark(new):
            track[-1] = _joined(last, new, new, new.inner + last.end - last.start)
        else:
            track.append(new)

    def _is_mark(self, span: _Kept) -> bool:
        return look(span.kind).mark and self.resolution * _COARSE < self.end

    def _short(self, span: _Kept) -> bool:
        return span.end - span.start < self.resolution and not self._is_mark(span)

    def _thin(self) -> None:
        self.resolution = max(2.0 * self.resolution, self.end / 100_000)
        for name, spans in self._tracks.items():
            thinned: list[_Kept] = []
            for span in spans:
                self._append(thinned, span)
            self._tracks[name] = thinned
        self._kept = sum(map(len, self._tracks.values()))

    def as_data(self) -> dict[str, Any]:
        """Tracks as columns of integers: times in `unit_s`, starts as the gap to the span before."""
        unit = 10.0 ** (len(str(int(self.end))) - 8)
        kinds = ordered({span.kind for spans in self._tracks.values() for span in spans})
        names = sorted((name for name in self._tracks if name != "trainer"), key=lambda n: int(n.split()[-1]))
        return {
            "unit_s": unit, "end_s": self.end, "resolution_s": self.resolution, "kinds": kinds,
            "replicas": self.replicas, "replicas_kept": len(names),
            "tracks": [_columns(name, self._tracks[name], kinds, unit) for name in ("trainer", *names)],
        }  # fmt: skip


def _counts_tokens(kind: str) -> bool:
    return look(kind).counted == "{} tokens"


def _joined(first: _Kept, second: _Kept, winner: _Kept, inner: float) -> _Kept:
    number = winner.number
    if first.kind == second.kind and _counts_tokens(winner.kind):
        number = (first.number or 0) + (second.number or 0)
    return _Kept(
        first.start, second.end, winner.kind, number, inner,
        first.finished + second.finished, first.tokens + second.tokens,
    )  # fmt: skip


def _columns(name: str, spans: list[_Kept], kinds: list[str], unit: float) -> dict[str, Any]:
    index = {kind: place for place, kind in enumerate(kinds)}
    begins = [round(span.start / unit) for span in spans]
    ends = [round(span.end / unit) for span in spans]
    return {
        "name": name,
        "gap": [begin - end for begin, end in zip(begins, [0, *ends], strict=False)],
        "length": [end - begin for begin, end in zip(begins, ends, strict=True)],
        "kind": [index[span.kind] for span in spans],
        "number": [-1 if span.number is None else span.number for span in spans],
        "inner": [round(span.inner / unit) for span in spans],
        "finished": [span.finished for span in spans],
        "tokens": [span.tokens for span in spans],
    }
