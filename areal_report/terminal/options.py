"""Arguments and options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

ScenarioArgument = Annotated[
    str,
    typer.Argument(metavar="SCENARIO", help="A TOML file, or a shipped name such as [bold]areal/table7[/]."),
]
ScenarioList = Annotated[
    list[str],
    typer.Argument(metavar="SCENARIO SCENARIO...", help="Files or shipped names; the first is the base."),
]
Sets = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key of the scenario; may be repeated.",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Write the results into this directory.", show_default=False),
]
Seed = Annotated[
    int | None, typer.Option(min=0, help="Seed of the run, instead of the scenario's.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Jobs = Annotated[
    int | None,
    typer.Option(min=1, help="Simulations at a time; default: one for each core.", show_default=False),
]


Ray = Annotated[
    str | None,
    typer.Option(
        "--ray", metavar="[ADDRESS]", show_default=False,
        help="Simulate on a Ray cluster; without ADDRESS: the one of this machine, or one started here.",
    ),
]  # fmt: skip
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on where an earlier command with this --out was stopped.")
]
Png = Annotated[bool, typer.Option("--png", help="Also save every chart of the page as PNG; needs chromium.")]


class TraceKind(StrEnum):
    """How much of a run is written to disk."""

    full = "full"
    summary = "summary"


Trace = Annotated[
    TraceKind | None,
    typer.Option("--trace", help="What --out keeps; default: full up to 300k rollouts.", show_default=False),
]


def with_seed(sets: list[str], seed: int | None) -> list[str]:
    """`sets`, with the seed last so that it wins."""
    return sets if seed is None else [*sets, f"run.seed={seed}"]
