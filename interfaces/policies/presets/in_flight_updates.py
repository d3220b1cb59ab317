"""Generators that never stop, updated in flight with KV of old weights kept: PipelineRL, Magistral."""

from dataclasses import dataclass
from math import ceil

from interfaces.actions import InFlight
from interfaces.policies.admission import All, Concurrency, QueueRoom
from interfaces.policies.capacity import FixedPools
from interfaces.policies.dispatch import LeastLoaded
from interfaces.policies.order import FirstFinished
from interfaces.policies.presets.common import Groups, Positive, in_flight
from interfaces.policies.protocols import Admission, Guarantees, Policy
from interfaces.policies.registry import register
from interfaces.policies.streaming import Streaming
from interfaces.policies.sync import EveryStep
from interfaces.view import LoopConfig


@register("pipeline_rl")
@dataclass(frozen=True, slots=True)
class PipelineRl:
    """PipelineRL: new weights in flight after every optimizer step, micro-batches trained as they arrive.

    `max_lag` counts samples: those started may exceed those taken by so much. Without it only the
    concurrency (the generation batch H of the paper, kept full) limits the lag. No bound is promised for a
    rollout. Source: arXiv 2509.19128; ServiceNow/PipelineRL conf/base.yaml, conf/finetune/base.yaml.
    """

    max_lag: Positive | None = None
    """In samples (rollouts), at least a batch of them; None: no limit."""
    max_concurrent_groups: Groups | None = None
    """Groups in flight; default: two batches."""
    parts: Positive = 4
    """Micro-batches of a step that the trainer takes one by one."""

    def build(self, config: LoopConfig) -> Policy:
        """Concurrency (and lag) in front, streaming behind."""
        samples = config.batch_size * config.group_size
        limits: list[Admission] = [Concurrency(self.max_concurrent_groups or 2 * config.batch_size)]
        if self.max_lag is not None:
            limits.append(QueueRoom(max(self.max_lag / config.group_size, config.batch_size)))
        return Policy(
            name="pipeline_rl",
            admission=All(tuple(limits)),
            dispatch=LeastLoaded(),
            sync=EveryStep(InFlight.KEEP_STALE),
            buffering=Streaming(ceil(config.batch_size / self.parts)),
            capacity=FixedPools(),
            guarantees=Guarantees(None if self.max_lag is None else ceil(self.max_lag / samples)),
            in_flight=in_flight(InFlight.KEEP_STALE),
            min_outstanding_groups=config.batch_size,
        )


@register("magistral")
@dataclass(frozen=True, slots=True)
class Magistral:
    """Magistral: `n_async` sequences are always in flight, nothing waits; weights arrive in flight, KV stays.

    No rule bounds staleness, which is about n_async / batch while generation is the bottleneck and grows
    without end when training is. Source: arXiv 2506.10910 section on infrastructure.
    """

    n_async: Positive | None = None
    """Sequences (rollouts) in flight; default: two batches, the largest ratio the paper trains with."""

    def build(self, config: LoopConfig) -> Policy:
        """A concurrency, and the first that are finished."""
        sequences = self.n_async or 2 * config.batch_size * config.group_size
        return Policy(
            name="magistral",
            admission=Concurrency(max(1, sequences // config.group_size)),
            dispatch=LeastLoaded(),
            sync=EveryStep(InFlight.KEEP_STALE),
            buffering=FirstFinished(),
            capacity=FixedPools(),
            guarantees=Guarantees(),
            in_flight=in_flight(InFlight.KEEP_STALE),
            min_outstanding_groups=config.batch_size,
        )
