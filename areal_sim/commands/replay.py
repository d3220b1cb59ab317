"""`areal-sim replay`: a recorded run, and what would have happened with something else."""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from areal_report.terminal.options import Json, Sets

if TYPE_CHECKING:
    from areal_sim.replay.recorded import Recorded
    from interfaces.scenario import Resolved


class Replayed(NamedTuple):
    """One simulation of a recorded run."""

    report: dict[str, Any]
    drawn: dict[str, int]
    notes: list[str]


def replay(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Run directory of a real or simulated run, or a trace.")
    ],
    sets: Sets = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Replay a run with its own lengths and rewards: as it was, and with --set as it would have been.

    [bold]areal-sim replay runs/real_1[/]

    [bold]areal-sim replay runs/real_1 --set policy.max_staleness=0 --set cluster.rollout_gpus=2[/]
    """
    from areal_report.identity import complete
    from areal_report.run_directory import find_trace
    from areal_report.terminal.caveats import warn_outside
    from areal_report.terminal.output import to_json
    from areal_report.terminal.tables import compare_table, console
    from areal_sim.replay.recorded import Recorded

    path = find_trace(directory)
    recorded = Recorded(path)
    shown = {"recorded": complete(recorded.report(), recorded.resolved)}
    same = _simulate(recorded, path, [])
    shown["replayed"] = same.report
    last = same
    if sets:
        last = _simulate(recorded, path, sets)
        shown[", ".join(sets)] = last.report
    reports = list(shown.values())
    if as_json:
        changed = last.report if sets else None
        data = {"recorded": reports[0], "replayed": same.report, "changed": changed, "sets": sets,
                "rollouts": last.drawn, "notes": last.notes}  # fmt: skip
        typer.echo(to_json(data), nl=False)
    else:
        from areal_report.figures import ratio_to

        base = reports[0] if len(reports) == 2 else same.report  # like is compared with like
        ratios = [ratio_to(report, base) for report in reports]
        console().print(compare_table(list(shown), reports, ratios))
        typer.echo(_rollouts(last.drawn, recorded))
    for note in last.notes:
        typer.echo(f"note: {note}", err=True)
    warn_outside([last.report])


def _simulate(recorded: "Recorded", trace: Path, sets: list[str]) -> Replayed:
    from areal_report.identity import complete
    from areal_sim.replay.costs import costs_of
    from areal_sim.replay.workload import RecordedWorkload
    from areal_sim.simulation import Simulation
    from interfaces.scenario_file import changed
    from interfaces.setup import policy_of

    resolved = changed(recorded.resolved, sets) if sets else recorded.resolved
    if recorded.real:
        resolved = _as_measured(recorded, resolved)
    redundancy = policy_of(resolved).capacity.redundancy
    workload = RecordedWorkload(resolved.scenario, resolved.where, redundancy, recorded)
    cost, notes = costs_of(trace, resolved, real=recorded.real)
    report = complete(Simulation(resolved, cost=cost, workload=workload).run(), resolved)
    return Replayed(report, workload.drawn, notes)


def _as_measured(recorded: "Recorded", resolved: "Resolved") -> "Resolved":
    """The scenario with what only the run knows: pauses; the wait for a worker is part of the latencies."""
    scenario = resolved.scenario
    pauses = {f"{kind}_s": sum(took) / len(took) for kind, took in recorded.pauses.items() if took}
    changes = {
        "reward": scenario.reward.model_copy(update={"workers": None}),
        "run": scenario.run.model_copy(update=pauses),
    }
    return resolved.model_copy(update={"scenario": scenario.model_copy(update=changes)})


def _rollouts(drawn: dict[str, int], recorded: "Recorded") -> str:
    how = "as the run would have drawn them"
    if recorded.real:
        how = "longer than they came to (Kaplan-Meier); those never begun: from recorded prompts"
    return (
        f"rollouts: {drawn['recorded']:,} recorded, {drawn['unfinished']:,} that the run began and never "
        f"finished, {drawn['never begun']:,} that it never began ({how})"
    )
