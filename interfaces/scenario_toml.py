"""Write a scenario as TOML: the inverse of `scenario_file.load`, for tools that make scenarios."""

import json
import math
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from interfaces.scenario import Resolved


def to_toml(resolved: Resolved, comments: tuple[str, ...] = ()) -> str:
    """A scenario file that loads as this scenario from any directory; values that are defaults are left out.

    Hardware and model files given by a path become absolute.
    """
    lines = [f"# {comment}".rstrip() for comment in comments]
    for name in type(resolved.scenario).model_fields:
        section: BaseModel = getattr(resolved.scenario, name)
        values = _values(section)
        if name in ("cluster", "model"):
            values = {key: _absolute(value, resolved.where) for key, value in values.items()}
        if values:
            lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
    return "\n".join(lines).lstrip("\n") + "\n"


def _values(section: BaseModel) -> dict[str, Any]:
    """What differs from the defaults, and what has none, in the order of the schema."""
    values = section.model_dump(mode="python")
    defaults = {key: field.get_default() for key, field in type(section).model_fields.items()}
    return {
        key: value
        for key, value in values.items()
        if value is not None and not (key in defaults and getattr(section, key) == defaults[key])
    }


def _absolute(value: Any, where: str) -> Any:
    if isinstance(value, str) and value.endswith(".toml"):
        return str((Path(where).parent / value).resolve())
    return value


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        inner = ", ".join(f"{key} = {_toml(below)}" for key, below in value.items() if below is not None)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float):
        return ("inf" if value > 0 else "-inf") if math.isinf(value) else repr(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
