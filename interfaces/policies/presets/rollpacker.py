"""RollPacker: synchronous RL in short rounds, the long responses packed into rounds of their own."""

from dataclasses import dataclass
from math import ceil

from interfaces.actions import InFlight
from interfaces.policies.capacity import FixedPools
from interfaces.policies.dispatch import InRounds
from interfaces.policies.presets.common import Factor, in_flight
from interfaces.policies.protocols import Guarantees, Policy
from interfaces.policies.registry import register
from interfaces.policies.rounds import BatchAlone, ShortAndLongRounds
from interfaces.policies.sync import StopAtBatch
from interfaces.view import LoopConfig


@register("rollpacker")
@dataclass(frozen=True, slots=True)
class RollPacker:
    """RollPacker's tail batching: short rounds over-provision, long prompts get rounds of their own.

    A short round starts eta batches of new prompts, each with eta times the responses; the first batch of
    groups to finish trains. The other prompts are set aside, and when a batch of them waits it is generated
    from token 0 in a long round, all of it trained: with eta = 1.25 one long round after four short ones.
    On policy, staleness 0, and (unlike over-provisioning with abort) every prompt trains once. Within a long
    round the redundant responses are started too, an assumption. Not modelled: its reward scheduler and the
    trainer that streams on GPUs freed early. Source: arXiv 2509.21009.
    """

    eta: Factor = 1.25
    """Prompts started over prompts trained in a short round, and the same for the responses of a group."""
    colocate: bool = True
    """One set of GPUs generates and trains in turns; else the trainer's pool waits for each round."""

    def build(self, config: LoopConfig) -> Policy:
        """Rounds in front; behind, what a batch leaves over is discarded, and its prompt comes again."""
        return Policy(
            name="rollpacker",
            admission=ShortAndLongRounds(self.eta),
            dispatch=InRounds(),
            sync=StopAtBatch(InFlight.DRAIN, at_batch=InFlight.ABORT_RESUME),
            buffering=BatchAlone(),
            capacity=FixedPools(
                colocated=self.colocate, redundancy=ceil(self.eta * config.group_size) - config.group_size
            ),
            guarantees=Guarantees(0, hard=True, single_version=True, no_drops=False),
            in_flight=in_flight(InFlight.DRAIN, InFlight.ABORT_RESUME),
            min_outstanding_groups=config.batch_size,
        )
