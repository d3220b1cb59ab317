"""Replicas at versions of their own: new work to the newest, the tails of the older ones moved together."""

from collections.abc import Iterable
from dataclasses import dataclass

from interfaces.policies.dispatch import LeastLoaded
from interfaces.pool import Replica
from interfaces.rollout import Rollout, RolloutState
from interfaces.view import View


@dataclass(frozen=True, slots=True)
class NewestReplicas(LeastLoaded):
    """New rollouts start on replicas with the newest published weights; the others finish what they have.

    A rollout that was moved goes on under its own version, on the fullest replica that has it.
    """

    def place(self, view: View, rollout: Rollout) -> Replica | None:
        """The least loaded of the newest, or the fullest of the rollout's version."""
        replicas = [r for r in view.pool if r.open and self._has_room(r)]
        if rollout.response_tokens:
            same = [r for r in replicas if r.version == rollout.tail_version]
            if same:
                return max(same, key=lambda r: (r.running, -r.id))
        newest = [r for r in replicas if r.version == view.published]
        return min(newest, key=lambda r: (r.running, r.id), default=None)

    def _has_room(self, replica: Replica) -> bool:
        return self.max_per_replica is None or replica.running < self.max_per_replica


@dataclass(frozen=True, slots=True)
class Repack:
    """Rollouts of the emptiest old replica join another tail of its version, so that it can load."""

    tail_rollouts: int
    """A replica behind the newest version with so many rollouts or fewer is a tail."""
    colocated: bool = False
    redundancy: int = 0

    def moves(self, view: View) -> Iterable[Rollout]:
        """All rollouts of one replica, if another tail of its version can take them."""
        tails = [
            r for r in view.pool
            if r.open and r.version < view.published and 0 < r.running <= self.tail_rollouts
        ]  # fmt: skip
        by_version: dict[int, list[Replica]] = {}
        for replica in tails:
            by_version.setdefault(replica.version, []).append(replica)
        sources = {
            min(same, key=lambda r: (r.running, r.id)).id for same in by_version.values() if len(same) > 1
        }
        if not sources:
            return ()
        members = (rollout for group in view.running.values() for rollout in group.rollouts)
        return [r for r in members if r.state is RolloutState.RUNNING and r.replica in sources]
