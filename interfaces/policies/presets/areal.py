"""AReaL and the schedules it is compared with: synchronous, one step off, soft and strict bounds."""

from dataclasses import dataclass
from math import inf
from typing import Literal

from interfaces.actions import InFlight
from interfaces.policies.admission import All, Concurrency, CountGate
from interfaces.policies.buffering import Bounded, OldestFirst, Straggler
from interfaces.policies.capacity import FixedPools
from interfaces.policies.dispatch import GroupAffinity
from interfaces.policies.presets.common import Groups, Staleness, StalenessOrInf, in_flight
from interfaces.policies.protocols import Buffering, Guarantees, Policy
from interfaces.policies.registry import register
from interfaces.policies.sync import EveryStep
from interfaces.view import LoopConfig


@register("sync")
@dataclass(frozen=True, slots=True)
class Sync:
    """Synchronous RL on separate pools: generate a batch, train on it, load the weights, repeat."""

    filter_zero_variance: bool = False

    def build(self, config: LoopConfig) -> Policy:
        """Staleness 0 by the gate; nothing is ever in flight when weights are loaded."""
        return Policy(
            name="sync",
            admission=CountGate(0),
            dispatch=GroupAffinity(),
            sync=EveryStep(InFlight.DRAIN),
            buffering=OldestFirst(self.filter_zero_variance),
            capacity=FixedPools(),
            guarantees=Guarantees(0, hard=True, single_version=True, no_drops=not self.filter_zero_variance),
            in_flight=in_flight(InFlight.DRAIN),
            min_outstanding_groups=config.batch_size,
        )


@register("sync_colocated")
@dataclass(frozen=True, slots=True)
class SyncColocated:
    """Synchronous RL with all GPUs generating, then all training (verl's hybrid engine)."""

    filter_zero_variance: bool = False

    def build(self, config: LoopConfig) -> Policy:
        """As `sync`, with one set of GPUs that changes its role twice a step."""
        return Policy(
            name="sync_colocated",
            admission=CountGate(0),
            dispatch=GroupAffinity(),
            sync=EveryStep(InFlight.DRAIN),
            buffering=OldestFirst(self.filter_zero_variance),
            capacity=FixedPools(colocated=True),
            guarantees=Guarantees(0, hard=True, single_version=True, no_drops=not self.filter_zero_variance),
            in_flight=in_flight(InFlight.DRAIN),
            min_outstanding_groups=config.batch_size,
        )


@register("one_step_off")
@dataclass(frozen=True, slots=True)
class OneStepOff:
    """The next batch is generated while this one trains; weights are loaded when it is finished."""

    filter_zero_variance: bool = False

    def build(self, config: LoopConfig) -> Policy:
        """Two batches outstanding, one generated at a time and drained before the load.

        The hard bound needs the trainer to wait for a straggler of the batch that is due.
        """
        return Policy(
            name="one_step_off",
            admission=All((CountGate(1), Concurrency(config.batch_size))),
            dispatch=GroupAffinity(),
            sync=EveryStep(InFlight.DRAIN),
            buffering=Bounded(1, Straggler.WAIT, self.filter_zero_variance),
            capacity=FixedPools(),
            guarantees=Guarantees(1, hard=True, single_version=True, no_drops=not self.filter_zero_variance),
            in_flight=in_flight(InFlight.DRAIN),
            min_outstanding_groups=config.batch_size,
        )


@register("areal")
@dataclass(frozen=True, slots=True)
class Areal:
    """AReaL (arXiv 2505.24298): count gate, interruptible generation, KV recomputed, oldest first.

    The bound is soft: eq. (3) bounds how many groups are outstanding, not the age of each.
    """

    max_staleness: StalenessOrInf = 4
    max_concurrent_groups: Groups | None = None
    """C; default: one batch."""
    interruptible: bool = True
    """False: a replica finishes its rollouts before it loads weights (the ablation of Fig. 6b)."""
    max_loading_replicas: Groups | None = None
    """Replicas that load new weights at the same time (a rolling update); None: all at once."""
    filter_zero_variance: bool = False

    def build(self, config: LoopConfig) -> Policy:
        """Gate and concurrency limit in front, the oldest full batch behind."""
        buffering = OldestFirst(self.filter_zero_variance)
        hard = self.max_staleness == 0
        no_drops = not self.filter_zero_variance
        guarantees = Guarantees(
            None if self.max_staleness == inf else self.max_staleness, hard=hard,
            single_version=not self.interruptible or hard, no_drops=no_drops,
        )  # fmt: skip
        return _areal("areal", self, buffering, guarantees, config)


@register("areal_strict")
@dataclass(frozen=True, slots=True)
class ArealStrict:
    """AReaL with the bound kept for every rollout, at the price that the straggler rule names."""

    max_staleness: Staleness = 4
    max_concurrent_groups: Groups | None = None
    interruptible: bool = True
    max_loading_replicas: Groups | None = None
    straggler: Literal["wait", "drop", "requeue", "mask"] = "wait"
    filter_zero_variance: bool = False

    def build(self, config: LoopConfig) -> Policy:
        """The gate of `areal` in front of a buffer that enforces the bound."""
        rule = Straggler(self.straggler)
        guarantees = Guarantees(
            self.max_staleness,
            hard=True,
            per_token=rule is Straggler.MASK,
            single_version=not self.interruptible or self.max_staleness == 0,
            no_drops=rule in (Straggler.WAIT, Straggler.MASK) and not self.filter_zero_variance,
        )
        buffering = Bounded(self.max_staleness, rule, self.filter_zero_variance)
        return _areal("areal_strict", self, buffering, guarantees, config)


def _areal(
    name: str, preset: Areal | ArealStrict, buffering: Buffering, guarantees: Guarantees, config: LoopConfig
) -> Policy:
    action = InFlight.KEEP_RECOMPUTE if preset.interruptible else InFlight.DRAIN
    concurrency = preset.max_concurrent_groups or config.batch_size
    return Policy(
        name=name,
        admission=All((CountGate(preset.max_staleness), Concurrency(concurrency))),
        dispatch=GroupAffinity(),
        sync=EveryStep(action, max_loading=preset.max_loading_replicas),
        buffering=buffering,
        capacity=FixedPools(),
        guarantees=guarantees,
        in_flight=in_flight(action),
        min_outstanding_groups=config.batch_size,
    )
