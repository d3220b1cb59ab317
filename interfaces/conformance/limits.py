"""Limits that a policy's own decisions declare, found by the names of their fields."""

from collections.abc import Callable
from math import inf

from interfaces.policies.protocols import Policy

Fail = Callable[[int, str, str, str], None]


class Limits:
    """At most so many running groups, untaken groups, rollouts per replica, ready groups."""

    def __init__(self, policy: Policy) -> None:
        gates = getattr(policy.admission, "limits", (policy.admission,))
        self.max_running: float = min((getattr(gate, "max_groups", inf) for gate in gates), default=inf)
        self.max_untaken: float = min((getattr(gate, "max_untaken", inf) for gate in gates), default=inf)
        per_replica = getattr(policy.dispatch, "max_per_replica", None)
        self.max_per_replica: float = inf if per_replica is None else per_replica
        room = getattr(policy.buffering, "max_ready", None)
        self.max_ready: float = inf if room is None else room

    def admitted(self, running: int, untaken: int, fail: Fail) -> None:
        """A group was started."""
        if running > self.max_running:
            fail(9, f"at most {self.max_running:g} groups in flight", f"{running}", "admission: concurrency")
        if untaken > self.max_untaken:
            fail(
                9,
                f"at most {self.max_untaken:g} groups untaken",
                f"{untaken}",
                "admission: the buffer overflows",
            )

    def dispatched(self, replica: int, running: int, fail: Fail) -> None:
        """A rollout was placed."""
        if running > self.max_per_replica:
            expected = f"at most {self.max_per_replica:g} rollouts on a replica"
            fail(9, expected, f"{running} on replica {replica}", "dispatch: placed on a full replica")

    def buffered(self, ready: int, fail: Fail) -> None:
        """An event was handled."""
        if ready > self.max_ready:
            fail(9, f"at most {self.max_ready:g} ready groups", f"{ready}", "buffering: the buffer overflows")
