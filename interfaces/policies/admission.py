"""Admission: how many groups may start now?"""

from dataclasses import dataclass
from math import inf

from interfaces.policies.protocols import Admission, Quota
from interfaces.view import View


@dataclass(frozen=True, slots=True)
class CountGate:
    """Admit while every admitted group fits in the next batches: AReaL (arXiv 2505.24298) eq. (3).

    The paper's `floor((N - 1) / B) <= i + eta`, with N the groups ever admitted and i the version that
    the replicas serve. Written with the groups that are outstanding, so that filtered, failed and expired
    groups give their credit back, and a resumed run starts with the right capacity (AReaL#1388):
    the n-th untaken group trains at step `steps_started + floor(n / B)` at the earliest.

    It bounds how many groups are outstanding, *not* the age of each: alone it is a soft bound.
    """

    max_staleness: float
    """eta, in versions; infinity: no gate."""

    def quota(self, view: View) -> Quota:
        """Groups that fit."""
        batches = self.max_staleness + view.serving_version - view.steps_started + 1
        if view.taken_in_step:
            missing = view.config.batch_size - view.taken_in_step
            return Quota(batches * view.config.batch_size + missing - view.untaken, "staleness_gate")
        return Quota(batches * view.config.batch_size - view.untaken, "staleness_gate")


@dataclass(frozen=True, slots=True)
class Concurrency:
    """At most so many groups have a member in flight or waiting for a replica."""

    max_groups: float

    def quota(self, view: View) -> Quota:
        """Groups below the limit."""
        return Quota(self.max_groups - len(view.running), "concurrency")


@dataclass(frozen=True, slots=True)
class QueueRoom:
    """At most so many groups are admitted and not yet taken: a bounded buffer that blocks its producers."""

    max_untaken: float

    def quota(self, view: View) -> Quota:
        """Groups below the limit."""
        return Quota(self.max_untaken - view.untaken, "buffer_full")


@dataclass(frozen=True, slots=True)
class NotYetTrained:
    """At most so many groups are admitted and not yet trained: a batch keeps its slots while it trains."""

    max_groups_held: float

    def quota(self, view: View) -> Quota:
        """Groups below the limit."""
        return Quota(self.max_groups_held - view.untaken - len(view.training), "buffer_full")


@dataclass(frozen=True, slots=True)
class ReadyRoom:
    """Nothing starts while so many groups are ready; what runs already may still join them (a soft limit)."""

    max_waiting: float

    def quota(self, view: View) -> Quota:
        """All or nothing."""
        return Quota(inf if len(view.ready) < self.max_waiting else 0, "buffer_full")


@dataclass(frozen=True, slots=True)
class BatchBarrier:
    """One batch at a time, under the newest weights: the next starts when the last is finished, all of it."""

    def quota(self, view: View) -> Quota:
        """A batch, or nothing while any group runs or the replicas wait for newer weights."""
        if view.running or view.serving_version < view.version:
            return Quota(0, "batch_barrier")
        return Quota(view.config.batch_size, "batch_barrier")


@dataclass(frozen=True, slots=True)
class BatchEachStep:
    """A batch of new groups starts with every step, whatever is left of earlier ones."""

    def quota(self, view: View) -> Quota:
        """What this step's batch lacks; nothing until the replicas serve its version."""
        started = view.untaken + len(view.training) + view.trained_groups
        return Quota((view.serving_version + 1) * view.config.batch_size - started, "batch_barrier")


@dataclass(frozen=True, slots=True)
class AllServing:
    """Nothing starts while a replica drains or loads: a weight sync is a barrier for the whole pool."""

    def quota(self, view: View) -> Quota:
        """All or nothing."""
        return Quota(0 if view.pool.closed else inf, "weight_sync")


@dataclass(frozen=True, slots=True)
class Round:
    """So many groups compete in a round, those left over from the last one included."""

    groups_per_round: float

    def quota(self, view: View) -> Quota:
        """What the round lacks; nothing between the end of a round and the load of the new weights."""
        if view.training or view.role != "generate" or view.serving_version < view.version:
            return Quota(0, "round")
        return Quota(self.groups_per_round - view.untaken, "round")


@dataclass(frozen=True, slots=True)
class All:
    """The tightest of several limits; the first of equals is named as the cause."""

    limits: tuple[Admission, ...]

    def quota(self, view: View) -> Quota:
        """The smallest quota."""
        tightest = self.limits[0].quota(view)
        for limit in self.limits[1:]:
            quota = limit.quota(view)
            if quota[0] < tightest[0]:
                tightest = quota
        return tightest
