"""Runs the simulations that rows need, and reads the published metric off their reports."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from areal_sim.cost import build_cost
from areal_sim.executor.evaluate import attempt_all
from areal_sim.executor.task import Task
from areal_sim.validation.protocol import Metric, Protocol, Row
from interfaces.errors import TestbedError
from interfaces.scenario import Resolved
from interfaces.scenario_file import load

Values = Mapping[str, Mapping[Metric, float]]
"""Metrics of each run by its id."""


class Scored(NamedTuple):
    """A row and its prediction."""

    row: Row
    predicted: float
    in_calibration: bool

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted / self.row.published - 1

    @property
    def counts(self) -> bool:
        """Whether it is part of a suite's score: predicted, and not in doubt."""
        return not self.in_calibration and not self.row.suspect

    @property
    def hit(self) -> bool:
        """Whether the goal is met."""
        return abs(self.error) <= self.row.limit


def metrics(resolved: Resolved, report: Mapping[str, Any]) -> dict[Metric, float]:
    """All published metrics of one run.

    Generation time of a synchronous run is what training leaves of its steps.
    """
    step_s = report["step_time_s"]["mean"]
    kinds = report["time_share"]["trainer"].items()
    training = sum(share for kind, share in kinds if not kind.startswith("idle"))
    throughput = report["generation_throughput_tokens_per_s"]
    gpus = resolved.scenario.cluster.rollout_gpus
    replicas = gpus // resolved.scenario.engine.tensor_parallel
    return {
        "throughput": report["effective_throughput_tokens_per_s"],
        "step_s": step_s,
        "generated": throughput,
        "generated_per_gpu_s": throughput / (gpus * max(1e-9, 1 - training)),
        "train_s": report["time_share"]["trainer"].get("train", 0.0) * step_s,
        "load_s": build_cost(resolved).load_s(replicas),
    }


def simulate(
    plan: Protocol, runs: Iterable[str], sets: Mapping[str, Sequence[str]], jobs: int | None, what: str
) -> Values:
    """Metrics of these runs, on all cores; `sets` adds settings by the id of a run.

    Raises:
        TestbedError: one of them failed; the message says which.
    """
    names = sorted(set(runs))
    resolved = []
    for name in names:
        run = plan.named(name)
        resolved.append(load(run.scenario, [*run.set, *sets.get(name, ())]))
    values: dict[str, Mapping[Metric, float]] = {}
    done = attempt_all([Task(point) for point in resolved], what, jobs=jobs)
    for name, point, outcome in zip(names, resolved, done, strict=True):
        if outcome is None:
            raise KeyboardInterrupt
        if outcome.report is None:
            raise TestbedError(f"run {name}: {outcome.error}")
        values[name] = metrics(point, outcome.report)
    return values


def predicted(row: Row, values: Values) -> float:
    """The number that a row publishes, from the runs it names."""
    value = values[row.run][row.metric]
    return value if row.over is None else value / values[row.over][row.metric]
