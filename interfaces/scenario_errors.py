"""From a pydantic error to one sentence: file, key, value, rule, remedy."""

import difflib
from collections.abc import Iterable
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from interfaces.errors import ScenarioError


class Shown:
    """A value that prints as its text, without quotes: stands for what is missing or too long to repeat."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


MISSING = Shown("<missing>")

_BOUNDS = {
    "greater_than": ("gt", "must be greater than", "use a value above {}"),
    "greater_than_equal": ("ge", "must be at least", "use {} or more"),
    "less_than": ("lt", "must be less than", "use a value below {}"),
    "less_than_equal": ("le", "must be at most", "use {} or less"),
}
"""pydantic error type: name of its bound, rule, remedy."""
_FIXED = {
    "int_type": ("must be a whole number", "write it without quotes and without a decimal point"),
    "float_type": ("must be a number", "write it without quotes"),
    "string_type": ("must be a string", "put it in quotes"),
    "bool_type": ("must be true or false", "write true or false, without quotes"),
    "tuple_type": ("must be a list", "write it as [...]"),
    "model_type": ("must be a table", "write it as a [table] or as {key = value}"),
    "model_attributes_type": ("must be a distribution", 'write it as {type = "constant", value = 100}'),
    "finite_number": ("must be a finite number", "nan and inf are not allowed here, write a number"),
    "union_tag_not_found": (
        "has no type",
        'add type = "constant", "lognormal", "exponential", "gamma", "mixture" or "empirical"',
    ),
}
"""pydantic error type: rule, remedy."""


def brief(value: object) -> object:
    """`value`, or the beginning of it when it is too long for a message."""
    text = repr(value)
    return value if len(text) <= 80 else Shown(text[:77] + "...")


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The name that `word` was probably meant to be."""
    by_lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def suggest(word: str, names: Iterable[str], what: str) -> str:
    """`did you mean 'a'? <what>: a, b, c`."""
    known = sorted(names)
    guess = nearest(word, known)
    listing = f"{what}: {', '.join(known)}"
    return f"did you mean {guess!r}? {listing}" if guess else listing


def explain(where: str, root: type[BaseModel], error: ValidationError) -> ScenarioError:
    """The first problem in plain words, and how many more there are.

    An unknown key comes before a missing one: the first is often the second, misspelt.
    """
    problems = sorted(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
    first = problems[0]
    path, owner = _follow(root, first["loc"])
    rule, remedy = _rule(first, path, owner)
    if len(problems) > 1:
        remedy += f" (and {len(problems) - 1} more)"
    value = MISSING if first["type"] == "missing" else brief(first["input"])
    return ScenarioError(where, ".".join(path), value, rule, remedy)


def _follow(root: type[BaseModel], loc: tuple[int | str, ...]) -> tuple[list[str], type[BaseModel] | None]:
    """The dotted path a user would write, and the table that the last key belongs to.

    pydantic puts the tag of a union (`lognormal`) into its location; no user wrote that as a key.
    """
    path: list[str] = []
    here: tuple[type[BaseModel], ...] = (root,)
    owner: type[BaseModel] | None = root
    for part in loc:
        tagged = [m for m in here if len(here) > 1 and part in _tags(m)]
        if tagged:
            here, owner = (tagged[0],), tagged[0]
            continue
        path.append(str(part))
        if isinstance(part, int):
            continue
        owner = here[0] if len(here) == 1 else None
        field = owner.model_fields.get(part) if owner else None
        here = tuple(_models(field.annotation)) if field else ()
    return path, owner


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Tables that an annotation admits."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) is Literal:
        return []
    return [model for part in get_args(annotation) for model in _models(part)]


def _tags(model: type[BaseModel]) -> tuple[Any, ...]:
    field = model.model_fields.get("type")
    return get_args(field.annotation) if field else ()


def _rule(problem: ErrorDetails, path: list[str], owner: type[BaseModel] | None) -> tuple[str, str]:
    """Rule and remedy of one pydantic error; `owner` is the table that `path` ends in, None when unknown."""
    kind, context = problem["type"], problem.get("ctx", {})
    inside = f"[{'.'.join(path[:-1])}]" if path[:-1] else "the file"
    rule, remedy = f"is wrong: {problem['msg']}", "see scenarios/README.md"
    if kind == "extra_forbidden":
        rule = "is not a known key"
        remedy = suggest(path[-1], owner.model_fields if owner else (), f"keys of {inside}")
    elif kind == "missing":
        rule, remedy = "is required", _add(path[-1], owner, inside)
    elif kind in _BOUNDS:
        bound, words, use = _BOUNDS[kind]
        limit = f"{context[bound]:g}"
        rule, remedy = f"{words} {limit}", use.format(limit)
    elif kind in _FIXED:
        rule, remedy = _FIXED[kind]
    elif kind == "literal_error":
        rule = "is not a known value"
        remedy = suggest(str(problem["input"]), _quoted(context["expected"]), "values")
    elif kind == "union_tag_invalid":
        rule = f"has an unknown type {context['tag']!r}"
        remedy = suggest(str(context["tag"]), _quoted(context["expected_tags"]), "types")
    return rule, remedy


def _add(key: str, owner: type[BaseModel] | None, inside: str) -> str:
    """What to write when `key` is missing."""
    field = owner.model_fields.get(key) if owner else None
    tables = _models(field.annotation) if field else []
    if not tables:
        return f"add {key} = ... to {inside}"
    if len(tables) > 1:
        return f'add {key} = {{type = "constant", value = ...}} to {inside}'
    required = [name for name, below in tables[0].model_fields.items() if below.is_required()]
    return f"add a table [{key}] with {', '.join(required)}"


def _quoted(listing: str) -> list[str]:
    """The names in `'a', 'b' or 'c'`."""
    return listing.split("'")[1::2]
