"""Kimi k1.5: a token budget for every rollout and iteration."""

from dataclasses import dataclass

from interfaces.actions import InFlight
from interfaces.policies.admission import QueueRoom
from interfaces.policies.capacity import FixedPools
from interfaces.policies.dispatch import TokenBudget
from interfaces.policies.presets.common import Positive, in_flight
from interfaces.policies.protocols import Guarantees, Policy
from interfaces.policies.registry import register
from interfaces.policies.streaming import WhatIsFinished
from interfaces.policies.sync import EveryStep
from interfaces.view import LoopConfig


@register("kimi_partial")
@dataclass(frozen=True, slots=True)
class KimiPartial:
    """Kimi k1.5's partial rollouts: an iteration ends when every rollout is finished or has had its budget.

    One set of GPUs takes turns. What is unfinished goes on in the next iteration under the new weights; only
    the tokens of the iteration in which a rollout ends are trained, so every counted token is on policy: hard
    per token. A step trains what is finished, which may be less than a batch; while nothing is, rollouts
    get another budget. Source: arXiv 2501.12599, section on partial rollouts.
    """

    token_budget: Positive = 4096
    """New tokens of a rollout in one iteration."""

    def build(self, config: LoopConfig) -> Policy:
        """One batch outstanding, cut by the budget."""
        return Policy(
            name="kimi_partial",
            admission=QueueRoom(config.batch_size),
            dispatch=TokenBudget(tokens_per_iteration=self.token_budget),
            sync=EveryStep(InFlight.DRAIN),
            buffering=WhatIsFinished(),
            capacity=FixedPools(colocated=True),
            guarantees=Guarantees(0, hard=True, per_token=True, full_batches=False),
            in_flight=in_flight(InFlight.DRAIN),
            min_outstanding_groups=config.batch_size,
        )
