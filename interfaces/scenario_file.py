"""Read a scenario file: TOML, `--set`, schema, the hardware and model it names, and whether it can run.

A scenario is data: nothing in it is executed. Whatever is wrong with it is a `ScenarioError` that names the
file, the key, the value, the rule and the remedy.
"""

import contextlib
import json
import math
import tomllib
from collections.abc import Iterator, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from interfaces import feasibility, overrides
from interfaces.errors import ScenarioError
from interfaces.hardware import Hardware, Model
from interfaces.policies.registry import build_policy
from interfaces.scenario import Resolved, Scenario
from interfaces.scenario_errors import Shown, brief, explain, suggest
from interfaces.setup import loop_config

PACKAGE = "scenarios"
_COMPONENTS = ("hardware", "models", "fits", "measured")
_KEYS = {"hardware": "cluster.hardware", "models": "model.name"}
_LARGEST = 2**53
_T = TypeVar("_T", bound=BaseModel)


def load(path_or_name: str | Path, sets: Sequence[str] = ()) -> Resolved:
    """The scenario of a file on disk or, when there is none, of a shipped name such as `areal/table7`.

    `sets` are `key=value` strings that change the file before it is validated, see `overrides`.

    Raises:
        ScenarioError: the file or anything in it is wrong, or the scenario cannot run on this hardware.
    """
    where, source, folder = _find(str(path_or_name))
    data = _read_toml(where, source)
    overrides.apply(data, sets)
    _resolve_policy(where, data)
    _refuse_huge(where, data)
    _resolve_files(where, data, folder)
    scenario = validate(Scenario, where, data)
    resolved = Resolved(
        where=where,
        scenario=scenario,
        hardware=load_hardware(scenario.cluster.hardware, where, folder),
        model=load_model(scenario.model.name, where, folder),
    )
    feasibility.check(resolved, colocated=_is_colocated(resolved))
    return resolved


def _is_colocated(resolved: Resolved) -> bool:
    """Whether its policy shares the GPUs; one that cannot be built is refused later, by its own message."""
    choice, config = resolved.scenario.policy, loop_config(resolved.scenario)
    for parameters in (choice.parameters, {}):
        with contextlib.suppress(ScenarioError):
            return build_policy(choice.name, parameters, config, resolved.where).capacity.colocated
    return False


def shipped() -> list[str]:
    """Names of the scenarios that come with the package, such as `areal/table7`, sorted."""
    folders = (f for f in files(PACKAGE).iterdir() if f.is_dir() and f.name not in _COMPONENTS)
    return sorted(f"{folder.name}/{name}" for folder in folders for name in _stems(folder))


def available(kind: str) -> list[str]:
    """Names of the shipped `hardware` or `models` files."""
    return _stems(files(PACKAGE) / kind)


def load_hardware(name: str, where: str = "hardware", folder: Traversable | None = None) -> Hardware:
    """The GPU of that name in `scenarios/hardware`, or of the `.toml` file at a path relative to `folder`."""
    return _component(Hardware, "hardware", name, where, folder)


def load_model(name: str, where: str = "model", folder: Traversable | None = None) -> Model:
    """The model of that name in `scenarios/models`, or of the `.toml` file at a path relative to `folder`."""
    return _component(Model, "models", name, where, folder)


def validate(schema: type[_T], where: str, data: dict[str, Any]) -> _T:
    """`data` as parsed from TOML or JSON, checked against a pydantic schema.

    Raises:
        ScenarioError: the first problem, in plain words.
    """
    try:
        return schema.model_validate(_frozen(data))
    except ValidationError as error:
        raise explain(where, schema, error) from None


def to_json(resolved: Resolved) -> str:
    """The resolved scenario as JSON text, for the run directory; an infinite policy parameter is `"inf"`."""
    data = resolved.model_dump(mode="python")
    return json.dumps(_spelled(data), indent=2, allow_nan=False)


def from_json(text: str, where: str = "scenario.json") -> Resolved:
    """The inverse of `to_json`; `where` is the file it was read from, for messages.

    Raises:
        ScenarioError: the text is not JSON, or not a resolved scenario.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        line = Shown(f"line {error.lineno}, column {error.colno}")
        raise ScenarioError(where, "file", line, f"is not JSON: {error.msg}", "run it again") from None
    if isinstance(data, dict) and isinstance(data.get("scenario"), dict):
        _resolve_policy(where, data["scenario"])
    return validate(Resolved, where, data)


def changed(resolved: Resolved, sets: Sequence[str]) -> Resolved:
    """A resolved scenario with `sets` applied; hardware and model are looked up only if their name changed.

    Paths in `sets` start here, in the working directory.

    Raises:
        ScenarioError: what comes out is wrong, or cannot run.
    """
    where, folder = resolved.where, Path()
    data = json.loads(to_json(resolved))["scenario"]
    overrides.apply(data, sets)
    _resolve_policy(where, data)
    _refuse_huge(where, data)
    _resolve_files(where, data, folder)
    scenario = validate(Scenario, where, data)
    hardware, model = resolved.hardware, resolved.model
    if scenario.cluster.hardware != resolved.scenario.cluster.hardware:
        hardware = load_hardware(scenario.cluster.hardware, where, folder)
    if scenario.model.name != resolved.scenario.model.name:
        model = load_model(scenario.model.name, where, folder)
    new = Resolved(where=where, scenario=scenario, hardware=hardware, model=model)
    feasibility.check(new, colocated=_is_colocated(new))
    return new


def _find(name: str) -> tuple[str, Traversable, Traversable]:
    """Name for messages, the file, and the folder that its relative paths start from."""
    path = Path(name)
    if _is_file(path):
        return name, path, path.parent
    short = name.removeprefix("./").removeprefix("scenarios/").removesuffix(".toml")
    names = shipped()
    if short not in names:
        remedy = suggest(short, names, "shipped scenarios")
        raise ScenarioError(name, "scenario", name, "is neither a file nor a shipped scenario", remedy)
    source = files(PACKAGE).joinpath(f"{short}.toml")
    return f"scenarios/{short}.toml", source, files(PACKAGE) / short.partition("/")[0]


def _is_file(source: Traversable) -> bool:
    """`source.is_file()`, False too for names that no file system can hold."""
    try:
        return source.is_file()
    except OSError:
        return False


def _stems(folder: Traversable) -> list[str]:
    return sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml"))


def _read_toml(where: str, source: Traversable) -> dict[str, Any]:
    try:
        text = source.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ScenarioError(
            where, "file", Shown(f"byte {error.start}"), "is not UTF-8", "save it as UTF-8"
        ) from None
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise ScenarioError(where, "file", where, f"cannot be read ({reason})", "check its rights") from None
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ScenarioError(where, "file", where, "nests too deeply", "see https://toml.io") from None
    except ValueError as error:  # TOMLDecodeError, or an integer of thousands of digits
        lines = text.splitlines()
        number = _line_number(str(error), len(lines))
        shown = brief(lines[number - 1].strip() if lines else "")
        rule = f"is not valid TOML: {error}"
        raise ScenarioError(where, f"line {number}", shown, rule, "see https://toml.io") from None


def _line_number(message: str, last: int) -> int:
    """Line that a `tomllib` message names; it says "at end of document" for the last one."""
    _, found, rest = message.partition("(at line ")
    return min(int(rest.partition(",")[0]) if found else last, last) or 1


def _component(schema: type[_T], kind: str, name: str, where: str, folder: Traversable | None) -> _T:
    """A hardware or model file by name or by path."""
    if name.endswith(".toml"):
        source = (folder or Path()).joinpath(name)
        if not _is_file(source):
            remedy = "give a path relative to the scenario file, or one of: " + ", ".join(available(kind))
            raise ScenarioError(where, _KEYS[kind], brief(name), "is not a file", remedy)
        place = str(source)
    else:
        if name not in available(kind):
            remedy = suggest(name, available(kind), "available") + "; or the path of a .toml file"
            raise ScenarioError(where, _KEYS[kind], brief(name), f"is not in scenarios/{kind}", remedy)
        source, place = files(PACKAGE).joinpath(kind, f"{name}.toml"), f"scenarios/{kind}/{name}.toml"
    return validate(schema, place, _read_toml(place, source))


def _resolve_policy(where: str, data: dict[str, Any]) -> None:
    """Spell infinity as a number in the policy's parameters, and refuse what is not a number."""
    policy = data.get("policy")
    if not isinstance(policy, dict):
        return
    for key, value in policy.items():
        if value == "inf" and key != "name":
            policy[key] = math.inf
        elif isinstance(value, float) and (math.isnan(value) or value == -math.inf):
            rule = "must be a number or inf"
            raise ScenarioError(where, f"policy.{key}", value, rule, "write a number, or inf for no limit")


def _refuse_huge(where: str, data: dict[str, Any]) -> None:
    """Refuse integers beyond what a float holds exactly: they only overflow later, far from their cause."""
    for path, _, value in _leaves(data):
        if isinstance(value, int) and abs(value) > _LARGEST:
            remedy = f"use {_LARGEST} or less"
            raise ScenarioError(where, ".".join(path), brief(value), "is too large", remedy)


def _resolve_files(where: str, data: dict[str, Any], folder: Traversable) -> None:
    """Make every `file = ...` (empirical distribution, calibrated costs) an absolute path that exists."""
    for path, table, value in _leaves(data):
        if path[-1] != "file" or path[0] == "policy" or not isinstance(value, str):
            continue
        source = folder.joinpath(value)
        if not _is_file(source):
            remedy = f"give a path relative to the scenario file, in {folder}"
            raise ScenarioError(where, ".".join(path), brief(value), "is not a file", remedy)
        table["file"] = str(source.resolve() if isinstance(source, Path) else source)


def _leaves(
    data: Any, path: tuple[str, ...] = (), table: Any = None
) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Path, containing table or list, and value of everything that is neither a table nor a list."""
    if isinstance(data, dict | list):
        below = data.items() if isinstance(data, dict) else enumerate(data)
        for key, value in list(below):
            yield from _leaves(value, (*path, str(key)), data)
    else:
        yield path, table, data


def _frozen(value: Any) -> Any:
    """Lists as tuples, all the way down: sections are frozen and strict."""
    if isinstance(value, dict):
        return {key: _frozen(below) for key, below in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _spelled(value: Any) -> Any:
    """Infinity as the string "inf", which JSON has no number for."""
    if isinstance(value, dict):
        return {key: _spelled(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_spelled(below) for below in value]
    return "inf" if isinstance(value, float) and math.isinf(value) else value
