"""The points of a sweep: the product of all `--over key=v1,v2,...`."""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from interfaces import overrides
from interfaces.errors import ScenarioError

_OPENING, _CLOSING = "[{", "]}"


class Axis(NamedTuple):
    """One key and the values it takes, as written."""

    key: str
    values: tuple[str, ...]


def axis(text: str) -> Axis:
    """Split `policy.max_staleness=0,1,inf`; commas within brackets, braces or quotes belong to a value.

    Raises:
        ScenarioError: not `key=v1,v2,...`, or a value is missing or twice there.
    """
    key, equals, raw = text.partition("=")
    remedy = "write --over policy.max_staleness=0,1,2,4"
    values = tuple(value.strip() for value in _split(raw))
    if not equals or not key.strip() or not all(values):
        raise ScenarioError("--over", "argument", text, "is not key=v1,v2,...", remedy)
    twice = [value for value in values if values.count(value) > 1]
    if twice:
        raise ScenarioError("--over", key, twice[0], "is there twice", "give each value once")
    overrides.parse(f"{key}={values[0]}")
    return Axis(key.strip(), values)


def points(axes: Sequence[Axis]) -> list[tuple[str, ...]]:
    """Values of every point; the last axis changes fastest.

    Raises:
        ScenarioError: a key has two axes.
    """
    keys = [one.key for one in axes]
    for key in keys:
        if keys.count(key) > 1:
            raise ScenarioError("--over", "key", key, "is there twice", "give all its values in one --over")
    return list(product(*(one.values for one in axes)))


def _split(raw: str) -> list[str]:
    parts, depth, quote = [""], 0, ""
    for character in raw:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        else:
            depth += (character in _OPENING) - (character in _CLOSING)
        if character == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return parts
