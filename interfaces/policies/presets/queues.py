"""Libraries with a bounded queue between generator and trainer: TRL, OpenRLHF."""

from dataclasses import dataclass

from interfaces.actions import InFlight
from interfaces.policies.admission import All, BatchBarrier, Concurrency, ReadyRoom
from interfaces.policies.buffering import OldestFirst
from interfaces.policies.capacity import FixedPools
from interfaces.policies.dispatch import GroupAffinity
from interfaces.policies.order import FirstFinished
from interfaces.policies.presets.common import Positive, Staleness, in_flight, versions_of_syncs
from interfaces.policies.protocols import Guarantees, Policy
from interfaces.policies.registry import register
from interfaces.policies.sync import EveryStep
from interfaces.view import LoopConfig


@register("trl_async")
@dataclass(frozen=True, slots=True)
class TrlAsync:
    """TRL's AsyncGRPOTrainer: a worker streams into a queue, the trainer drops what is stale when it uses it.

    `max_staleness` counts weight updates; with one every k steps that is (max_staleness + 1) k - 1 versions.
    Nothing is cancelled in flight: its tokens are lost only at the end. That the server keeps its KV is an
    assumption. Source: huggingface/trl@00c802b docs/source/async_grpo_trainer.md.
    """

    max_staleness: Staleness = 4
    """In weight updates."""
    weight_sync_steps: Positive = 1
    max_inflight_tasks: Positive | None = None
    """In samples (rollouts); default, as there: `max_staleness` batches, at least one."""
    queue_maxsize: Positive = 1024
    """In samples, at least a batch of them; the worker waits when they are reached."""

    def build(self, config: LoopConfig) -> Policy:
        """Concurrency in front, a queue with a sweep behind."""
        size, group = config.batch_size, config.group_size
        tasks = self.max_inflight_tasks or max(1, self.max_staleness) * size * group
        room = max(size, self.queue_maxsize // group)
        bound = versions_of_syncs(self.max_staleness, self.weight_sync_steps)
        return Policy(
            name="trl_async",
            admission=All((Concurrency(max(1, tasks // group)), ReadyRoom(room))),
            dispatch=GroupAffinity(),
            sync=EveryStep(InFlight.KEEP_STALE, self.weight_sync_steps),
            buffering=FirstFinished(bound),
            capacity=FixedPools(),
            guarantees=Guarantees(bound, hard=True, no_drops=False),
            in_flight=in_flight(InFlight.KEEP_STALE),
            min_outstanding_groups=config.batch_size,
        )


@register("openrlhf_async")
@dataclass(frozen=True, slots=True)
class OpenRlhfAsync:
    """OpenRLHF's asynchronous mode: whole batches through a queue; generating and syncing exclude each other.

    A batch starts under the newest weights while at most `async_queue_size` others are ready, so it trains
    at most that many + 1 versions later: hard. Source: OpenRLHF's asynchronous training options.
    """

    async_queue_size: Positive = 1
    """In batches."""

    def build(self, config: LoopConfig) -> Policy:
        """A barrier in front, a bounded queue behind."""
        room = self.async_queue_size * config.batch_size + 1
        return Policy(
            name="openrlhf_async",
            admission=All((BatchBarrier(), ReadyRoom(room))),
            dispatch=GroupAffinity(),
            sync=EveryStep(InFlight.DRAIN),
            buffering=OldestFirst(),
            capacity=FixedPools(),
            guarantees=Guarantees(self.async_queue_size + 1, hard=True, single_version=True),
            in_flight=in_flight(InFlight.DRAIN),
            min_outstanding_groups=config.batch_size,
        )
