"""Kimi k1.5: a token budget for every rollout and iteration."""

from dataclasses import dataclass

from interfaces.actions import InFlight
from interfaces.policies.admission import BatchEachStep
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

    One set of GPUs takes turns. Each iteration starts a batch of new prompts; what is unfinished goes on in
    the next one under the new weights. Of a rollout only the tokens of the iteration in which it ended are
    trained. A member that ended before the others of its group waits for them, so even those tokens may be
    some versions old, and no bound is named. A step trains what is finished, a batch at most and often
    less; while nothing is, rollouts get another budget. Source: arXiv
    2501.12599, section on partial rollouts.
    """

    token_budget: Positive = 4096
    """New tokens of a rollout in one iteration."""

    def build(self, config: LoopConfig) -> Policy:
        """A batch of new prompts each step, cut by the budget."""
        return Policy(
            name="kimi_partial",
            admission=BatchEachStep(),
            dispatch=TokenBudget(tokens_per_iteration=self.token_budget),
            sync=EveryStep(InFlight.DRAIN),
            buffering=WhatIsFinished(),
            capacity=FixedPools(colocated=True),
            guarantees=Guarantees(full_batches=False, last_segment=True),
            in_flight=in_flight(InFlight.DRAIN),
            min_outstanding_groups=config.batch_size,
        )
