"""Systems that bound how many groups are outstanding: SkyRL, tinker-cookbook, ROLL Flash, StaleFlow."""

from dataclasses import dataclass
from math import ceil
from typing import Literal

from interfaces.actions import InFlight
from interfaces.policies.admission import All, Concurrency, CountGate, NotYetTrained
from interfaces.policies.buffering import Bounded, OldestFirst, Straggler
from interfaces.policies.capacity import FixedPools
from interfaces.policies.dispatch import GroupAffinity, LeastLoaded
from interfaces.policies.order import FirstFinished
from interfaces.policies.presets.common import Count, Groups, Ratio, Staleness, in_flight
from interfaces.policies.protocols import Guarantees, Policy
from interfaces.policies.registry import register
from interfaces.policies.sync import EveryStep
from interfaces.view import LoopConfig


@register("skyrl_async")
@dataclass(frozen=True, slots=True)
class SkyRlAsync:
    """SkyRL's fully asynchronous trainer: capacity (S + g) B with g the step in progress, counted from 1.

    g = completed steps + 1, so S is AReaL's eta: before the first step (S + 1) B groups may start. Soft: what
    is older than S is trained and a warning logged. Source: SkyRL, trainer.fully_async.
    """

    max_staleness_steps: Staleness = 4
    num_parallel_generation_workers: Groups | None = None
    """Groups in flight, between B and (S + 1) B; default: (S + 1) B."""

    def build(self, config: LoopConfig) -> Policy:
        """Count gate and concurrency; a plain queue."""
        most = (self.max_staleness_steps + 1) * config.batch_size
        workers = min(self.num_parallel_generation_workers or most, most)
        hard = self.max_staleness_steps == 0
        return Policy(
            name="skyrl_async",
            admission=All((CountGate(self.max_staleness_steps), Concurrency(workers))),
            dispatch=GroupAffinity(),
            sync=EveryStep(InFlight.ABORT_RESUME),
            buffering=FirstFinished(),
            capacity=FixedPools(),
            guarantees=Guarantees(self.max_staleness_steps, hard=hard, single_version=hard),
            in_flight=in_flight(InFlight.ABORT_RESUME),
            min_outstanding_groups=config.batch_size,
        )


@register("tinker_async")
@dataclass(frozen=True, slots=True)
class TinkerAsync:
    """tinker-cookbook: (sampling_steps_ahead + 1) batches started and not yet trained; nothing is dropped.

    A slot is free again when its group has been *trained*, so a batch that trains still holds its slots: one
    batch less ahead than AReaL's gate of the same number while the trainer works. The knob bounds how far
    sampling runs ahead, not staleness: soft. Source: tinker-cookbook@8bf7dd6 rl.AsyncConfig. That KV is
    computed again after an in-flight update is an assumption.
    """

    sampling_steps_ahead: Staleness = 1
    in_flight_weight_updates: bool = True
    """False: a rollout finishes under the weights it began with; its replica takes no new work until then."""

    def build(self, config: LoopConfig) -> Policy:
        """Slots in front, the oldest weights first behind."""
        action = InFlight.KEEP_RECOMPUTE if self.in_flight_weight_updates else InFlight.DRAIN
        return Policy(
            name="tinker_async",
            admission=NotYetTrained((self.sampling_steps_ahead + 1) * config.batch_size),
            dispatch=GroupAffinity(),
            sync=EveryStep(action),
            buffering=OldestFirst(),
            capacity=FixedPools(),
            guarantees=Guarantees(
                self.sampling_steps_ahead, single_version=not self.in_flight_weight_updates
            ),
            in_flight=in_flight(action),
            min_outstanding_groups=config.batch_size,
        )


@register("roll_flash")
@dataclass(frozen=True, slots=True)
class RollFlash:
    """ROLL Flash: (1 + alpha) batches outstanding, each sample bounded, members scheduled one by one.

    A sample that began more than ceil(alpha) versions ago is aborted and its prompt generated again:
    alpha = 1 lets the previous version train, the one before is aborted (ROLL commit 01a96191). `redundancy`
    members more than the group needs are started, the first to finish count. Source: arXiv 2510.11345; ROLL's
    `async_generation_ratio`.
    """

    async_generation_ratio: Ratio = 2.0
    """alpha, in batches."""
    redundancy: Count = 0
    """Rollouts of a group beyond its size."""
    on_update: Literal["resume", "keep"] = "resume"

    def build(self, config: LoopConfig) -> Policy:
        """Fractional gate, hard bound."""
        bound = ceil(self.async_generation_ratio)
        action = InFlight.ABORT_RESUME if self.on_update == "resume" else InFlight.KEEP_RECOMPUTE
        return Policy(
            name="roll_flash",
            admission=CountGate(self.async_generation_ratio),
            dispatch=LeastLoaded(),
            sync=EveryStep(action),
            buffering=Bounded(bound, Straggler.REQUEUE),
            capacity=FixedPools(redundancy=self.redundancy),
            guarantees=Guarantees(bound, hard=True, single_version=bound == 0, no_drops=False),
            in_flight=in_flight(action),
            min_outstanding_groups=config.batch_size,
        )


@register("staleflow")
@dataclass(frozen=True, slots=True)
class StaleFlow:
    """StaleFlow: a group reserves a place in a batch that may still train it, and the trainer waits for it.

    Reserve and occupy is a count gate and a trainer that waits for the groups that are due: a hard bound
    without drops. Not modelled: the migration of rollouts between replicas. Source: arXiv 2601.12784.
    """

    eta: Staleness = 1
    """In versions."""

    def build(self, config: LoopConfig) -> Policy:
        """Gate and straggler rule of the same bound."""
        return Policy(
            name="staleflow",
            admission=CountGate(self.eta),
            dispatch=GroupAffinity(),
            sync=EveryStep(InFlight.ABORT_RESUME),
            buffering=Bounded(self.eta, Straggler.WAIT),
            capacity=FixedPools(),
            guarantees=Guarantees(self.eta, hard=True, single_version=self.eta == 0),
            in_flight=in_flight(InFlight.ABORT_RESUME),
            min_outstanding_groups=config.batch_size,
        )
