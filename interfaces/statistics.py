"""Histograms of small integers and quantiles: all the statistics a report needs, streamed."""

from collections import Counter
from collections.abc import Sequence


class Histogram:
    """Counts of integers, in memory that grows with the distinct values only."""

    __slots__ = ("_counts", "_recent_sum", "_recent_weight")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._recent_sum = 0.0
        self._recent_weight = 0

    def add(self, value: int, weight: int = 1) -> None:
        """Count a value `weight` times."""
        self._counts[value] += weight
        self._recent_sum += value * weight
        self._recent_weight += weight

    def recent_mean(self) -> float:
        """Mean of what was added since the last call; 0 if nothing was."""
        mean = self._recent_sum / self._recent_weight if self._recent_weight else 0.0
        self._recent_sum, self._recent_weight = 0.0, 0
        return mean

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


def quantile(values: Sequence[float], share: float) -> float | None:
    """Linear-interpolated quantile (type 7); None when empty."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
