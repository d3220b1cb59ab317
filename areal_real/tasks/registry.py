"""Tasks by name: one line here adds one."""

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

from areal_real.tasks.letter_chain import LetterChain
from areal_real.tasks.task import Task
from interfaces.errors import ScenarioError

Factory = Callable[[Path | None, str], Task]
"""Makes a task from the scenario's model directory (None: its own) and what followed the name's colon."""

BUILT_IN: dict[str, Factory] = {
    "letter_chain": lambda _, argument: LetterChain(argument or "s"),
}
KEY = "real.task"


def find_task(name: str, model_dir: Path | None = None, where: str = "scenario") -> Task:
    """The task of a name: `built_in`, `built_in:argument`, or `module:object` of the user's own.

    Args:
        name: as in `real.task`. A `module:object` is a `Task`, or makes one when called without arguments.
        model_dir: whose tokenizer text tasks use.
        where: path of the scenario file, for messages.

    Raises:
        ScenarioError: there is no such task, or it lacks a part.
    """
    built_in, _, argument = name.partition(":")
    if built_in in BUILT_IN:
        return BUILT_IN[built_in](model_dir, argument)
    if not argument:
        raise ScenarioError(
            where, KEY, name, "is no built-in task",
            f"choose one of {', '.join(sorted(BUILT_IN))}, or write `module:object`",
        )  # fmt: skip
    try:
        found = getattr(importlib.import_module(built_in), argument)
    except (ImportError, AttributeError) as error:
        raise ScenarioError(
            where, KEY, name, f"cannot be imported ({error})", "name a module on the path and an object in it"
        ) from error
    task = found() if isinstance(found, type) or not hasattr(found, "item") else found
    missing = [
        part
        for part in ("name", "eos_id", "pad_id", "reward", "item", "heldout", "decode")
        if not hasattr(task, part)
    ]
    if missing:
        raise ScenarioError(
            where, KEY, name, f"has no {', '.join(missing)}", "implement areal_real.tasks.task.Task"
        )
    return cast(Task, task)


def default_model_dir(task: Task) -> Path:
    """Where the warm start of a task is kept between runs: `$XDG_CACHE_HOME/areal-testbed/models/<task>`."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "areal-testbed" / "models" / task.name
