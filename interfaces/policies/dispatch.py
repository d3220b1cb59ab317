"""Dispatch: which rollout next, on which replica?"""

from dataclasses import dataclass

from interfaces.pool import Replica
from interfaces.rollout import Rollout
from interfaces.view import View


@dataclass(frozen=True, slots=True)
class LeastLoaded:
    """The open replica with the fewest rollouts; interrupted work goes first, then the order of admission."""

    max_per_replica: int | None = None
    """Rollouts one replica may hold; the rest waits in the core. None: the engine queues."""

    def priority(self, view: View, rollout: Rollout) -> float:  # noqa: ARG002
        """Rollouts that already have tokens come first."""
        return -1.0 if rollout.response_tokens else 0.0

    def place(self, view: View, rollout: Rollout) -> Replica | None:  # noqa: ARG002
        """The least loaded replica, if it has room."""
        replica = view.pool.least_loaded()
        if replica is None or (self.max_per_replica is not None and replica.running >= self.max_per_replica):
            return None
        return replica

    def token_budget(self, view: View, rollout: Rollout) -> int | None:  # noqa: ARG002
        """Always to the end."""
        return None
