"""Admitted rollouts that wait for a replica, in the order the dispatch policy wants them."""

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from interfaces.rollout import PENDING, Rollout


class DispatchQueue:
    """By priority (lower first), then in order of arrival. Rollouts that enter together stay together."""

    __slots__ = ("_arrivals", "_batches")

    def __init__(self) -> None:
        self._batches: list[tuple[float, int, list[Rollout]]] = []
        """The next of a batch is its last."""
        self._arrivals = 0

    def push(self, rollouts: Sequence[Rollout], priority: float) -> None:
        """Add pending rollouts that enter at the same time with the same priority."""
        self._arrivals += 1
        heappush(self._batches, (priority, self._arrivals, list(reversed(rollouts))))

    def take(self) -> Iterator[Rollout]:
        """The rollouts to place, in order; one that is still pending afterwards stays, and ends the walk.

        Those that were dropped meanwhile are skipped.
        """
        batches = self._batches
        while batches:
            batch = batches[0][2]
            while batch:
                rollout = batch[-1]
                if rollout.state is PENDING:
                    yield rollout
                    if rollout.state is PENDING:
                        return
                batch.pop()
            heappop(batches)
