"""How far a prediction may be off: the same draws of efficiencies and seeds for every plan.

Each efficiency is uniform over the range that its source gives, stratified over the draws (Latin hypercube).
Plans are compared draw by draw, so that what is common to both does not blur the difference.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from interfaces.scenario import Resolved


class Draw(NamedTuple):
    """One state of the world."""

    efficiencies: tuple[tuple[str, float], ...]
    seed: int

    def apply(self, resolved: Resolved) -> Resolved:
        """The scenario in this world."""
        shares = resolved.hardware.efficiencies.model_copy(update=dict(self.efficiencies))
        run = resolved.scenario.run.model_copy(update={"seed": self.seed})
        return resolved.model_copy(
            update={
                "hardware": resolved.hardware.model_copy(update={"efficiencies": shares}),
                "scenario": resolved.scenario.model_copy(update={"run": run}),
            }
        )


class Interval(NamedTuple):
    """Least and largest of all draws."""

    low: float
    high: float


def draws(base: Resolved, number: int, seed: int) -> list[Draw]:
    """So many draws; the same for the same seed."""
    rng = np.random.default_rng(seed)
    columns = []
    for name, (low, high) in base.hardware.efficiencies.given_ranges().items():
        places = (rng.permutation(number) + rng.random(number)) / max(1, number)
        columns.append([(name, float(low + (high - low) * place)) for place in places])
    first = base.scenario.run.seed + 1
    return [Draw(tuple(column[index] for column in columns), first + index) for index in range(number)]


def interval(values: Sequence[float]) -> Interval:
    """Of what was predicted in all draws."""
    return Interval(min(values), max(values))


def against(values: Sequence[float], others: Sequence[float]) -> Interval:
    """Ratio of one plan to another, draw by draw."""
    return interval([value / other for value, other in zip(values, others, strict=True)])


def same(ratio: Interval) -> bool:
    """Whether draws disagree on which of two plans is faster: then they cannot be told apart."""
    return ratio.low <= 1.0 <= ratio.high
