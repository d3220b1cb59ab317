"""prime-rl: a saturated pool of rollouts, in-flight updates, and a sweep of what became too old."""

from dataclasses import dataclass
from math import ceil

from interfaces.actions import InFlight
from interfaces.policies.admission import All, Concurrency, ReadyRoom
from interfaces.policies.buffering import Bounded, Straggler
from interfaces.policies.capacity import FixedPools
from interfaces.policies.dispatch import GroupAffinity
from interfaces.policies.presets.common import Factor, Positive, Staleness, in_flight
from interfaces.policies.protocols import Guarantees, Policy
from interfaces.policies.registry import register
from interfaces.policies.sync import EveryStep
from interfaces.view import LoopConfig


@register("prime_rl")
@dataclass(frozen=True, slots=True)
class PrimeRl:
    """prime-rl's orchestrator: groups in flight that exceed `max_off_policy_steps` are cancelled.

    Its off-policy level of a group is the number of updates since it started, which is staleness here. What
    waits shipped in front of the trainer ages too and is swept (prime-rl#3050), against the version the
    update starts from (prime-rl#1901): the bound is hard. KV of old weights is kept. Not modelled: the
    concurrency that adapts to the use of the KV cache. Source: PrimeIntellect-ai/prime-rl docs on
    asynchronous training and its scheduler's options.
    """

    max_off_policy_steps: Staleness = 8
    lead: Positive = 1
    """Finished batches that may wait for the trainer (`max_async_level`); then nothing new starts."""
    oversampling_factor: Factor = 2.0
    """Groups in flight over the batch size."""

    def build(self, config: LoopConfig) -> Policy:
        """A fixed concurrency, stopped by the lead; too old is dropped wherever it is."""
        in_flight_groups = ceil(self.oversampling_factor * config.batch_size)
        return Policy(
            name="prime_rl",
            admission=All((Concurrency(in_flight_groups), ReadyRoom(self.lead * config.batch_size))),
            dispatch=GroupAffinity(),
            sync=EveryStep(InFlight.KEEP_STALE),
            buffering=Bounded(self.max_off_policy_steps, Straggler.DROP),
            capacity=FixedPools(),
            guarantees=Guarantees(self.max_off_policy_steps, hard=True, no_drops=False),
            in_flight=in_flight(InFlight.KEEP_STALE),
            min_outstanding_groups=config.batch_size,
        )
