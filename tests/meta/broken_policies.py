"""Policies with one fault each. `POLICIES`: name of the fault -> (policy for a run, check that must fail)."""

# ruff: noqa: ARG002

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from interfaces.actions import InFlight
from interfaces.policies.admission import All, CountGate, QueueRoom
from interfaces.policies.buffering import Bounded, OldestFirst, Straggler
from interfaces.policies.dispatch import LeastLoaded
from interfaces.policies.presets import Areal, ArealStrict, SyncColocated
from interfaces.policies.protocols import Batch, Expiry, Guarantees, Quota
from interfaces.policies.sync import EveryStep


def base(config, eta=1, **changes):
    """AReaL's gate, soft, everything replaceable."""
    policy = replace(Areal(eta, 9).build(config), dispatch=LeastLoaded())
    return replace(policy, **changes)


def hard(eta, **more):
    return Guarantees(eta, hard=True, **more)


# ---- admission ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gate:
    """A gate whose quota is computed by a function of the view."""

    rule: Any

    def quota(self, view):
        return Quota(self.rule(view), "gate")


def gate(view, eta=1, extra=0):
    return (
        (eta + view.serving_version - view.steps_started + 1) * view.config.batch_size - view.untaken - extra
    )


@dataclass(frozen=True)
class LeakyConcurrency:
    max_groups: float = 2

    def quota(self, view):
        return Quota(self.max_groups + 1 - len(view.running), "concurrency")


# ---- dispatch -----------------------------------------------------------------------------------------


class AnyReplica(LeastLoaded):
    def place(self, view, rollout):
        return next((replica for replica in view.pool if replica.alive), None)


class TheDead(LeastLoaded):
    def place(self, view, rollout):
        return next(iter(view.pool), None)


class Crashes(LeastLoaded):
    def place(self, view, rollout):
        if rollout.failures:
            raise KeyError("no place for what failed before")
        return super().place(view, rollout)


class Overfull(LeastLoaded):
    def place(self, view, rollout):
        return view.pool.least_loaded()


# ---- sync ---------------------------------------------------------------------------------------------


class OnlyEverySecond(EveryStep):
    def load(self, view, replica):
        return self.in_flight if view.published % 2 == 0 else None


class NeverLoads(EveryStep):
    def load(self, view, replica):
        return None


# ---- buffering ----------------------------------------------------------------------------------------


class NewestFirst(OldestFirst):
    def select(self, view):
        size = view.config.batch_size
        newest = sorted(view.ready.values(), key=lambda group: -group.id)
        return Batch(newest[:size]) if len(newest) >= size else None


class OneTooFew(OldestFirst):
    def select(self, view):
        size = max(1, view.config.batch_size - 1)
        return Batch(list(view.ready.values())[:size]) if len(view.ready) >= size else None


class Twice(OldestFirst):
    """Lists a group twice."""

    def select(self, view):
        batch = super().select(view)
        return batch and Batch(
            [*batch.groups[:-1], batch.groups[0]] if len(batch.groups) > 1 else batch.groups
        )


class DropsAtTheBound(Bounded):
    """Discards what is exactly as old as the bound allows."""

    def expired(self, view) -> Iterable[Expiry]:
        due = view.next_step_version - self.max_staleness
        groups = (*view.running.values(), *view.ready.values())
        return [Expiry(g, "stale", requeue=True) for g in groups if self._too_old(g, due + 1)]


class SecretlyDrops(OldestFirst):
    def expired(self, view):
        return [
            Expiry(g, "unwanted", requeue=False) for g in list(view.ready.values())[1:] if g.prompt % 5 == 3
        ]


@dataclass
class Remembers:
    """Keeps state: its answer depends on how often it was asked."""

    calls: list = field(default_factory=list)

    def quota(self, view):
        self.calls.append(view.now)
        return Quota(min(1 + len(self.calls) % 2, gate(view)), "mood")


@dataclass(frozen=True)
class MasksTooLittle(Bounded):
    def select(self, view):
        batch = super().select(view)
        return batch and batch._replace(mask_below=(batch.mask_below or 0) - 1)


POLICIES = {
    "count gate declared as a hard bound": (lambda c: base(c, 1, guarantees=hard(1)), "staleness"),
    "gate admits one batch too many": (
        lambda c: base(c, 1, admission=CountGate(2), guarantees=Guarantees(1)),
        "staleness",
    ),
    "gate is tighter than the bound": (
        lambda c: base(c, admission=CountGate(1), guarantees=Guarantees(2)),
        "tightness",
    ),
    "counts finished groups twice": (
        lambda c: base(c, 0, admission=Gate(lambda v: gate(v, 0, len(v.ready)))),
        "progress",
    ),
    "counts the batch that trains as untaken": (
        lambda c: base(c, 0, admission=Gate(lambda v: gate(v, 0, v.trained_groups))),
        "progress",
    ),
    "loses the credit of discarded groups": (
        lambda c: base(c, 0, admission=Gate(lambda v: gate(v, 0, v.discarded_groups))),
        "progress",
    ),
    "loses the credit of discarded groups, slowly": (
        lambda c: base(c, 9, admission=Gate(lambda v: gate(v, 9, min(4, v.discarded_groups // 3)))),
        "conservation",
    ),
    "deadlocks with a full buffer": (lambda c: base(c, admission=QueueRoom(c.batch_size - 1)), "progress"),
    "livelocks at bound 0": (
        lambda c: base(
            c, 0, buffering=DropsAtTheBound(0, Straggler.REQUEUE), guarantees=hard(0, no_drops=False)
        ),
        "progress",
    ),
    "waits for a load that never comes": (
        lambda c: base(c, 0, sync=NeverLoads(InFlight.KEEP_RECOMPUTE)),
        "progress",
    ),
    "restarts long rollouts for ever": (
        lambda c: base(
            c, sync=EveryStep(InFlight.ABORT_RESTART), in_flight=frozenset({InFlight.ABORT_RESTART})
        ),
        "progress",
    ),
    "trains the newest first": (lambda c: base(c, 2, buffering=NewestFirst()), "progress"),
    "lets the next batch in early at bound 0": (
        lambda c: base(c, 1, guarantees=hard(0), admission=CountGate(1)),
        "synchronous",
    ),
    "admits more groups than its limit": (
        lambda c: base(c, 5, admission=All((CountGate(5), LeakyConcurrency()))),
        "limits",
    ),
    "ignores the limit of a replica": (lambda c: base(c, dispatch=Overfull(1)), "limits"),
    "does not declare an in-flight action": (
        lambda c: base(c, sync=EveryStep(InFlight.KEEP_STALE)),
        "limits",
    ),
    "gives work to a replica that loads": (lambda c: base(c, 3, dispatch=AnyReplica()), "overlap"),
    "gives work to a dead replica": (lambda c: base(c, dispatch=TheDead()), "causality"),
    "cannot place what failed before": (lambda c: base(c, dispatch=Crashes()), "protocol"),
    "keeps rollouts over a load but promises one version": (
        lambda c: base(c, 1, guarantees=Guarantees(1, single_version=True)),
        "versions",
    ),
    "trains less than a batch": (lambda c: base(c, buffering=OneTooFew()), "groups"),
    "drops without declaring it": (lambda c: base(c, 3, buffering=SecretlyDrops()), "conservation"),
    "keeps state": (lambda c: base(c, admission=Remembers()), "replay"),
    "masks one version too little": (
        lambda c: replace(
            ArealStrict(1, 9, straggler="mask").build(c), buffering=MasksTooLittle(1, Straggler.MASK)
        ),
        "staleness",
    ),
    "loads only every second version at bound 0": (
        lambda c: base(c, 0, sync=OnlyEverySecond(InFlight.KEEP_RECOMPUTE)),
        "progress",
    ),
}
COLOCATED = SyncColocated()
