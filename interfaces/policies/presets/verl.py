"""verl: hybrid engine, one step off, fully asynchronous, and the separate mode of its V1 trainer."""

from dataclasses import dataclass
from math import ceil
from typing import Literal

from interfaces.actions import InFlight
from interfaces.policies.admission import All, AllServing, BatchBarrier, CountGate
from interfaces.policies.buffering import Bounded, OldestFirst, Straggler
from interfaces.policies.capacity import FixedPools
from interfaces.policies.dispatch import GroupAffinity
from interfaces.policies.presets.common import Positive, StalenessOrInf, in_flight
from interfaces.policies.protocols import Guarantees, Policy
from interfaces.policies.registry import register
from interfaces.policies.streaming import Streaming
from interfaces.policies.sync import EveryStep
from interfaces.view import LoopConfig


@register("verl_sync")
@dataclass(frozen=True, slots=True)
class VerlSync:
    """verl's hybrid engine: all GPUs generate a batch, then all train on it. On policy.

    Source: verl-project/verl@1dda039b, the synchronous rows of docs/advance/fully_async.md.
    """

    def build(self, config: LoopConfig) -> Policy:
        """One batch outstanding, drained; the GPUs change their role twice a step."""
        return Policy(
            name="verl_sync",
            admission=CountGate(0),
            dispatch=GroupAffinity(),
            sync=EveryStep(InFlight.DRAIN),
            buffering=OldestFirst(),
            capacity=FixedPools(colocated=True),
            guarantees=Guarantees(0, hard=True, single_version=True),
            in_flight=in_flight(InFlight.DRAIN),
            min_outstanding_groups=config.batch_size,
        )


@register("verl_one_step_off")
@dataclass(frozen=True, slots=True)
class VerlOneStepOff:
    """verl's one_step_off_policy recipe: weights are synced, the next batch starts, the last one trains.

    Unlike `one_step_off` a batch starts as a whole: GPUs that finish early wait for its slowest rollout.
    Staleness is exactly 1 from the second step on. Source: as `verl_sync`, and its recipe of that name.
    """

    def build(self, config: LoopConfig) -> Policy:
        """Batch by batch, at most one ahead of the trainer."""
        return Policy(
            name="verl_one_step_off",
            admission=All((BatchBarrier(), CountGate(1))),
            dispatch=GroupAffinity(),
            sync=EveryStep(InFlight.DRAIN),
            buffering=OldestFirst(),
            capacity=FixedPools(),
            guarantees=Guarantees(1, hard=True, single_version=True),
            in_flight=in_flight(InFlight.DRAIN),
            min_outstanding_groups=config.batch_size,
        )


@register("verl_fully_async")
@dataclass(frozen=True, slots=True)
class VerlFullyAsync:
    """verl's fully_async_policy: a credit of (1 + s) N - carried over for each period between two syncs.

    N samples (groups here) are trained between syncs: `ppo_mini_batch_size * require_batches *
    trigger_parameter_sync_step`. That is one step of this project, `workload.batch_size`, and a version is a
    sync; verl's `trainer.global_steps` counts the parts. Carried over is what is unfinished or queued when a
    sync happens, each sample once (verl#7938). Source: as `verl_sync`.
    """

    staleness_threshold: StalenessOrInf = 0.5
    """s, a share of N, not versions: 0.5 lets half a period of samples be generated ahead."""
    require_batches: Positive = 4
    """Mini-batches that the trainer fetches at once."""
    trigger_parameter_sync_step: Positive = 4
    """Fetches between two syncs."""
    partial_rollout: bool = True
    """Interrupt and resume at a sync; else the sync waits for all that runs, and the bound is hard."""

    def build(self, config: LoopConfig) -> Policy:
        """The credit is a count gate of a fractional eta: N (s + 1 + served - started) - untaken."""
        minibatch = max(1, config.batch_size // (self.require_batches * self.trigger_parameter_sync_step))
        gate = CountGate(self.staleness_threshold)
        partial = self.partial_rollout
        action = InFlight.ABORT_RESUME if partial else InFlight.DRAIN
        bound = ceil(self.staleness_threshold) if self.staleness_threshold < config.steps else None
        hard = (not partial or bound == 0) and bound is not None
        return Policy(
            name="verl_fully_async",
            admission=gate if partial else All((gate, AllServing())),
            dispatch=GroupAffinity(),
            sync=EveryStep(action),
            buffering=Streaming(minibatch * self.require_batches),
            capacity=FixedPools(),
            guarantees=Guarantees(bound, hard=hard, single_version=not partial or bound == 0),
            in_flight=in_flight(action),
            min_outstanding_groups=config.batch_size,
        )


@register("verl_v1_separate")
@dataclass(frozen=True, slots=True)
class VerlV1Separate:
    """The separate mode of verl's V1 trainer: a sample's span is bounded, stale ones are dropped or awaited.

    Its span is `step - gen_step + 1`: `max_span = 1` is on policy and staleness is `max_span - 1`. The
    convention is the one its documentation states; how V1 treats work in flight is an assumption (resumed).
    """

    max_span: Positive = 2
    """In steps, 1-based: lag + 1."""
    on_stale: Literal["drop", "wait"] = "wait"

    def build(self, config: LoopConfig) -> Policy:
        """Gate and hard bound of `max_span - 1` versions."""
        staleness = self.max_span - 1
        rule = Straggler(self.on_stale)
        return Policy(
            name="verl_v1_separate",
            admission=CountGate(staleness),
            dispatch=GroupAffinity(),
            sync=EveryStep(InFlight.ABORT_RESUME),
            buffering=Bounded(staleness, rule),
            capacity=FixedPools(),
            guarantees=Guarantees(
                staleness, hard=True, single_version=staleness == 0, no_drops=rule is Straggler.WAIT
            ),
            in_flight=in_flight(InFlight.ABORT_RESUME),
            min_outstanding_groups=config.batch_size,
        )
