"""The replicas as the core sees them, and the least loaded of them in constant time."""

from collections.abc import Iterator
from heapq import heappop, heappush

from interfaces.actions import InFlight
from interfaces.rollout import PolicyVersion

STALE_ENTRIES = 8
"""Entries a replica may have in the queue before those that no longer hold are thrown away."""


class Replica:
    """One inference engine instance."""

    __slots__ = (
        "alive",
        "draining",
        "exceptions",
        "id",
        "in_flight",
        "kv_capacity_tokens",
        "kv_tokens",
        "loading",
        "open",
        "queued",
        "running",
        "target",
        "turn",
        "version",
    )

    def __init__(self, replica_id: int, version: PolicyVersion) -> None:
        self.id = replica_id
        self.version = version
        self.running = 0
        """Rollouts in flight on it, the engine's own queue included."""
        self.turn = -1
        """Which entry of the pool's queue is the one that holds."""
        self.queued = -1
        """Load of its entry in the pool's queue; -1 while it may take no work."""
        self.open = True
        """Whether it may be given work: it lives, and neither loads nor drains."""
        self.alive = True
        self.loading = False
        self.draining = False
        self.target: PolicyVersion = version
        """The version it is about to serve, or serves."""
        self.in_flight: InFlight | None = None
        """What the load under way does to rollouts on it."""
        self.exceptions: dict[int, InFlight] = {}
        self.kv_tokens = self.kv_capacity_tokens = 0
        """KV cache in use and there, as last reported; 0 while nothing is known."""


class ReplicaPool:
    """All replicas; those that may take work are queued by load, equal ones in turns.

    An entry of the queue is a lower bound: work given out does not move it, the look-up corrects it.
    """

    __slots__ = ("_heap", "_turn", "_versions", "alive", "closed", "replicas")

    def __init__(self) -> None:
        self.replicas: dict[int, Replica] = {}
        self.alive = 0
        """Replicas that live."""
        self.closed = 0
        """Living replicas that drain or load: they get no work now."""
        self._heap: list[tuple[int, int, Replica]] = []
        self._turn = 0
        self._versions: dict[PolicyVersion, int] = {}

    def __getitem__(self, replica: int) -> Replica:
        return self.replicas[replica]

    def __iter__(self) -> Iterator[Replica]:
        return iter(self.replicas.values())

    def __len__(self) -> int:
        return len(self.replicas)

    @property
    def oldest_version(self) -> PolicyVersion | None:
        """Oldest version that work given out from now on may start with; None when no replica lives.

        A replica that drains or loads counts with the version it is about to serve: it gets no work before.
        """
        return min(self._versions, default=None)

    def up(self, replica_id: int, version: PolicyVersion) -> Replica:
        """Add a replica, or bring one back, empty and with this version."""
        replica = self.replicas[replica_id] = Replica(replica_id, version)
        self._versions[version] = self._versions.get(version, 0) + 1
        self.alive += 1
        self._put(replica)
        return replica

    def down(self, replica: Replica) -> None:
        """Take a replica out; it keeps its record, marked dead."""
        self._take(replica)
        self._forget_version(replica.target)
        self.alive -= 1
        self.closed -= not replica.open
        replica.open = replica.alive = replica.loading = replica.draining = False
        replica.running = 0

    def close(self, replica: Replica, target: PolicyVersion, *, loading: bool) -> None:
        """Give it no more work until it serves `target`: it loads now, or drains first."""
        self._take(replica)
        self._aim(replica, target)
        self.closed += replica.open
        replica.open, replica.loading, replica.draining = False, loading, not loading

    def reopen(self, replica: Replica, version: PolicyVersion) -> None:
        """It serves this version from now on and may take work."""
        self._aim(replica, version)
        self.closed -= 1
        replica.version = version
        replica.open, replica.loading, replica.draining = True, False, False
        replica.in_flight = None
        replica.exceptions = {}
        self._put(replica)

    def left(self, replica_id: int) -> Replica:
        """One rollout less runs on this replica."""
        replica = self.replicas[replica_id]
        replica.running -= 1
        if replica.running < replica.queued:
            self._put(replica)
        return replica

    def least_loaded(self) -> Replica | None:
        """The open replica with the fewest rollouts; None when none is open."""
        heap = self._heap
        while heap:
            load, turn, replica = heap[0]
            if turn != replica.turn or replica.queued < 0:
                heappop(heap)
            elif load == replica.running:
                return replica
            else:
                heappop(heap)
                self._put(replica)
        return None

    def _put(self, replica: Replica) -> None:
        """Queue it at its present load."""
        heap = self._heap
        if len(heap) > STALE_ENTRIES * len(self.replicas):
            heap[:] = sorted(entry for entry in heap if entry[1] == entry[2].turn)
        self._turn = replica.turn = turn = self._turn + 1
        load = replica.queued = replica.running
        heappush(heap, (load, turn, replica))

    def _take(self, replica: Replica) -> None:
        replica.queued = -1

    def _aim(self, replica: Replica, version: PolicyVersion) -> None:
        self._forget_version(replica.target)
        self._versions[version] = self._versions.get(version, 0) + 1
        replica.target = version

    def _forget_version(self, version: PolicyVersion) -> None:
        left = self._versions[version] - 1
        if left:
            self._versions[version] = left
        else:
            del self._versions[version]
