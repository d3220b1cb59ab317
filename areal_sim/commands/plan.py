"""`areal-sim plan`: the best configurations of so many GPUs, and why."""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from areal_report.terminal.options import (
    Jobs,
    Json,
    Out,
    Png,
    Ray,
    Resume,
    ScenarioArgument,
    Seed,
    Sets,
    with_seed,
)

if TYPE_CHECKING:
    from areal_sim.executor.pools import Pool
    from areal_sim.plan.result import Request, Result
    from interfaces.scenario import Resolved


class ObjectiveName(StrEnum):
    """What "best" means."""

    throughput = "throughput"
    cost = "cost"
    time_to_tokens = "time_to_tokens"


def plan(  # noqa: PLR0917
    scenario: ScenarioArgument,
    gpus: Annotated[
        int | None, typer.Option(min=2, help="GPUs to plan for; default: the scenario's.", show_default=False)
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME,...",
            help="Policies to choose from; default: the scenario's.",
            show_default=False,
        ),
    ] = None,
    max_staleness: Annotated[float, typer.Option(min=0, help="Largest staleness bound to consider.")] = 8,
    objective: Annotated[ObjectiveName, typer.Option(help="What is best.")] = ObjectiveName.throughput,
    tokens: Annotated[
        float | None,
        typer.Option(min=1, help="Trained tokens that time, cost and budget are about; default: the run's."),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="USD", help="Most that all tokens may cost; fewer GPUs are considered too."
        ),
    ] = None,
    price: Annotated[
        float | None,
        typer.Option(min=0, metavar="USD", help="Price of a GPU-hour; default: the hardware file's."),
    ] = None,
    best: Annotated[int, typer.Option(min=1, help="Plans to show.")] = 3,
    simulations: Annotated[int, typer.Option(min=1, help="Most simulations of the search.")] = 12,
    samples: Annotated[int, typer.Option(min=0, help="Draws for each plan's interval.")] = 4,
    sets: Sets = [],  # noqa: B006
    out: Out = None,
    seed: Seed = None,
    as_json: Json = False,
    jobs: Jobs = None,
    ray: Ray = None,
    resume: Resume = False,
    png: Png = False,
) -> None:
    """Find the best GPU split, parallelism, staleness bound, concurrency and policy for a scenario.

    Everything that fits is estimated in closed form, the most promising are simulated. Writes each plan as a
    scenario that `run` takes: plan.toml, plan_2.toml, ...

    [bold]areal-sim plan areal/fig6b_7b --gpus 64[/]

    [bold]areal-sim plan my.toml --policies areal,pipeline_rl --objective cost --out plans/a[/]
    """
    from areal_report.terminal.output import to_json
    from areal_sim.commands.plan_files import write_plans, write_results
    from areal_sim.executor.evaluate import pool_for
    from areal_sim.plan.data import as_data
    from areal_sim.plan.objective import Objective
    from areal_sim.plan.result import Request
    from areal_sim.plan.search import Effort
    from interfaces.scenario_file import load

    base = load(scenario, with_seed(sets, seed))
    hourly = price if price is not None else base.hardware.usd_per_gpu_hour
    goal = Objective(objective.value, tokens or _tokens(base), hourly, budget)
    _check_price(base, goal)
    effort = Effort(best, simulations, base.scenario.run.seed)
    request = Request(gpus or _gpus(base), _policies(policies, base), max_staleness, goal, effort, samples)
    result = _search(base, request, out, resume, pool_for(jobs, ray, simulations))
    data = as_data(base, request, result)
    typer.echo(to_json(data), nl=False) if as_json else _show(base, data)
    for file in write_plans(base, result, data, out):
        typer.echo(f"written: {file}", err=as_json)
    if out is not None:
        write_results(base, result, data, out, png)
        typer.echo(f"written: {out}", err=as_json)


def _search(
    base: "Resolved", request: "Request", out: Path | None, resume: bool, workers: "Pool"
) -> "Result":
    """The plan, with bars; Ctrl-C leaves the journal."""
    from areal_report.terminal.progress import Bar
    from areal_sim.commands.journal import journal_in
    from areal_sim.commands.simulate import INTERRUPTED
    from areal_sim.executor.evaluate import evaluate
    from areal_sim.executor.task import Task
    from areal_sim.plan.planning import make_plan

    with journal_in(out, resume) as journal, workers as pool:
        finished = 0
        expected = request.effort.simulations + request.effort.best * request.samples + 3
        with Bar("simulations", expected) as bar, Bar("configurations", None) as estimates:

            def run(points: "Any") -> list[dict[str, Any] | None]:
                nonlocal finished
                tasks = [Task(point) for point in points]
                outcomes = evaluate(tasks, pool, journal, lambda done: bar.update(finished + done))
                finished += len(tasks)
                for outcome in outcomes:
                    if outcome is not None and outcome.error is not None:
                        typer.echo(f"note: left out: {outcome.error}", err=True)
                return [outcome.report if outcome is not None else None for outcome in outcomes]

            try:
                return make_plan(base, request, run, estimates.update)
            except KeyboardInterrupt:
                remedy = "" if out is None else "; --resume goes on from here"
                typer.echo(f"interrupted after {finished} simulations{remedy}", err=True)
                raise typer.Exit(INTERRUPTED) from None


def _gpus(base: "Resolved") -> int:
    from areal_report.identity import identity

    return int(identity(base)["gpus"])


def _tokens(base: "Resolved") -> float:
    """Trained tokens of the scenario's own run."""
    from areal_sim.plan.estimate import Estimator

    return Estimator(base).step_tokens * base.scenario.run.steps


def _policies(text: str | None, base: "Resolved") -> tuple[str, ...]:
    """Those asked for; else the scenario's own, or `areal` where that one is synchronous."""
    from interfaces.setup import policy_of

    if text is not None:
        return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    own = policy_of(base)
    return ("areal",) if own.guarantees.max_staleness == 0 else (own.name,)


def _check_price(base: "Resolved", goal: Any) -> None:
    from interfaces.errors import ScenarioError
    from interfaces.scenario_errors import MISSING

    if goal.usd_per_gpu_hour is None and (goal.name == "cost" or goal.budget_usd is not None):
        raise ScenarioError(
            base.where, "usd_per_gpu_hour", MISSING, f"is not known for {base.hardware.name}",
            "give --price USD_PER_GPU_HOUR",
        )  # fmt: skip


def _show(base: "Resolved", data: dict[str, Any]) -> None:
    from areal_report.terminal.plan_table import notes, plan_table
    from areal_report.terminal.tables import console

    output = console()
    output.print(f"{base.where}: {base.model.name} on {data['gpus']} {base.hardware.name}", highlight=False)
    output.print()
    output.print(plan_table(data))
    for line in notes(data):
        output.print(line, highlight=False)
