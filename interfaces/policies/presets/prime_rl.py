"""prime-rl: a saturated pool of rollouts, in-flight updates, and a sweep of what became too old."""

from dataclasses import dataclass
from math import ceil, inf
from typing import Literal

from interfaces.actions import InFlight
from interfaces.policies.admission import All, Concurrency, ReadyRoom
from interfaces.policies.buffering import Bounded, Straggler
from interfaces.policies.capacity import FixedPools
from interfaces.policies.dispatch import GroupAffinity
from interfaces.policies.presets.common import Factor, Positive, Staleness, in_flight
from interfaces.policies.protocols import Admission, Guarantees, Policy
from interfaces.policies.registry import register
from interfaces.policies.rounds import AdaptiveConcurrency
from interfaces.policies.sync import EveryStep
from interfaces.view import LoopConfig

GROWTH, BACKOFF = 1.02, 0.75
"""Constants of its controller: 2 % up with each step, a quarter down at an overload."""


@register("prime_rl")
@dataclass(frozen=True, slots=True)
class PrimeRl:
    """prime-rl's orchestrator: groups in flight that exceed `max_off_policy_steps` are cancelled.

    Its off-policy level of a group is the number of updates since it started, which is staleness here. What
    waits shipped in front of the trainer ages too and is swept (prime-rl#3050), against the version the
    update starts from (prime-rl#1901): the bound is hard. KV of old weights is kept. The concurrency follows
    the KV cache: up 2 % a step, down a quarter when a replica preempts. Its estimate of the first limit (KV
    capacity over the cost of a rollout) is replaced by `oversampling_factor`, and the limit also rises while
    it does not bind. Source: PrimeIntellect-ai/prime-rl docs on asynchronous training, and
    orchestrator/concurrency.py@014aa9d.
    """

    max_off_policy_steps: Staleness = 8
    lead: Positive = 1
    """Finished batches that may wait for the trainer (`max_async_level`); then nothing new starts."""
    oversampling_factor: Factor = 2.0
    """Groups in flight over the batch size: for ever, or at first."""
    concurrency: Literal["adaptive", "fixed"] = "adaptive"
    max_inflight: Positive | None = None
    """Most rollouts in flight under the adaptive concurrency; None: the KV cache decides."""

    def build(self, config: LoopConfig) -> Policy:
        """A concurrency, stopped by the lead; too old is dropped wherever it is."""
        groups = ceil(self.oversampling_factor * config.batch_size)
        adaptive = self.concurrency == "adaptive"
        limit: Admission = Concurrency(groups)
        if adaptive:
            floor = config.batch_size * config.group_size
            most = inf if self.max_inflight is None else max(self.max_inflight, floor)
            limit = AdaptiveConcurrency(groups * config.group_size, most, GROWTH, BACKOFF, floor)
        return Policy(
            name="prime_rl",
            admission=All((limit, ReadyRoom(self.lead * config.batch_size))),
            dispatch=GroupAffinity(),
            sync=EveryStep(InFlight.KEEP_STALE),
            buffering=Bounded(self.max_off_policy_steps, Straggler.DROP),
            capacity=FixedPools(),
            guarantees=Guarantees(self.max_off_policy_steps, hard=True, no_drops=False),
            in_flight=in_flight(InFlight.KEEP_STALE),
            min_outstanding_groups=config.batch_size,
            reads_engine_load=adaptive,
        )
