"""Where the trainer's time goes: seconds by kind, and spans for the timeline."""

from collections import defaultdict
from collections.abc import Callable

from interfaces.telemetry import Span

SpanSink = Callable[[Span], None]
IDLE = "idle"
IDLE_CAUSE = "rollouts"
"""What an idle trainer waits for."""


class BusyTime:
    """Trainer-seconds by kind, gapless from the moment it was made."""

    def __init__(self, now: float, span: SpanSink | None = None) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._kind, self._detail, self._since = IDLE, IDLE_CAUSE, now
        self._span = span

    def enter(self, now: float, kind: str = IDLE, detail: str = IDLE_CAUSE) -> None:
        """From now on the trainer does this."""
        if now > self._since:
            self._seconds[self._key] += now - self._since
            if self._span is not None:
                self._span(Span(self._since, now, "trainer", self._kind, self._detail))
        self._kind, self._detail, self._since = kind, detail, now

    def seconds(self, now: float) -> dict[str, float]:
        """Up to now, by kind: "train", "publish", "checkpoint", "evaluation" and "idle:rollouts"."""
        seconds = defaultdict(float, self._seconds)
        seconds[self._key] += max(0.0, now - self._since)
        return dict(seconds)

    @property
    def _key(self) -> str:
        return f"{IDLE}:{self._detail}" if self._kind == IDLE else self._kind
