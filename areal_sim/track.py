"""The timeline of one replica: what it did from when to when. Nothing is kept when no trace is written."""

from areal_sim.usage import SpanSink
from interfaces.telemetry import Span


class Track:
    """Turns changes of state, and work with a known end, into spans that follow one another."""

    __slots__ = ("_from", "_name", "_sink", "detail", "kind")

    def __init__(self, name: str, sink: SpanSink | None) -> None:
        self._name = name
        self._sink = sink
        self._from = 0.0
        self.kind = "idle"
        self.detail = ""
        """Told with the span; for an idle one, why."""

    def enter(self, at: float, kind: str, detail: str) -> None:
        """From `at` on it does this."""
        self.cut(at)
        self.kind, self.detail = kind, detail

    def mark(self, kind: str, start: float, end: float, detail: str) -> None:
        """Between start and end it does this instead; what was marked before stays (a death in a prefill)."""
        if self._sink is not None and end > max(start, self._from):
            self.cut(start)
            self._sink(Span(max(start, self._from), end, self._name, kind, detail))
            self._from = end

    def cut(self, at: float) -> None:
        """End the present span here; the next one goes on with the same."""
        if self._sink is not None and at > self._from:
            self._sink(Span(self._from, at, self._name, self.kind, self.detail))
            self._from = at
