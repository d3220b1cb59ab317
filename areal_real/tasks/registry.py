"""Tasks by name: one line here adds one."""

import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from areal_real.tasks.gym import ReasoningGym
from areal_real.tasks.jsonl import Jsonl
from areal_real.tasks.letter_chain import LetterChain
from areal_real.tasks.task import Task
from interfaces.errors import ScenarioError

KEY = "real.task"
PARTS = ("name", "eos_id", "pad_id", "reward", "item", "heldout", "decode", "warm_start")


class Request(NamedTuple):
    """What a built-in task is made from."""

    argument: str
    """What followed the colon of its name."""
    model_dir: Path | None
    """Directory with the tokenizer of the model; None: the scenario names no model."""
    where: str
    name: str

    def refuse(self, rule: str, remedy: str) -> ScenarioError:
        """The error that says why it cannot be made."""
        return ScenarioError(self.where, KEY, self.name, rule, remedy)


def _letter_chain(request: Request) -> Task:
    size = request.argument or "s"
    if size not in ("s", "xs"):
        raise request.refuse("has no model of that size", "use letter_chain:s or letter_chain:xs")
    return LetterChain(size)


def _reasoning_gym(request: Request) -> Task:
    if not request.argument:
        raise request.refuse("needs the name of a dataset", "write reasoning_gym:chain_sum, say")
    return ReasoningGym(request.argument, request.model_dir, request.where)


def _jsonl(request: Request) -> Task:
    return Jsonl(request.argument, request.model_dir, request.where)


BUILT_IN: Mapping[str, Callable[[Request], Task]] = {
    "jsonl": _jsonl,
    "letter_chain": _letter_chain,
    "reasoning_gym": _reasoning_gym,
}


def find_task(name: str, model_dir: Path | None = None, where: str = "scenario") -> Task:
    """The task of a name: `built_in`, `built_in:argument`, or `module:object` of the user's own.

    Args:
        name: as in `real.task`. A `module:object` is a `Task`, or makes one when called without arguments.
        model_dir: whose tokenizer text tasks use.
        where: path of the scenario file, for messages.

    Raises:
        ScenarioError: there is no such task, or it lacks a part.
    """
    first, _, argument = name.partition(":")
    request = Request(argument, model_dir, where, name)
    if first in BUILT_IN:
        return BUILT_IN[first](request)
    if not argument:
        choices = ", ".join(sorted(BUILT_IN))
        raise request.refuse("is no built-in task", f"choose one of {choices}, or write `module:object`")
    try:
        found = getattr(importlib.import_module(first), argument)
    except (ImportError, AttributeError) as error:
        raise request.refuse(f"cannot be imported ({error})", "name a module on the path") from error
    task = _made(found, request)
    missing = [part for part in PARTS if not hasattr(task, part)]
    if missing:
        raise request.refuse(f"has no {', '.join(missing)}", "implement areal_real.tasks.task.Task")
    return cast(Task, task)


def _made(found: Any, request: Request) -> Any:
    if not callable(found):
        return found
    try:
        return found()
    except TypeError as error:
        raise request.refuse(
            f"fails ({error})", "make it one that works when called without arguments"
        ) from error


def default_model_dir(task: Task) -> Path:
    """Where the warm start of a task is kept between runs: `$XDG_CACHE_HOME/areal-testbed/models/<task>`."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "areal-testbed" / "models" / task.name
