"""`areal-sim sensitivity`: which parameter the answer hangs on."""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from areal_report.terminal.options import Jobs, Json, Out, ScenarioArgument, Seed, Sets, with_seed

if TYPE_CHECKING:
    from areal_sim.executor.task import Outcome
    from areal_sim.sensitivity import Factor


class Metric(StrEnum):
    """What is watched."""

    throughput = "throughput"
    step_time = "step_time"
    staleness = "staleness"


KEYS = {
    Metric.throughput: ("effective throughput", "effective_throughput_tokens_per_s"),
    Metric.step_time: ("step time", "step_time_s"),
    Metric.staleness: ("mean staleness", "staleness"),
}
"""Its name, and its key in the report."""


def sensitivity(  # noqa: PLR0917
    scenario: ScenarioArgument,
    sets: Sets = [],  # noqa: B006
    metric: Annotated[Metric, typer.Option(help="What is watched.")] = Metric.throughput,
    out: Out = None,
    seed: Seed = None,
    as_json: Json = False,
    jobs: Jobs = None,
) -> None:
    """Simulate a scenario with each uncertain parameter at both ends of its range, the others as they are.

    [bold]areal-sim sensitivity areal/table7 --set run.steps=40 --out runs/tornado[/]
    """
    from tempfile import TemporaryDirectory

    from areal_sim.commands.simulate import INTERRUPTED
    from areal_sim.executor.evaluate import attempt_all
    from areal_sim.executor.task import Task
    from areal_sim.sensitivity import factors
    from interfaces.scenario_file import load

    base = load(scenario, with_seed(sets, seed))
    with TemporaryDirectory() as folder:
        found = factors(base, Path(folder))
        points = [base, *(end for factor in found for end in (factor.at_low, factor.at_high))]
        outcomes = attempt_all([Task(point) for point in points], "variants", jobs=jobs)
    if None in outcomes:
        raise typer.Exit(INTERRUPTED)
    done = [outcome for outcome in outcomes if outcome is not None]
    if done[0].report is None:
        typer.echo(f"error: {done[0].error}", err=True)
        raise typer.Exit(done[0].exit_code)
    rows = _rows(found, done, metric)
    data = {"scenario": base.where, "metric": metric.value, "base": _value(done[0], metric), "rows": rows}
    _show(data, as_json)
    if out is not None:
        _write(data, out, as_json)


def _value(outcome: "Outcome", metric: Metric) -> float | None:
    if outcome.report is None:
        return None
    found = outcome.report[KEYS[metric][1]]
    value: float | None = found["mean"] if isinstance(found, dict) else found
    return value


def _rows(found: "list[Factor]", outcomes: "list[Outcome]", metric: Metric) -> list[dict[str, Any]]:
    """One a parameter, the largest swing first; those that could not run last."""
    base = _value(outcomes[0], metric)
    rows = []
    for factor, low, high in zip(found, outcomes[1::2], outcomes[2::2], strict=True):
        row: dict[str, Any] = {
            "parameter": factor.name, "value": factor.value, "low": factor.low, "high": factor.high,
        }  # fmt: skip
        for end, outcome in (("low", low), ("high", high)):
            value = _value(outcome, metric)
            row[f"{metric.value}_{end}"] = value
            row[f"ratio_{end}"] = value / base if value is not None and base else None
        ratios = [1.0, row["ratio_low"], row["ratio_high"]]
        row["swing"] = None if None in ratios else max(ratios) - min(ratios)
        row["error"] = low.error or high.error
        rows.append(row)
    return sorted(rows, key=lambda row: -1.0 if row["swing"] is None else row["swing"], reverse=True)


def _show(data: dict[str, Any], as_json: bool) -> None:
    from areal_report.numbers import MISSING, count
    from areal_report.terminal.output import to_json
    from areal_report.terminal.tables import console, grid

    if as_json:
        typer.echo(to_json(data), nl=False)
        return
    typer.echo(f"{data['scenario']}: {KEYS[Metric(data['metric'])][0]} {count(data['base'])}")
    table = grid("parameter", "value", "range", "at low", "at high", "swing", no_wrap=True)
    for row in data["rows"]:
        swing = MISSING if row["swing"] is None else f"{row['swing']:.2%}"
        ends = (_change(row["ratio_low"]), _change(row["ratio_high"]))
        span = f"{row['low']:.4g} to {row['high']:.4g}"
        table.add_row(row["parameter"], f"{row['value']:.4g}", span, *ends, swing)
    console().print(table)
    for row in data["rows"]:
        if row["error"]:
            typer.echo(f"note: {row['parameter']}: {row['error']}", err=True)


def _change(ratio: float | None) -> str:
    from areal_report.numbers import MISSING

    return MISSING if ratio is None else f"{ratio - 1.0:+.2%}"


def _write(data: dict[str, Any], out: Path, as_json: bool) -> None:
    from areal_report.page import charts_page
    from areal_report.run_directory import write_atomically
    from areal_report.terminal.output import to_json
    from areal_report.tornado import tornado
    from interfaces.run_files import SENSITIVITY, TORNADO

    write_atomically(out / SENSITIVITY, to_json(data))
    name = KEYS[Metric(data["metric"])][0]
    chart = tornado(f"What {name} hangs on", name, data["rows"])
    write_atomically(out / TORNADO, charts_page("Sensitivity", data["scenario"], [chart]))
    typer.echo(f"written: {out}", err=as_json)
