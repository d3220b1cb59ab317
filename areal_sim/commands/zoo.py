"""`areal-sim zoo`: every scheduling system on the same work and the same GPUs."""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from areal_report.terminal.options import Jobs, Json, Out, Png, ScenarioArgument, Seed, Sets, with_seed

if TYPE_CHECKING:
    from areal_sim.executor.task import Outcome
    from interfaces.scenario import Resolved


class Entry(NamedTuple):
    """One system and what came out; None: Ctrl-C prevented it."""

    name: str
    outcome: "Outcome | None"

    @property
    def report(self) -> dict[str, Any] | None:
        """What it measured."""
        return None if self.outcome is None else self.outcome.report

    @property
    def message(self) -> str:
        """Why there is no report."""
        from areal_report.terminal.tables import INTERRUPTED

        return INTERRUPTED if self.outcome is None else self.outcome.error or ""


def zoo(  # noqa: PLR0917
    scenario: ScenarioArgument,
    policies: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME,...", help="Only these systems; default: all known.", show_default=False
        ),
    ] = None,
    sets: Sets = [],  # noqa: B006
    out: Out = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write the table as CSV.", show_default=False)
    ] = None,
    seed: Seed = None,
    as_json: Json = False,
    jobs: Jobs = None,
    png: Png = False,
) -> None:
    """Simulate every known scheduling system on the workload and the GPUs of one scenario.

    The scenario's own policy keeps its parameters, the others have their defaults. Systems that share GPUs
    between generation and training get all of them for both.

    [bold]areal-sim zoo areal/table7[/]

    [bold]areal-sim zoo my.toml --policies areal,prime_rl,pipeline_rl --csv zoo.csv[/]
    """
    from areal_sim.commands.report import write_page
    from interfaces.run_files import PAGE, SWEEP
    from interfaces.scenario_file import load

    base = load(scenario, with_seed(sets, seed))
    names = _names(policies, base)
    entries = _run(base, names, jobs)
    for path in filter(None, (csv, out and out / SWEEP)):
        _write_csv(path, entries)
    _show(entries, as_json)
    if out is not None:
        write_page([out], out / PAGE, png)
    raise typer.Exit(_exit_code(entries))


def _names(policies: str | None, base: "Resolved") -> list[str]:
    """The systems asked for, each once.

    Raises:
        ScenarioError: one of them is not known.
    """
    from interfaces.errors import ScenarioError
    from interfaces.policies.registry import presets
    from interfaces.scenario_errors import suggest

    known = sorted(presets())
    if policies is None:
        return known
    names = list(dict.fromkeys(name.strip() for name in policies.split(",") if name.strip()))
    for name in names:
        if name not in known:
            rule = "is not a scheduling policy"
            raise ScenarioError(base.where, "--policies", name, rule, suggest(name, known, "known"))
    return names


def _run(base: "Resolved", names: list[str], jobs: int | None) -> list[Entry]:
    """All systems, best first; those that cannot run here keep their message."""
    from areal_sim.executor.evaluate import attempt_all
    from areal_sim.executor.task import Outcome, Task
    from interfaces.errors import ScenarioError

    points: dict[str, Resolved] = {}
    refused: dict[str, Outcome] = {}
    for name in names:
        try:
            points[name] = _with_policy(base, name)
        except ScenarioError as error:
            refused[name] = Outcome(None, str(error), error.exit_code)
    done = attempt_all([Task(point) for point in points.values()], "systems", jobs=jobs) if points else []
    outcomes = dict(zip(points, done, strict=True))
    entries = [Entry(name, refused.get(name, outcomes.get(name))) for name in names]
    return sorted(entries, key=lambda entry: -(_throughput(entry) or -1.0))


def _with_policy(base: "Resolved", name: str) -> "Resolved":
    """The same work under another policy, on the same number of GPUs.

    Raises:
        ScenarioError: it cannot run there.
    """
    from areal_sim.commands.simulate import validate
    from interfaces import feasibility
    from interfaces.policies.registry import build_policy
    from interfaces.scenario import PolicyChoice
    from interfaces.setup import loop_config, policy_of

    scenario = base.scenario
    choice = scenario.policy if scenario.policy.name == name else PolicyChoice(name=name)
    policy = build_policy(name, choice.parameters, loop_config(scenario), base.where)
    shared, was_shared = policy.capacity.colocated, policy_of(base).capacity.colocated
    cluster = scenario.cluster
    if shared and not was_shared:
        total = cluster.rollout_gpus + cluster.trainer_gpus
        cluster = cluster.model_copy(update={"rollout_gpus": total, "trainer_gpus": total})
    elif was_shared and not shared:
        half = cluster.rollout_gpus // 2
        cluster = cluster.model_copy(
            update={"rollout_gpus": half, "trainer_gpus": cluster.rollout_gpus - half}
        )
    changed = scenario.model_copy(update={"policy": choice, "cluster": cluster})
    resolved = base.model_copy(update={"scenario": changed})
    feasibility.check(resolved, colocated=shared)
    validate(resolved)
    return resolved


def _throughput(entry: Entry) -> float | None:
    if entry.report is None:
        return None
    value: float | None = entry.report["effective_throughput_tokens_per_s"]
    return value


def front(entries: list[Entry]) -> set[str]:
    """Names that no other beats in throughput at the same or a lower mean staleness."""
    measured = [
        (entry.report["staleness"]["mean"], -speed, entry.name)
        for entry in entries
        if entry.report is not None
        and (speed := _throughput(entry)) is not None
        and entry.report["staleness"]["mean"] is not None
    ]
    names: set[str] = set()
    fastest = 0.0
    for _, slowness, name in sorted(measured):
        if -slowness > fastest:
            fastest = -slowness
            names.add(name)
    return names


def _exit_code(entries: list[Entry]) -> int:
    from areal_sim.commands.simulate import INTERRUPTED

    if any(entry.outcome is None for entry in entries):
        return INTERRUPTED
    return int(any(entry.report is None for entry in entries))


def _show(entries: list[Entry], as_json: bool) -> None:
    from areal_report.terminal.output import to_json
    from areal_report.terminal.tables import console, zoo_table

    best = front(entries)
    if as_json:
        rows = [
            {"policy": e.name, "front": e.name in best, "error": e.message or None, "report": e.report}
            for e in entries
        ]
        typer.echo(to_json({"systems": rows}), nl=False)
        return
    console().print(zoo_table([(entry.name, entry.report or entry.message) for entry in entries], best))
    for entry in entries:
        if entry.outcome is not None and entry.outcome.error is not None:
            typer.echo(f"error: {entry.name}: {entry.outcome.error}", err=True)


def _write_csv(path: Path, entries: list[Entry]) -> None:
    """One line a system: its message if it failed, and every number of its report. Same form as a sweep."""
    from areal_report.run_directory import write_atomically
    from areal_report.terminal.output import flatten, to_csv

    best = front(entries)
    rows = []
    for entry in entries:
        row: dict[str, Any] = {"policy.name": entry.name, "error": entry.message}
        if entry.report is not None:
            row |= {**flatten(entry.report), "front": entry.name in best}
        rows.append(row)
    write_atomically(path, to_csv(rows))
