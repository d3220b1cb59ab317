"""slime and APRIL: rounds that start more groups than they need and stop when a batch is finished."""

from dataclasses import dataclass
from math import ceil

from interfaces.actions import InFlight
from interfaces.policies.admission import Concurrency, Round
from interfaces.policies.buffering import Bounded, OldestFirst, Straggler
from interfaces.policies.capacity import FixedPools
from interfaces.policies.dispatch import GroupAffinity, InRounds
from interfaces.policies.order import FirstFinished
from interfaces.policies.presets.common import Factor, Groups, Positive, in_flight
from interfaces.policies.protocols import Buffering, Guarantees, Policy
from interfaces.policies.registry import register
from interfaces.policies.sync import EveryStep, StopAtBatch
from interfaces.view import LoopConfig


@register("slime_partial")
@dataclass(frozen=True, slots=True)
class SlimePartial:
    """slime with over-sampling: `over_sampling_batch_size` groups start, the first `batch_size` train.

    With `partial_rollout` the rest is kept and goes first in the next round; it has no age limit, so the
    staleness of a long rollout is the number of rounds it took. Without, the rest is thrown away: on policy,
    and biased towards short responses. Source: slime's synchronous rollout and partial-rollout options as
    described in RLsys-Foundation/APRIL@a72b585 README.
    """

    over_sampling_batch_size: Groups | None = None
    """Groups of a round; default: twice the batch."""
    partial_rollout: bool = True
    colocate: bool = True
    """One set of GPUs generates and trains in turns; else the trainer's pool waits for each round."""

    def build(self, config: LoopConfig) -> Policy:
        """Rounds of so many groups."""
        groups = self.over_sampling_batch_size or 2 * config.batch_size
        return _rounds("slime_partial", groups, self.partial_rollout, self.colocate, config)


@register("slime_fully_async")
@dataclass(frozen=True, slots=True)
class SlimeFullyAsync:
    """slime's fully asynchronous example: a worker keeps a batch of groups in flight while training goes on.

    The trainer takes the first batch that is finished. Staleness is neither bounded nor counted: what a long
    rollout comes to is the number of steps it took. Work in flight is aborted at an update and resumed, an
    assumption. Source: THUDM/slime, examples/fully_async.
    """

    update_weights_interval: Positive = 1
    """In training steps."""

    def build(self, config: LoopConfig) -> Policy:
        """A concurrency of one batch, and the first that are finished."""
        return Policy(
            name="slime_fully_async",
            admission=Concurrency(config.batch_size),
            dispatch=GroupAffinity(),
            sync=EveryStep(InFlight.ABORT_RESUME, self.update_weights_interval),
            buffering=FirstFinished(),
            capacity=FixedPools(),
            guarantees=Guarantees(),
            in_flight=in_flight(InFlight.ABORT_RESUME),
            min_outstanding_groups=config.batch_size,
        )


@register("april")
@dataclass(frozen=True, slots=True)
class April:
    """APRIL: rounds of `alpha` batches, stopped at one batch; what is unfinished is resumed first.

    Source: RLsys-Foundation/APRIL@a72b585 README (over-sampling of 1.5 to 2).
    """

    alpha: Factor = 2.0
    """Groups started over groups trained, per round."""
    colocate: bool = True

    def build(self, config: LoopConfig) -> Policy:
        """As `slime_partial`, with the round as a multiple of the batch."""
        return _rounds("april", ceil(self.alpha * config.batch_size), True, self.colocate, config)


def _rounds(name: str, groups: int, resume: bool, colocate: bool, config: LoopConfig) -> Policy:
    after = InFlight.ABORT_RESUME if resume else InFlight.ABORT_DROP
    buffering: Buffering = OldestFirst() if resume else Bounded(0, Straggler.DROP)
    return Policy(
        name=name,
        admission=Round(max(groups, config.batch_size)),
        dispatch=InRounds(),
        sync=StopAtBatch(InFlight.DRAIN, at_batch=after),
        buffering=buffering,
        capacity=FixedPools(colocated=colocate),
        guarantees=(
            Guarantees() if resume else Guarantees(0, hard=True, single_version=True, no_drops=False)
        ),
        in_flight=in_flight(InFlight.DRAIN, after),
        min_outstanding_groups=config.batch_size,
    )
