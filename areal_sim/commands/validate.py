"""`areal-sim validate`: check scenarios without simulating them."""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

import typer

from areal_report.terminal.options import ScenarioList, Sets


def validate(scenarios: ScenarioList, sets: Sets = []) -> None:  # noqa: B006
    """Check scenarios without simulating them.

    [bold]areal-sim validate my.toml[/]

    [bold]areal-sim validate areal/table7 --set cluster.hardware=h200[/]
    """
    from areal_sim.commands.simulate import validate as check
    from interfaces.scenario_file import load

    for name in scenarios:
        resolved = load(name, sets)
        check(resolved)
        typer.echo(f"{resolved.where}: valid")
