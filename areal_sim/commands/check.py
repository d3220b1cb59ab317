"""`areal-sim check`: does a policy keep its promises, a recorded run every law, a scenario its schema?"""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from areal_report.terminal.options import Json, Sets

if TYPE_CHECKING:
    from interfaces.conformance import InvariantViolation


class Depth(StrEnum):
    """How hard to look for a violation."""

    dev = "dev"
    ci = "ci"
    nightly = "nightly"


class Verdict(NamedTuple):
    """What came out for one subject."""

    text: str
    data: dict[str, Any]
    exit_code: int = 0


def check(
    subjects: Annotated[
        list[str],
        typer.Argument(
            metavar="SUBJECT...",
            help="A policy (registry name or [bold]module:object[/]), a run directory or trace, a scenario.",
        ),
    ],
    sets: Sets = [],  # noqa: B006
    profile: Annotated[Depth, typer.Option(help="Policies: how hard to look.")] = Depth.dev,
    json: Json = False,
) -> None:
    """Check a policy under every order of events, a recorded run, or a scenario.

    [bold]areal-sim check areal_strict --set max_staleness=2[/]

    [bold]areal-sim check my_module:MyPolicy --profile ci[/]

    [bold]areal-sim check runs/a[/]

    [bold]areal-sim check mine.toml[/]
    """
    from areal_report.terminal.output import to_json

    verdicts = []
    for subject in subjects:
        verdict = _check(subject, sets, profile.value)
        verdicts.append(verdict)
        if not json:
            typer.echo(verdict.text)
    if json:
        typer.echo(to_json({"checks": [verdict.data for verdict in verdicts]}), nl=False)
    worst = max(verdict.exit_code for verdict in verdicts)
    if worst:
        raise typer.Exit(worst)


def _check(subject: str, sets: list[str], profile: str) -> Verdict:
    path = Path(subject)
    if path.is_dir() or (path.is_file() and path.suffix != ".toml"):
        return _trace(path)
    if path.suffix == ".toml" or ("/" in subject and ":" not in subject):
        return _scenario(subject, sets)
    return _policy(subject, sets, profile)


def _scenario(name: str, sets: list[str]) -> Verdict:
    from areal_sim.commands.simulate import validate
    from interfaces.scenario_file import load

    resolved = load(name, sets)
    validate(resolved)
    about = {"subject": name, "kind": "scenario", "ok": True}
    return Verdict(f"{resolved.where}: valid", about)


def _trace(path: Path) -> Verdict:
    from dataclasses import asdict

    from areal_report.run_directory import trace_parts
    from interfaces.conformance import InvariantViolation, check_trace

    parts = trace_parts(path)
    file = parts[-1]
    about: dict[str, Any] = {"subject": str(path), "kind": "trace"}
    try:
        summary = check_trace(*parts)
    except InvariantViolation as violation:
        broken = {"ok": False, "violations": [_told(violation)]}
        return Verdict(f"{file}: {violation}", about | broken, violation.exit_code)
    return Verdict(f"{file}: {summary}", about | {"ok": True, "summary": asdict(summary)})


def _policy(name: str, sets: list[str], profile: str) -> Verdict:
    from interfaces.conformance.target import named
    from interfaces.conformance.violation import LAWS

    sys.path.insert(0, str(Path.cwd()))  # where the user's module is
    target = named(name, _parameters(sets))
    broken = _broken(name, target, profile)
    laws = [
        {"number": law.number, "name": law.name, "sentence": law.sentence, "holds": law.name not in broken}
        for law in LAWS.values()
    ]
    rows = [f"  {law['number']:2d} {law['name']:12s} {'holds' if law['holds'] else 'BROKEN'}" for law in laws]
    head = (
        f"{name}: {len(broken)} of {len(laws)} laws broken"
        if broken
        else f"{name}: all {len(laws)} laws hold"
    )
    stories = [f"\n{violation}" for violation in broken.values()]
    data = {
        "subject": name, "kind": "policy", "profile": profile, "ok": not broken, "laws": laws,
        "violations": [_told(violation) for violation in broken.values()],
    }  # fmt: skip
    exit_code = max((violation.exit_code for violation in broken.values()), default=0)
    return Verdict("\n".join([f"{head} (profile {profile})", *rows, *stories]), data, exit_code)


def _broken(name: str, target: Any, profile: str) -> "dict[str, InvariantViolation]":
    from interfaces.errors import ScenarioError

    try:
        from interfaces.conformance.check import Findings
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        remedy = "pip install 'areal-testbed[conformance]'"
        raise ScenarioError("check", "policy", name, "needs the package hypothesis", remedy) from None
    return Findings(target, profile).broken


def _parameters(sets: list[str]) -> dict[str, Any]:
    """`--set max_staleness=2`; the scenario's way of writing it, `policy.max_staleness=2`, is the same."""
    from interfaces.errors import ScenarioError
    from interfaces.overrides import WHERE, parse

    parameters = {}
    for text in sets:
        path, value = parse(text)
        key = path[1:] if path[0] == "policy" else path
        if len(key) != 1:
            remedy = "write its name alone, as in max_staleness=2"
            raise ScenarioError(WHERE, ".".join(path), value, "is not a parameter of a policy", remedy)
        parameters[key[0]] = value
    return parameters


def _told(violation: "InvariantViolation") -> dict[str, Any]:
    return {
        "number": violation.number, "name": violation.name, "expected": violation.expected,
        "seen": violation.seen, "likely_cause": violation.likely_cause, "events": violation.events,
        "story": str(violation),
    }  # fmt: skip
