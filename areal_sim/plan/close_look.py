"""A close look at the best few: intervals, the synchronous and the own configuration, one GPU more."""

from collections.abc import Sequence

from areal_sim.plan.estimate import Estimate, Estimator
from areal_sim.plan.fidelity import settled
from areal_sim.plan.objective import throughput_of
from areal_sim.plan.result import Margin, Plan, Request, Result, Run
from areal_sim.plan.search import Found, Point, Report, rank
from areal_sim.plan.space import Choice, own_choice, schedules, space
from areal_sim.plan.uncertainty import Draw, Interval, against, draws, interval
from interfaces import feasibility
from interfaces.errors import ScenarioError
from interfaces.scenario import Resolved

SYNCHRONOUS = ("sync", "sync_colocated")
"""What a speedup is against: the faster of these two, each with its own best split."""

_Asked = tuple[Choice, Draw | None]
_Reports = dict[_Asked, Report | None]


class CloseLook:
    """All that a search does not say about its best, in one set of simulations."""

    def __init__(self, base: Resolved, request: Request, run: Run, estimator: Estimator) -> None:
        self._base, self._request, self._run, self._estimator = base, request, run, estimator
        self._worlds = draws(base, request.samples, request.effort.seed)

    def at(self, best: Sequence[Point], found: Found, configurations: int) -> Result:
        """The plans, and what they are compared with."""
        gpus = best[0].choice.gpus
        own = own_choice(self._base, gpus)
        others = self._synchronous(gpus)
        if own is not None:
            others.append((own, self._estimator(own)))
        asked: list[_Asked] = [(point.choice, world) for point in best for world in self._worlds]
        asked += [(choice, None) for choice, _ in others]
        reports = self._simulate(list(dict.fromkeys(asked)))
        known = [
            Point(choice, estimate, report)
            for choice, estimate in others
            if (report := reports.get((choice, None))) is not None
        ]
        objective = self._request.objective._replace(budget_usd=None)
        synchronous = rank([p for p in known if p.choice.schedule.name in SYNCHRONOUS], objective)
        return Result(
            plans=tuple(self._plan(point, best[0], reports) for point in best),
            found=found,
            configurations=configurations,
            synchronous=synchronous[0] if synchronous else None,
            own=next((point for point in known if point.choice == own), None),
            step_tokens=self._estimator.step_tokens,
        )

    def _simulate(self, asked: Sequence[_Asked]) -> _Reports:
        runs = [(settled(choice.apply(self._base), choice), world) for choice, world in asked]
        made = self._run([resolved if world is None else world.apply(resolved) for resolved, world in runs])
        return dict(zip(asked, made, strict=True))

    def _synchronous(self, gpus: int) -> list[tuple[Choice, Estimate]]:
        """The best of each synchronous schedule, by estimate."""
        found: list[tuple[Choice, Estimate]] = []
        for name in SYNCHRONOUS:
            options = space(self._base, [gpus], schedules(self._base, [name], 0))
            if options:
                estimates = [(choice, self._estimator(choice)) for choice in options]
                found.append(max(estimates, key=lambda pair: pair[1].throughput))
        return found

    def _fits(self, choice: Choice) -> bool:
        try:
            feasibility.check(choice.apply(self._base), choice.colocated)
        except ScenarioError:
            return False
        return True

    def _plan(self, point: Point, best: Point, reports: _Reports) -> Plan:
        speeds = self._speeds(point, reports)
        nominal = throughput_of(point.report) or 0.0
        margins = [self._margin(point, grow(point.choice, pool)) for pool in ("rollout", "trainer")]
        ratio = _ratio((nominal, *speeds), (throughput_of(best.report) or 0.0, *self._speeds(best, reports)))
        return Plan(point, speeds, interval([nominal, *filter(None, speeds)]), ratio, *margins)

    def _margin(self, point: Point, after: Choice) -> Margin:
        """In closed form: a simulation's noise would be larger than what a GPU more brings."""
        gain = self._estimator(after).throughput / point.estimate.throughput - 1.0
        return Margin(after.gpus - point.choice.gpus, gain if self._fits(after) else None)

    def _speeds(self, point: Point, reports: _Reports) -> tuple[float, ...]:
        return tuple(throughput_of(reports.get((point.choice, world))) or 0.0 for world in self._worlds)


def _ratio(speeds: Sequence[float], others: Sequence[float]) -> Interval:
    """Draw by draw; a draw in which either did not run says nothing."""
    pairs = [(a, b) for a, b in zip(speeds, others, strict=True) if a and b]
    return against([a for a, _ in pairs], [b for _, b in pairs]) if pairs else Interval(1.0, 1.0)


def grow(choice: Choice, pool: str) -> Choice:
    """One replica more, or one data-parallel rank more; of shared GPUs whichever is larger."""
    engine = choice.engine_tensor_parallel
    rank_gpus = choice.trainer_tensor_parallel * choice.trainer_pipeline_parallel
    if choice.colocated:
        gpus = choice.rollout_gpus + max(engine, rank_gpus)
        return choice._replace(rollout_gpus=gpus, trainer_gpus=gpus)
    if pool == "rollout":
        return choice._replace(rollout_gpus=choice.rollout_gpus + engine)
    return choice._replace(trainer_gpus=choice.trainer_gpus + rank_gpus)
