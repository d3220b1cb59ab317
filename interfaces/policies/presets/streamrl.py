"""StreamRL: the trainer starts on the first groups of a batch while the last are still generated."""

from dataclasses import dataclass
from math import ceil
from typing import Literal

from interfaces.actions import InFlight
from interfaces.policies.admission import All, BatchBarrier, CountGate
from interfaces.policies.capacity import FixedPools
from interfaces.policies.dispatch import GroupAffinity, LengthPools
from interfaces.policies.presets.common import Positive, ShareOrNone, in_flight
from interfaces.policies.protocols import Guarantees, Policy
from interfaces.policies.registry import register
from interfaces.policies.streaming import Streaming
from interfaces.policies.sync import EveryStep
from interfaces.view import LoopConfig


@register("streamrl")
@dataclass(frozen=True, slots=True)
class StreamRl:
    """StreamRL's two schedules: synchronous with streamed samples, and one step off.

    Its ranker predicts long prompts and gives them replicas of their own. A policy here sees no length before
    the end, so `long_pool` moves a rollout there when it has shown to be long, and its KV is computed again.
    Source: arXiv 2504.15930.
    """

    mode: Literal["sync", "one_step_off"] = "one_step_off"
    parts: Positive = 4
    """Micro-batches of a step that the trainer takes one by one."""

    long_pool: ShareOrNone = None
    """Share of the replicas that only long rollouts use; None: none."""
    long_tokens: Positive = 4096
    """Response tokens from which a rollout is long."""

    def build(self, config: LoopConfig) -> Policy:
        """`sync` or `verl_one_step_off` with a streaming trainer."""
        ahead = 0 if self.mode == "sync" else 1
        pools = None if self.long_pool is None else LengthPools(None, self.long_pool, self.long_tokens)
        return Policy(
            name="streamrl",
            admission=All((BatchBarrier(), CountGate(ahead))),
            dispatch=pools or GroupAffinity(),
            sync=EveryStep(InFlight.DRAIN),
            buffering=Streaming(ceil(config.batch_size / self.parts)),
            capacity=FixedPools(),
            guarantees=Guarantees(ahead, hard=True, single_version=True),
            in_flight=in_flight(InFlight.DRAIN),
            min_outstanding_groups=config.batch_size,
        )
