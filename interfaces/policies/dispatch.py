"""Dispatch: which rollout next, on which replica?"""

from dataclasses import dataclass

from interfaces.pool import Replica
from interfaces.rollout import Rollout
from interfaces.view import View


@dataclass(frozen=True, slots=True)
class LeastLoaded:
    """The open replica with the fewest rollouts; interrupted work goes first, then the order of admission.

    While some replicas drain or load, the open ones take no more than their fair share: otherwise the first
    to come back would get everything that waits.
    """

    max_per_replica: int | None = None
    """Rollouts one replica may hold; the rest waits in the core. None: the engine queues."""

    def priority(self, view: View, rollout: Rollout) -> float:  # noqa: ARG002
        """Rollouts that already have tokens come first."""
        return -1.0 if rollout.response_tokens else 0.0

    def place(self, view: View, rollout: Rollout) -> Replica | None:  # noqa: ARG002
        """The least loaded replica, if it has room."""
        pool = view.pool
        replica = pool.least_loaded()
        if replica is None or (self.max_per_replica is not None and replica.running >= self.max_per_replica):
            return None
        if pool.closed and replica.running * pool.alive >= view.running_rollouts + view.pending_rollouts:
            return None
        return replica

    def token_budget(self, view: View, rollout: Rollout) -> int | None:  # noqa: ARG002
        """Always to the end."""
        return None


@dataclass(frozen=True, slots=True)
class GroupAffinity(LeastLoaded):
    """All members of a group on one replica, which computes their prompt once; groups to the least loaded.

    As AReaL's rollout manager, which schedules a group, not its members. A member that comes back after its
    replica was closed goes to the least loaded one.
    """

    def place(self, view: View, rollout: Rollout) -> Replica | None:
        """The replica of the member placed last, while it is open; else the least loaded."""
        replica = view.pool.replicas.get(rollout.group.replica)
        if replica is None or not replica.open:
            return LeastLoaded.place(self, view, rollout)
        if self.max_per_replica is not None and replica.running >= self.max_per_replica:
            return LeastLoaded.place(self, view, rollout)
        return replica


@dataclass(frozen=True, slots=True)
class InRounds(LeastLoaded):
    """Nothing starts, and nothing that was aborted goes on, from the end of a round to the newest weights."""

    def place(self, view: View, rollout: Rollout) -> Replica | None:
        """The least loaded replica, if it has the newest weights and the trainer holds no batch."""
        if view.training:
            return None
        replica = LeastLoaded.place(self, view, rollout)
        return replica if replica is not None and replica.version == view.version else None


@dataclass(frozen=True, slots=True)
class TokenBudget(LeastLoaded):
    """Every rollout may generate so many tokens an iteration; what is unfinished waits for the next one."""

    tokens_per_iteration: int = 1024

    def priority(self, view: View, rollout: Rollout) -> float:  # noqa: ARG002
        """Those without tokens first: what waits for the next iteration must not stop what starts in this."""
        return 1.0 if rollout.response_tokens else 0.0

    def place(self, view: View, rollout: Rollout) -> Replica | None:
        """The least loaded replica, unless the budget is spent and something is there to train on."""
        replica = LeastLoaded.place(self, view, rollout)
        if replica is None or not rollout.response_tokens or not view.ready:
            return replica
        return replica if rollout.tail_version < replica.version else None

    def token_budget(self, view: View, rollout: Rollout) -> int | None:  # noqa: ARG002
        """The same for all."""
        return self.tokens_per_iteration


@dataclass(frozen=True, slots=True)
class Chunks(LeastLoaded):
    """Every rollout comes back after a chunk and competes again for a replica, the longest first."""

    chunk_tokens: int = 2048

    def priority(self, view: View, rollout: Rollout) -> float:  # noqa: ARG002
        """By its tokens so far, or those of the longest finished member of its group if that is more."""
        finished = (r.response_tokens for r in rollout.group.rollouts if r.reward is not None)
        return -float(max(rollout.response_tokens, max(finished, default=0)))

    def token_budget(self, view: View, rollout: Rollout) -> int | None:  # noqa: ARG002
        """A chunk."""
        return self.chunk_tokens


@dataclass(frozen=True, slots=True)
class LengthPools(LeastLoaded):
    """A share of the replicas is for rollouts that have shown to be long, the others for all new ones.

    No length is predicted: a rollout is long once it has `long_tokens`, and is moved then.
    """

    long_share: float = 0.25
    long_tokens: int = 4096

    def place(self, view: View, rollout: Rollout) -> Replica | None:
        """The least loaded open replica of its pool (of all while there is one replica only)."""
        pool = view.pool
        reserved = round(self.long_share * len(pool)) if len(pool) > 1 else 0
        long = rollout.response_tokens >= self.long_tokens and reserved > 0
        own = [r for r in pool if (r.id < reserved) == long]
        if not any(replica.alive for replica in own):
            return LeastLoaded.place(self, view, rollout)
        return min((r for r in own if r.open), key=lambda r: (r.running, r.id), default=None)

    def token_budget(self, view: View, rollout: Rollout) -> int | None:  # noqa: ARG002
        """To the point at which it counts as long, then to the end."""
        left = self.long_tokens - rollout.response_tokens
        return left if left > 0 else None
