"""`--set key=value`: change a scenario from the command line before it is validated."""

import tomllib
from collections.abc import Sequence
from typing import Any

from interfaces.errors import ScenarioError

WHERE = "--set"


def parse(text: str) -> tuple[tuple[str, ...], Any]:
    """Split `policy.max_staleness=8` into its path and its value.

    The value is read as TOML (`8`, `0.5`, `true`, `inf`, `"a b"`, `[{...}]`); what is not TOML is a string.

    Raises:
        ScenarioError: there is no `=`, or the key is not a dotted path.
    """
    key, equals, raw = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        raise ScenarioError(WHERE, "argument", text, "is not key=value", "write policy.max_staleness=8")
    return path, parse_value(raw.strip())


def parse_value(raw: str) -> Any:
    """One TOML value, or the text itself when it is not one."""
    try:
        document = tomllib.loads(f"value = {raw}")
    except (ValueError, RecursionError):  # not TOML, an integer without end, nesting without end
        return raw
    return document["value"] if document.keys() == {"value"} else raw


def apply(data: dict[str, Any], sets: Sequence[str]) -> None:
    """Carry out `sets` on the parsed file `data`, in order; tables that are missing are created.

    Raises:
        ScenarioError: a path runs through something that is not a table.
    """
    for text in sets:
        path, value = parse(text)
        table = data
        for depth, part in enumerate(path[:-1], start=1):
            below = table.setdefault(part, {})
            if not isinstance(below, dict):
                inner = ".".join(path[:depth])
                remedy = f"set {inner} as a whole, for example {inner}=[{{...}}]"
                if not isinstance(below, list):
                    remedy = f"set {inner} itself"
                raise ScenarioError(
                    WHERE, ".".join(path), value, f"goes through {inner}, which is not a table", remedy
                )
            table = below
        table[path[-1]] = value
