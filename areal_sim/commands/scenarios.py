"""`areal-sim scenarios`: what comes with the package."""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

from textwrap import shorten

import typer

from areal_report.terminal.options import Json


def scenarios(as_json: Json = False) -> None:
    """List the scenarios, GPUs and models that come with the package.

    [bold]areal-sim scenarios[/]

    [bold]areal-sim scenarios --json[/]
    """
    from areal_report.terminal.output import to_json
    from areal_report.terminal.tables import console, grid
    from interfaces.scenario_file import available, shipped

    lists = {"scenarios": shipped(), "hardware": available("hardware"), "models": available("models")}
    described = {
        kind: {name: _first_comment(name if kind == "scenarios" else f"{kind}/{name}") for name in names}
        for kind, names in lists.items()
    }
    if as_json:
        typer.echo(to_json(described), nl=False)
        return
    output = console()
    for kind, entries in described.items():
        table = grid(kind, "")
        for name, text in entries.items():
            table.add_row(name, text)
        output.print(table)


def _first_comment(name: str) -> str:
    """The sentence that the file begins with."""
    from importlib.resources import files

    text = (files("scenarios") / f"{name}.toml").read_text(encoding="utf-8")
    words: list[str] = []
    for line in text.splitlines():
        comment = line.removeprefix("#").strip()
        if not line.startswith("#") or not comment:
            break
        words.append(comment)
        if comment.endswith("."):
            break
    return shorten(" ".join(words).removesuffix("."), 84, placeholder=" ...")
