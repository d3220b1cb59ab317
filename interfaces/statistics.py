"""Histograms of small integers and quantiles: all the statistics a report needs, streamed."""

from collections import Counter
from collections.abc import Iterable, Sequence


class Histogram:
    """Counts of integers, in memory that grows with the distinct values only."""

    __slots__ = ("_counts", "_recent")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._recent: Counter[int] = Counter()

    def add(self, value: int, weight: int = 1) -> None:
        """Count a value `weight` times."""
        self._counts[value] += weight
        self._recent[value] += weight

    def take_recent(self) -> "Histogram":
        """What was added since the last call."""
        recent = Histogram()
        recent._counts, self._recent = self._recent, Counter()
        return recent

    def counts(self) -> dict[str, int]:
        """By value, ascending; keys as strings (JSON)."""
        return {str(value): self._counts[value] for value in sorted(self._counts)}

    def mean(self) -> float | None:
        """None when empty."""
        total = sum(self._counts.values())
        return sum(value * count for value, count in self._counts.items()) / total if total else None

    def largest(self) -> int | None:
        """None when empty."""
        return max(self._counts, default=None)

    def quantile(self, share: float) -> int | None:
        """The smallest value that at least this share does not exceed; None when empty."""
        wanted = share * sum(self._counts.values())
        seen = 0
        for value in sorted(self._counts):
            seen += self._counts[value]
            if seen >= wanted:
                return value
        return None

    def summary(self) -> dict[str, float | None]:
        """Mean, median, 95th percentile and maximum."""
        return {
            "mean": self.mean(), "p50": self.quantile(0.5), "p95": self.quantile(0.95), "max": self.largest()
        }  # fmt: skip


class Lengths:
    """Histogram of token counts for a chart: at most `MOST` bins, each a power of two wide."""

    FINEST = 32
    MOST = 64

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        """By length // FINEST."""

    def add(self, lengths: Iterable[int]) -> None:
        """Count these lengths."""
        finest = self.FINEST
        self._counts.update([tokens // finest for tokens in lengths])

    def width(self) -> int:
        """Tokens a bin, so that this histogram has few enough."""
        width = self.FINEST
        while max(self._counts, default=0) * self.FINEST >= width * self.MOST:
            width *= 2
        return width

    def counts(self, width: int) -> dict[str, int]:
        """By the first token count of a bin, ascending; keys as strings (JSON)."""
        bins: Counter[int] = Counter()
        for finest, count in self._counts.items():
            bins[finest * self.FINEST // width * width] += count
        return {str(first): bins[first] for first in sorted(bins)}


def quantile(values: Sequence[float], share: float) -> float | None:
    """Linear-interpolated quantile (type 7); None when empty."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
