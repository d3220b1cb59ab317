"""Which configurations are simulated, and in which order.

A small space is searched whole: by falling bound, until the bound of the next is below what is already
there, so the answer is that of simulating everything. In a large space Optuna chooses what to simulate among
those whose estimate is near the best: throughput up, staleness down.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from areal_sim.plan.estimate import Estimate
from areal_sim.plan.objective import Objective, staleness_of, throughput_of
from areal_sim.plan.space import Choice

SMALL = 64
"""Spaces up to this size are searched whole."""
NEAR = 0.8
"""Of the best estimate: what is slower is not looked at, unless it is the best at its staleness."""
BATCH = 4
"""Simulations asked for together, whatever the number of cores: the same seed gives the same plan."""
_MISSES = 64

Report = dict[str, Any]
Simulate = Callable[[Sequence[Choice]], list[Report | None]]
"""Reports of these configurations; None for one that did not run."""


class Point(NamedTuple):
    """A configuration that was simulated."""

    choice: Choice
    estimate: Estimate
    report: Report


class Found(NamedTuple):
    """What a search saw."""

    points: list[Point]
    whole: bool
    """Whether nothing better can exist in the space."""
    pruned: int
    """Configurations left out because of their bound or estimate."""


Candidates = Sequence[tuple[Choice, Estimate]]


class Effort(NamedTuple):
    """How much to look for."""

    best: int
    """Configurations wanted."""
    simulations: int
    """At most, in a large space."""
    seed: int


def search(candidates: Candidates, objective: Objective, simulate: Simulate, effort: Effort) -> Found:
    """The best configurations and what was simulated to find them."""
    if len(candidates) <= SMALL:
        return _whole(candidates, objective, simulate, effort.best)
    return _guided(candidates, objective, simulate, effort)


def rank(points: Sequence[Point], objective: Objective) -> list[Point]:
    """Best first; of equals the one with the lower staleness bound, then with fewer groups in flight."""
    usable = [p for p in points if objective.score(p.choice, throughput_of(p.report)) > float("-inf")]
    return sorted(
        usable, key=lambda p: (-objective.score(p.choice, throughput_of(p.report)), *_modesty(p.choice))
    )


def _modesty(choice: Choice) -> tuple[float, float, tuple[int, ...]]:
    schedule = choice.schedule
    infinite = float("inf")
    return (
        infinite if schedule.staleness is None else schedule.staleness,
        infinite if schedule.concurrency is None else schedule.concurrency,
        choice[:5],
    )


def _whole(candidates: Candidates, objective: Objective, simulate: Simulate, best: int) -> Found:
    """Branch and bound: exact as long as the bounds hold."""
    order = sorted(candidates, key=lambda c: (-objective.score(c[0], c[1].bound), *_modesty(c[0])))
    points: list[Point] = []
    at = 0
    while at < len(order):
        scores = sorted((objective.score(p.choice, throughput_of(p.report)) for p in points), reverse=True)
        enough = scores[best - 1] if len(scores) >= best else float("-inf")
        if objective.score(order[at][0], order[at][1].bound) < enough:
            break
        points += _simulated(order[at : at + BATCH], simulate)
        at += BATCH
    return Found(points, True, max(0, len(order) - at))


def _simulated(batch: Candidates, simulate: Simulate) -> list[Point]:
    reports = simulate([choice for choice, _ in batch])
    return [
        Point(choice, estimate, report)
        for (choice, estimate), report in zip(batch, reports, strict=True)
        if report is not None
    ]


def _guided(candidates: Candidates, objective: Objective, simulate: Simulate, effort: Effort) -> Found:
    promising = _promising(candidates, objective)
    points: list[Point] = []
    for batch in _Sampler(promising, objective, effort):
        made = _simulated(batch.candidates, simulate)
        batch.tell(made)
        points += made
    return Found(points, False, len(candidates) - len(promising))


def _promising(candidates: Candidates, objective: Objective) -> Candidates:
    """By falling estimate: those near the best, and the best of every staleness bound."""
    order = sorted(candidates, key=lambda c: (-objective.score(c[0], c[1].throughput), *_modesty(c[0])))
    if not order:
        return []
    top = objective.score(order[0][0], order[0][1].throughput)
    near = top * NEAR if top > 0 else top / NEAR
    seen: set[float | None] = set()
    kept = []
    for choice, estimate in order:
        first = choice.schedule.staleness not in seen
        seen.add(choice.schedule.staleness)
        if first or objective.score(choice, estimate.throughput) >= near:
            kept.append((choice, estimate))
    return kept


class _Batch(NamedTuple):
    candidates: Candidates
    tell: Callable[[Sequence[Point]], None]


class _Sampler:
    """Batches of candidates as Optuna suggests them; the first ones are the best by estimate."""

    def __init__(self, promising: Candidates, objective: Objective, effort: Effort) -> None:
        import optuna  # noqa: PLC0415 (takes half a second)

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna: Any = optuna
        sampler = optuna.samplers.TPESampler(seed=effort.seed, n_startup_trials=BATCH, constant_liar=True)
        self._study: Any = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
        self._objective = objective
        self._by_values = {tuple(c[0].values().values()): c for c in promising}
        names = list(promising[0][0].values()) if promising else []
        self._axes = {
            name: sorted({values[place] for values in self._by_values}) for place, name in enumerate(names)
        }
        self._left = dict(self._by_values)
        self._simulations = min(effort.simulations, len(promising))
        self._first = _first(promising, self._simulations // 2)

    def __iter__(self) -> Iterator[_Batch]:
        for key in self._first:
            self._study.enqueue_trial(dict(zip(self._axes, key, strict=True)))
        done = 0
        while done < self._simulations:
            asked = [self._ask() for _ in range(min(BATCH, self._simulations - done))]
            done += len(asked)
            yield _Batch([candidate for _, candidate in asked], partial(self._tell, asked))

    def _ask(self) -> tuple[Any, tuple[Choice, Estimate]]:
        """A suggestion that is a candidate and new; after many misses the best estimate that is left."""
        for _ in range(_MISSES):
            trial = self._study.ask()
            key = tuple(trial.suggest_categorical(name, values) for name, values in self._axes.items())
            if key in self._left:
                return trial, self._left.pop(key)
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        key = next(iter(self._left))
        self._study.enqueue_trial(dict(zip(self._axes, key, strict=True)))
        trial = self._study.ask()
        for name, values in self._axes.items():
            trial.suggest_categorical(name, values)
        return trial, self._left.pop(key)

    def _tell(self, asked: Sequence[tuple[Any, tuple[Choice, Estimate]]], made: Sequence[Point]) -> None:
        reports = {point.choice: point.report for point in made}
        for trial, (choice, _) in asked:
            report = reports.get(choice)
            score = self._objective.score(choice, throughput_of(report))
            if report is None or score == float("-inf"):
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            else:
                self._study.tell(trial, [score, staleness_of(report)])


def _first(promising: Candidates, number: int) -> list[tuple[str, ...]]:
    """The best by estimate, each of another split and policy, or with a lower staleness bound."""
    lowest: dict[tuple[Any, ...], float] = {}
    keys = []
    for choice, _ in promising:
        pools = choice.rollout_gpus, choice.gpus, choice.schedule.name
        bound = float("inf") if choice.schedule.staleness is None else choice.schedule.staleness
        if bound < lowest.get(pools, float("inf")) or pools not in lowest:
            lowest[pools] = bound
            keys.append(tuple(choice.values().values()))
    return keys[:number]
