"""What a plan is asked for, and what it says."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from areal_sim.plan.objective import Objective
from areal_sim.plan.search import Effort, Found, Point, Report
from areal_sim.plan.uncertainty import Interval
from interfaces.scenario import Resolved

Run = Callable[[Sequence[Resolved]], list[Report | None]]
"""Simulates all; None for what did not run."""


class Request(NamedTuple):
    """What is asked."""

    gpus: int
    policies: tuple[str, ...]
    max_staleness: float
    objective: Objective
    effort: Effort
    samples: int
    """Draws of efficiencies and seeds for each plan's interval."""


class Margin(NamedTuple):
    """What the smallest possible addition to one pool brings."""

    gpus: int
    gain: float | None
    """Of throughput, as a share, in closed form; None: it does not fit."""


class Plan(NamedTuple):
    """One of the best configurations."""

    point: Point
    samples: tuple[float, ...]
    """Throughput in every draw; 0 where it did not run."""
    throughput: Interval
    against_best: Interval
    """Ratio of its throughput to that of the best plan, draw by draw."""
    more_rollout: Margin
    more_trainer: Margin


class Result(NamedTuple):
    """What a search for plans found."""

    plans: tuple[Plan, ...]
    found: Found
    configurations: int
    synchronous: Point | None
    """The fastest synchronous configuration on as many GPUs."""
    own: Point | None
    """The scenario's own configuration on as many GPUs."""
    step_tokens: float
    """Trained tokens of a step, on average."""
