"""What a report adds up: rollouts that are under way, and sums over the steps that count."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from interfaces.rollout import Segment
from interfaces.statistics import Histogram, Lengths
from interfaces.telemetry import Usage


class Reported(NamedTuple):
    """A rollout between its first report and its training."""

    prompt_tokens: int
    tokens: int
    segments: tuple[Segment, ...]


NOTHING = Reported(0, 0, ())
"""Of a rollout of which nothing was reported."""


class Window:
    """Sums over the steps that count."""

    def __init__(self) -> None:
        self.started_at = 0.0
        self.trained_tokens = 0
        self.trained_response_tokens = 0
        self.trained_rollouts = 0
        self.masked_tokens = 0
        self.staleness = Histogram()
        self.token_staleness = Histogram()
        self.finished_rollouts = 0
        self.finished_tokens = 0
        self.finished_lengths = Lengths()
        self.trained_lengths = Lengths()
        self.dropped_rollouts = 0
        self.cut_short = 0
        """Dropped rollouts that had not reached their end: how long they would have become is not known."""
        self.dropped_tokens: defaultdict[str, int] = defaultdict(int)
        """By cause."""
        self.buffered_rollouts = self.buffered_tokens = 0
        """Most that were finished and neither trained nor dropped."""
        self.blocked_s: defaultdict[str, float] = defaultdict(float)
        self.usage: Usage | None = None
        """Totals when the window began."""

    def finish(self, lengths: Sequence[int]) -> None:
        """Rollouts of these response lengths ended."""
        self.finished_rollouts += len(lengths)
        self.finished_tokens += sum(lengths)
        self.finished_lengths.add(lengths)
