"""`areal-real eval`: what a checkpoint answers to prompts that never trained."""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from areal_real.commands.run import RunDirectoryArgument
from areal_report.terminal.options import Json

if TYPE_CHECKING:
    from interfaces.scenario import Resolved

Prompts = Annotated[
    int | None,
    typer.Option(min=1, help="Held-out prompts; default: real.evaluation_prompts.", show_default=False),
]
Checkpoint = Annotated[
    int | None,
    typer.Option("--step", min=1, help="Checkpoint after so many steps; default: last.", show_default=False),
]


def evaluate(
    directory: RunDirectoryArgument, step: Checkpoint = None, prompts: Prompts = None, as_json: Json = False
) -> None:
    """Sample answers of a checkpoint to held-out prompts, beside those of the model it began with.

    [bold]areal-real eval runs/a[/]

    [bold]areal-real eval runs/a --step 10 --prompts 256[/]
    """
    from areal_real.directory import scenario_of
    from areal_real.engine.cpu import set_environment
    from areal_real.setup import prepare
    from areal_report.terminal.output import to_json

    resolved = scenario_of(directory)
    checkpoint = _checkpoint(directory, step)
    set_environment()
    ground = prepare(resolved)
    rows = {
        "before": _measured(ground.model, resolved, prompts),
        f"after step {int(checkpoint.name.removeprefix('step-')) + 1}": _measured(
            checkpoint, resolved, prompts
        ),
    }
    if as_json:
        typer.echo(to_json({"directory": str(directory), "task": ground.task.name, "models": rows}), nl=False)
        return
    _show(rows)


def _checkpoint(directory: Path, step: int | None) -> Path:
    """The checkpoint after so many steps.

    Raises:
        CheckpointError: it is missing or not whole.
    """
    from areal_real.directory import CHECKPOINTS
    from areal_real.trainer.checkpoint import check_whole
    from areal_real.trainer.errors import CheckpointError
    from areal_real.trainer.settings import checkpoint_path

    place = directory / CHECKPOINTS
    there = sorted(int(n) + 1 for p in place.glob("step-*") if (n := p.name.removeprefix("step-")).isdigit())
    if not there or (step is not None and step not in there):
        kept = ", ".join(map(str, there)) or "none"
        raise CheckpointError(
            f"{place}: no checkpoint{'' if step is None else f' after step {step}'} (there are: {kept}); "
            "set run.checkpoint_every_steps, and take one that is there"
        )
    path = checkpoint_path(place, (step or there[-1]) - 1)
    check_whole(path)
    return path


def _measured(model: Path, resolved: "Resolved", prompts: int | None) -> dict[str, float]:
    import torch

    from areal_real.tasks.registry import find_task
    from areal_real.trainer.evaluation import evaluate as sample_answers
    from areal_real.trainer.evaluation import response_limit_tokens
    from areal_real.trainer.policy_model import load_model

    scenario = resolved.scenario
    if prompts is not None:
        real = scenario.real.model_copy(update={"evaluation_prompts": prompts})
        scenario = scenario.model_copy(update={"real": real})
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    task = find_task(scenario.real.task, model, resolved.where)
    limit = response_limit_tokens(scenario, resolved.where)
    return sample_answers(load_model(model, device), task, scenario, limit, lambda: None)


def _show(rows: dict[str, dict[str, float]]) -> None:
    from areal_report.terminal.tables import console, grid

    table = grid("model", "reward", "tokens of an answer", "ended by itself")
    for name, numbers in rows.items():
        table.add_row(name, *_cells(numbers))
    console().print(table)


def _cells(numbers: dict[str, Any]) -> tuple[str, str, str]:
    return (
        f"{numbers['evaluation_reward']:.3f}",
        f"{numbers['evaluation_response_tokens']:.1f}",
        f"{100 * numbers['evaluation_ended']:.1f} %",
    )
