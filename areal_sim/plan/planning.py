"""From a scenario and a number of GPUs to the best few plans, each with its interval, limit and margin."""

from collections.abc import Callable, Sequence
from math import inf

from areal_sim.plan.close_look import CloseLook
from areal_sim.plan.estimate import Estimate, Estimator
from areal_sim.plan.fidelity import settled
from areal_sim.plan.objective import totals
from areal_sim.plan.result import Request, Result, Run
from areal_sim.plan.search import Point, Report, rank, search
from areal_sim.plan.space import Choice, schedules, space
from interfaces.errors import TestbedError
from interfaces.scenario import Resolved


class PlanError(TestbedError):
    """There is nothing to plan."""

    exit_code = 9


def make_plan(
    base: Resolved, request: Request, run: Run, estimated: Callable[[int], None] = lambda _: None
) -> Result:
    """Search, then look closely at the best. `estimated` is told how many configurations were, as they are.

    Raises:
        PlanError: no configuration fits, or none ran within the budget.
        ScenarioError: an unknown policy.
    """
    objective = request.objective
    estimator = Estimator(base)
    found_schedules = schedules(base, request.policies, request.max_staleness)
    choices = space(base, totals(request.gpus, objective), found_schedules) if found_schedules else []
    if not choices:
        raise PlanError(
            f"{base.where}: no configuration of {request.gpus} GPUs holds {base.model.name} under "
            f"{', '.join(request.policies)} with a staleness of {request.max_staleness:g} or less; "
            "use more GPUs, a smaller model or another policy"
        )
    candidates: list[tuple[Choice, Estimate]] = []
    for choice in choices:
        candidates.append((choice, estimator(choice)))
        estimated(len(candidates))

    def simulate(some: Sequence[Choice]) -> list[Report | None]:
        return run([settled(choice.apply(base), choice) for choice in some])

    found = search(candidates, objective, simulate, request.effort)
    best = different(rank(found.points, objective))[: request.effort.best]
    if not best:
        within = "" if objective.budget_usd is None else f" within {objective.budget_usd:g} USD"
        raise PlanError(
            f"{base.where}: none of {len(found.points)} simulated configurations trains "
            f"{objective.tokens:.3g} tokens{within}; raise --budget, or ask for fewer --tokens"
        )
    return CloseLook(base, request, run, estimator).at(best, found, len(choices))


def different(ranked: Sequence[Point]) -> list[Point]:
    """Without those that a better one of the same split and policy beats with no looser staleness bound."""
    kept: list[Point] = []
    for point in ranked:
        if not any(_same_pools(point.choice, other.choice) and _no_looser(other, point) for other in kept):
            kept.append(point)
    return kept


def _same_pools(one: Choice, other: Choice) -> bool:
    return (one.rollout_gpus, one.gpus, one.schedule.name) == (
        other.rollout_gpus, other.gpus, other.schedule.name
    )  # fmt: skip


def _no_looser(one: Point, other: Point) -> bool:
    mine, theirs = one.choice.schedule.staleness, other.choice.schedule.staleness
    return (inf if mine is None else mine) <= (inf if theirs is None else theirs)
