"""Systems with a rule for the order of training: NeMo-RL, MiniMax Forge, xtuner."""

from dataclasses import dataclass
from typing import Literal

from interfaces.actions import InFlight
from interfaces.policies.admission import All, Concurrency, CountGate, QueueRoom
from interfaces.policies.buffering import OldestFirst, Straggler
from interfaces.policies.capacity import FixedPools
from interfaces.policies.dispatch import GroupAffinity
from interfaces.policies.masking import BoundedAndMasked
from interfaces.policies.order import FirstFinished, Window
from interfaces.policies.presets.common import (
    Factor,
    Groups,
    Positive,
    Staleness,
    in_flight,
    versions_of_syncs,
)
from interfaces.policies.protocols import Buffering, Guarantees, Policy
from interfaces.policies.registry import register
from interfaces.policies.rounds import TailBatch
from interfaces.policies.sync import EveryStep
from interfaces.view import LoopConfig


@register("nemo_rl")
@dataclass(frozen=True, slots=True)
class NemoRl:
    """NeMo-RL's asynchronous GRPO: a trajectory is made for a step and may be `max_trajectory_age_steps` old.

    `in_order`: step k trains exactly the groups made for it and waits for stragglers: hard. `windowed`: as
    far as `window` groups may overtake: hard, later. `weight_fifo`: the oldest weights first, and
    `ready_first`: whatever is finished: both soft. The age is staleness. Source: NeMo-RL 0.7 guide
    async-grpo; NeMo-RL#3238 for the orders.
    """

    order: Literal["in_order", "windowed", "weight_fifo", "ready_first"] = "in_order"
    max_trajectory_age_steps: Staleness = 1
    """The lookahead, in training steps."""
    window: Groups | None = None
    """Read by `windowed` only; default: two batches."""
    in_flight_weight_updates: bool = False
    """False: replicas finish their rollouts before they load."""
    recompute_kv_cache_after_weight_updates: bool = False

    def build(self, config: LoopConfig) -> Policy:
        """Count gate in front, the order behind."""
        age, size = self.max_trajectory_age_steps, config.batch_size
        width = max(size, self.window or 2 * size) if self.order == "windowed" else size
        strict = self.order in ("in_order", "windowed")
        bound = age if width == size else age + 1 + (width - 2) // size
        recompute = self.recompute_kv_cache_after_weight_updates
        keep = InFlight.KEEP_RECOMPUTE if recompute else InFlight.KEEP_STALE
        action = keep if self.in_flight_weight_updates else InFlight.DRAIN
        others: dict[str, Buffering] = {"weight_fifo": OldestFirst(), "ready_first": FirstFinished()}
        return Policy(
            name="nemo_rl",
            admission=CountGate(age),
            dispatch=GroupAffinity(),
            sync=EveryStep(action),
            buffering=others.get(self.order, Window(width)),
            capacity=FixedPools(),
            guarantees=Guarantees(bound, hard=strict, single_version=not self.in_flight_weight_updates),
            in_flight=in_flight(action),
            min_outstanding_groups=size,
        )


@register("forge_window")
@dataclass(frozen=True, slots=True)
class ForgeWindow:
    """MiniMax Forge: first in, first out, but for a window at the head of the generation queue.

    Between strict order (a straggler stops everything) and first finished first (easy rollouts crowd out the
    hard). The window limits by how many later groups one may be overtaken, not a number of versions: soft.
    Source: minimax.io, "Forge: scalable agent RL framework and algorithm", 2026-02-13.
    """

    queue_batches: Factor = 3.0
    """Length of the generation queue, in batches: groups admitted and not yet taken."""
    window: Groups | None = None
    """In groups, at least a batch; default: a third of the queue, or the batch if that is more."""

    def build(self, config: LoopConfig) -> Policy:
        """A bounded queue in front, the window behind."""
        size = config.batch_size
        queue = int(self.queue_batches * size)
        return Policy(
            name="forge_window",
            admission=QueueRoom(queue),
            dispatch=GroupAffinity(),
            sync=EveryStep(InFlight.KEEP_RECOMPUTE),
            buffering=Window(max(size, self.window or queue // 3)),
            capacity=FixedPools(),
            guarantees=Guarantees(),
            in_flight=in_flight(InFlight.KEEP_RECOMPUTE),
            min_outstanding_groups=size,
        )


@register("xtuner")
@dataclass(frozen=True, slots=True)
class Xtuner:
    """xtuner's asynchronous producer: too old samples are generated again, too old tokens masked.

    Both knobs count weight syncs: with one every k steps a sample may train while it is younger than
    (max_staleness + 1) k steps, and a token counts in the loss while it is younger than
    (max_token_staleness + 1) k. So 0 is on policy only for k = 1. Expired samples wait until they fill a
    batch of their own, the tail batch, and then go first. Source: InternLM/xtuner, tests of its producers.
    """

    max_staleness: Staleness = 1
    max_token_staleness: Staleness | None = None
    """None: all tokens count."""
    sync_weights_interval: Positive = 1
    """In training steps."""
    tail_batch_trigger_size: Groups | None = None
    """Expired groups that start a tail batch; default: one batch."""
    max_concurrent_groups: Groups | None = None
    """Default: two batches."""

    def build(self, config: LoopConfig) -> Policy:
        """A gate as wide as the bound, requeue and mask behind."""
        interval = self.sync_weights_interval
        bound = versions_of_syncs(self.max_staleness, interval)
        masks = self.max_token_staleness
        groups = self.max_concurrent_groups or 2 * config.batch_size
        trigger = self.tail_batch_trigger_size or config.batch_size
        mask = None if masks is None else versions_of_syncs(masks, interval)
        return Policy(
            name="xtuner",
            admission=TailBatch(All((CountGate(bound), Concurrency(groups))), trigger),
            dispatch=GroupAffinity(),
            sync=EveryStep(InFlight.ABORT_RESUME, interval),
            buffering=BoundedAndMasked(bound, Straggler.REQUEUE, mask_staleness=mask),
            capacity=FixedPools(),
            guarantees=Guarantees(bound, hard=True, single_version=bound == 0, no_drops=False),
            in_flight=in_flight(InFlight.ABORT_RESUME),
            min_outstanding_groups=config.batch_size,
        )
