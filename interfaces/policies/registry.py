"""Policy names: a preset is a frozen dataclass whose fields are the parameters a scenario may set."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from interfaces.errors import ScenarioError
from interfaces.policies.protocols import Policy
from interfaces.view import LoopConfig

ENTRY_POINT_GROUP = "areal_testbed.policies"


class Preset(Protocol):
    """Parameters of a named system, and how they become the five decisions."""

    def build(self, config: LoopConfig) -> Policy:
        """The policy for a run of this shape."""


P = TypeVar("P", bound=type)
_PRESETS: dict[str, type] = {}


def register(name: str) -> Callable[[P], P]:
    """Make a preset known under a name: a class decorator."""

    def add(preset: P) -> P:
        if not is_dataclass(preset):
            raise TypeError(f"preset {name!r} must be a dataclass")
        _PRESETS[name] = preset
        return preset

    return add


def presets() -> dict[str, type]:
    """All known presets by name; those of other packages come by the entry point group."""
    _find_presets()
    return dict(_PRESETS)


@cache
def _find_presets() -> None:
    """Import this package's presets and those of installed packages, once a process: the search is slow."""
    import interfaces.policies.presets  # noqa: F401, PLC0415 (registers itself)

    for point in entry_points(group=ENTRY_POINT_GROUP):
        _PRESETS.setdefault(point.name, point.load())


def build_policy(name: str, parameters: dict[str, Any], config: LoopConfig, where: str) -> Policy:
    """Turn the `[policy]` section into a policy.

    Raises:
        ScenarioError: unknown name, unknown parameter, or a value the preset refuses.
    """
    known = presets()
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        rule = "is not a scheduling policy"
        raise ScenarioError(where, "policy.name", name, rule, f"{hint}known: {', '.join(sorted(known))}")
    built: Preset = preset_with(known[name], name, parameters, where)
    try:
        return built.build(config)
    except ValidationError as error:
        raise _refusal(error, where) from None


def preset_with(preset: type, name: str, parameters: dict[str, Any], where: str) -> Any:
    """An instance of a preset (a dataclass) with these parameters, validated.

    Raises:
        ScenarioError: a parameter that it does not have, or a value that it refuses.
    """
    valid = [field.name for field in fields(preset)]
    for key, value in parameters.items():
        if key not in valid:
            near = get_close_matches(key, valid, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            remedy = f"{hint}it has: {', '.join(valid) or 'no parameters'}"
            raise ScenarioError(where, f"policy.{key}", value, f"is not a parameter of {name!r}", remedy)
    try:
        return TypeAdapter(preset).validate_python(parameters)
    except ValidationError as error:
        raise _refusal(error, where) from None


def _refusal(error: ValidationError, where: str) -> ScenarioError:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"][:1])
    rule = f"is not allowed ({first['msg'].removeprefix('Value error, ')})"
    return ScenarioError(where, f"policy.{key}", first["input"], rule, "correct the value")
