"""Seer: synchronous RL whose rollouts are cut into chunks that move between replicas with their KV cache."""

from dataclasses import dataclass

from interfaces.actions import InFlight
from interfaces.policies.admission import CountGate
from interfaces.policies.buffering import OldestFirst
from interfaces.policies.capacity import FixedPools
from interfaces.policies.dispatch import Chunks
from interfaces.policies.presets.common import Positive, in_flight
from interfaces.policies.protocols import Guarantees, Policy
from interfaces.policies.registry import register
from interfaces.policies.sync import EveryStep
from interfaces.view import LoopConfig


@register("seer")
@dataclass(frozen=True, slots=True)
class Seer:
    """Seer: divided rollout, longest first, no recomputation when a chunk moves. On policy.

    A rollout comes back after `chunk_tokens` and goes on wherever least is running; its KV follows it
    through a pool that all replicas share, here at no cost. Among those that wait the longest goes first: its
    own tokens so far, or the longest finished member of its group (members of a group are alike in length).
    A replica takes no more than `max_running_per_replica`; without that limit nothing ever waits in front of
    the replicas, and only the balancing is left. Not modelled: grouped speculative decoding, and the first
    member of each group that is run ahead of the others to learn its length. Source: arXiv 2511.14617.
    """

    chunk_tokens: Positive = 2048
    """New tokens of a rollout in one chunk."""
    max_running_per_replica: Positive | None = None
    """Rollouts; None: the engine queues."""

    def build(self, config: LoopConfig) -> Policy:
        """`verl_sync` with another dispatch."""
        return Policy(
            name="seer",
            admission=CountGate(0),
            dispatch=Chunks(self.max_running_per_replica, chunk_tokens=self.chunk_tokens),
            sync=EveryStep(InFlight.DRAIN),
            buffering=OldestFirst(),
            capacity=FixedPools(colocated=True),
            guarantees=Guarantees(0, hard=True, single_version=True),
            in_flight=in_flight(InFlight.DRAIN),
            min_outstanding_groups=config.batch_size,
            moves_keep_kv=True,
        )
