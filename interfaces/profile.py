"""Files of measured times, as `areal-real profile` writes them and `areal-sim calibrate` reads them.

JSON: one object a line, or one list of them. The first object (`"kind": "about"`) says where the numbers
come from; every other one is one measurement, its `kind` says of what. Format: docs/reference/profile.md.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, TypeAdapter, ValidationError

from interfaces.errors import DataError

Amount = Annotated[float, Field(ge=0)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class About(_Row):
    """Provenance of a file: it travels with everything that is fitted to it. Other keys are kept."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

    kind: Literal["about"] = "about"
    where: str = ""
    """Machine, or the publication that the numbers were taken from."""
    when: str = ""
    """Date of the measurement, ISO 8601."""
    engine: str = ""
    engine_version: str = ""
    hardware: str = ""
    model: str = ""


class DecodeRow(_Row):
    """One decode step: a token for each of `batch` sequences."""

    kind: Literal["decode"] = "decode"
    batch: PositiveInt
    context_tokens: Amount
    """Tokens in the KV cache, summed over the sequences."""
    seconds: PositiveFloat


class PrefillRow(_Row):
    """One prefill on one replica."""

    kind: Literal["prefill"] = "prefill"
    tokens: PositiveInt
    """Computed, over all its sequences; tokens found in the prefix cache do not count."""
    squared_tokens: Amount
    """Sum over the sequences of end^2 - start^2, the context growing from start to end."""
    sequences: PositiveInt = 1
    seconds: PositiveFloat


class TrainRow(_Row):
    """One training step: everything from the batch to the new weights, the proximal forward pass included."""

    kind: Literal["train"] = "train"
    tokens: PositiveInt
    """Prompt and response, over all sequences."""
    squared_tokens: Amount
    """Sum of the squared lengths of the sequences."""
    sequences: PositiveInt
    microbatches: PositiveInt
    """Of all optimizer steps and data-parallel ranks."""
    optimizer_steps: PositiveInt = 1
    seconds: PositiveFloat


class LoadRow(_Row):
    """One load of new weights by one replica, from the pause to the resumption."""

    kind: Literal["load"] = "load"
    bytes: PositiveInt
    seconds: PositiveFloat


class PublishRow(_Row):
    """One publish of new weights by the trainer."""

    kind: Literal["publish"] = "publish"
    bytes: PositiveInt
    seconds: PositiveFloat


Measurement = DecodeRow | PrefillRow | TrainRow | LoadRow | PublishRow

_ROW: TypeAdapter[About | Measurement] = TypeAdapter(
    Annotated[About | Measurement, Field(discriminator="kind")]
)


class Profile(NamedTuple):
    """A file of measurements."""

    about: About
    rows: tuple[Measurement, ...]


def parse_row(data: object, where: str) -> About | Measurement:
    """One object of a profile.

    Raises:
        DataError: it is none; the message names the key.
    """
    try:
        return _ROW.validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"][-1:]) or "kind"
        raise DataError(
            f"{where}: {key} = {first['input']!r}: {first['msg']}; see docs/reference/profile.md"
        ) from None


def read_profile(path: Path) -> Profile:
    """The measurements of a file.

    Raises:
        DataError: no such file, not JSON, or an object that is no row of a profile.
    """
    about, rows = About(), []
    for where, data in _objects(path):
        row = parse_row(data, where)
        if isinstance(row, About):
            about = row
        else:
            rows.append(row)
    if not rows:
        raise DataError(f"{path}: holds no measurement; see docs/reference/profile.md")
    return Profile(about, tuple(rows))


def write_profile(path: Path, about: About, rows: Iterable[Measurement]) -> None:
    """Write a file that `read_profile` reads back, one object a line."""
    lines = [json.dumps(row.model_dump(), allow_nan=False) for row in (about, *rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _objects(path: Path) -> Sequence[tuple[str, Any]]:
    """Each object and where it stands."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: is not UTF-8 text; see docs/reference/profile.md") from None
    try:
        if text.lstrip().startswith("["):
            return [(f"{path}: object {index}", data) for index, data in enumerate(json.loads(text), 1)]
        lines = [(f"{path}:{number}", line) for number, line in enumerate(text.splitlines(), 1)]
        return [(where, json.loads(line)) for where, line in lines if line.strip()]
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: is not JSON ({error}); see docs/reference/profile.md") from None
