"""Leave one out: fit the free parameters again without a row, and predict that row."""

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import NamedTuple

from areal_sim.validation.predict import predicted, simulate
from areal_sim.validation.protocol import Parameter, Protocol, Row

ROUNDS = 3
"""Gauss-Newton steps; each simulates the remaining rows once for every parameter and once more."""
NUDGE = 1.1


class LeftOut(NamedTuple):
    """A calibration row that was left out."""

    row: Row
    values: dict[str, float] | None
    """The parameters fitted without it; None: what is left cannot determine them."""
    predicted: float | None

    @property
    def error(self) -> float | None:
        """Relative error of its prediction."""
        return None if self.predicted is None else self.predicted / self.row.published - 1


def leave_one_out(plan: Protocol, rows: Sequence[Row], jobs: int | None) -> list[LeftOut]:
    """For each row something was fitted on: the parameters of its pair without it, and what they predict."""
    found = []
    for row in rows:
        parameters = [p for p in plan.parameter if row.id in p.fitted_on]
        if not parameters:
            continue
        others = [r for r in plan.row if r.id in parameters[0].fitted_on and r.id != row.id]
        if len(others) < len(parameters):
            found.append(LeftOut(row, None, None))
            continue
        values = fit(plan, parameters, others, jobs)
        seen = simulate(
            plan, row.runs, settings(plan, row.runs, parameters, values), jobs, f"without {row.id}"
        )
        found.append(LeftOut(row, values, predicted(row, seen)))
    return found


def fit(
    plan: Protocol, parameters: Sequence[Parameter], rows: Sequence[Row], jobs: int | None
) -> dict[str, float]:
    """Parameter values that reproduce these rows best, in the logarithm; no fewer rows than parameters."""
    import numpy as np  # noqa: PLC0415 (late: --help must answer at once)

    values = {p.name: p.value for p in parameters}
    names = [name for row in rows for name in row.runs]

    def residuals(at: Mapping[str, float]) -> list[float]:
        seen = simulate(plan, names, settings(plan, names, parameters, at), jobs, "fit")
        return [log(predicted(row, seen) / row.published) for row in rows]

    for _ in range(ROUNDS):
        here = np.array(residuals(values))
        if np.abs(here).max() < 0.003:
            break
        slopes = np.array([
            (np.array(residuals({**values, p.name: values[p.name] * NUDGE})) - here) / log(NUDGE)
            for p in parameters
        ]).T  # fmt: skip
        step = np.linalg.lstsq(slopes, -here, rcond=None)[0]
        for parameter, change in zip(parameters, step, strict=True):
            moved = values[parameter.name] * exp(min(1.0, max(-1.0, float(change))))
            low, high = parameter.bounds
            values[parameter.name] = min(max(moved, low), high)
    return values


def settings(
    plan: Protocol, runs: Sequence[str], parameters: Sequence[Parameter], values: Mapping[str, float]
) -> dict[str, list[str]]:
    """What `--set` gives each of the runs to have these values."""
    return {
        name: [
            f"{key}={values[p.name]!r}"
            for p in parameters if plan.named(name).scenario.startswith(p.scenarios)
            for key in p.keys
        ]
        for name in runs
    }  # fmt: skip
