"""Calibrated costs: what `areal-sim calibrate` writes and a scenario names as `cost.file = "cost.json"`.

Each part is linear: seconds = sum of parameter x amount. The amounts of a part, in the order of `PARAMETERS`:

- decode, one step: 1, sequences, context tokens over all sequences; with `knots` the first two are replaced
  by a piecewise linear function of the sequences (mixture of experts)
- prefill, one call: 1, tokens, sum of end^2 - start^2
- train, one step: optimizer steps, micro-batches, tokens, sum of squared lengths
- load and publish: 1, bytes
"""

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError

from interfaces.errors import DataError
from interfaces.profile import About

PartName = Literal["decode", "prefill", "train", "load", "publish"]

PARAMETERS: dict[PartName, tuple[str, ...]] = {
    "decode": ("step_s", "sequence_s", "context_token_s"),
    "prefill": ("call_s", "token_s", "squared_token_s"),
    "train": ("optimizer_step_s", "microbatch_s", "token_s", "squared_token_s"),
    "load": ("fixed_s", "byte_s"),
    "publish": ("fixed_s", "byte_s"),
}

_NonNegative = Annotated[float, Field(ge=0)]


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Estimate(_Data):
    """A parameter in seconds per unit of its amount, with its 95 % confidence interval."""

    value: _NonNegative
    low: _NonNegative
    high: _NonNegative


class Validity(_Data):
    """Smallest and largest amount in the data; a prediction outside is an extrapolation."""

    low: _NonNegative
    high: _NonNegative


class Part(_Data):
    """One fitted part."""

    parameters: dict[str, Estimate]
    knots: tuple[PositiveInt, ...] = ()
    """decode only: batch sizes at which `batch_<n>_s` is tabulated instead of `step_s` and `sequence_s`."""
    validity: dict[str, Validity]
    """By amount: `sequences`, `context_tokens`, `tokens`, `bytes`."""
    assumed: dict[str, str] = {}
    """Parameters that were not fitted, and why their value was taken instead."""
    rows: PositiveInt
    median_error: _NonNegative
    """Of |predicted - measured| / measured over the rows."""
    worst_error: _NonNegative

    def seconds(self, name: str) -> float:
        """A parameter, 0 if this part has none of that name."""
        found = self.parameters.get(name)
        return 0.0 if found is None else found.value


class Calibration(_Data):
    """A file of calibrated costs; parts that were not measured are missing."""

    schema_version: Literal[1] = 1
    made_by: str
    """Version of this package."""
    about: tuple[About, ...]
    """Provenance of every file it was fitted to."""
    sources: tuple[str, ...]
    """Names of those files."""
    tensor_parallel: NonNegativeInt = 0
    """GPUs of one replica where that is known; 0: not told."""
    parts: dict[PartName, Part]

    def told(self, key: str) -> str:
        """What the files say about `key` (`hardware`, `model`, ...); files that differ are joined by `+`."""
        return " + ".join(dict.fromkeys(value for about in self.about if (value := getattr(about, key))))


def write_calibration(calibration: Calibration) -> str:
    """JSON text."""
    return json.dumps(calibration.model_dump(mode="json"), indent=2, allow_nan=False) + "\n"


def read_calibration(path: Path) -> Calibration:
    """The calibrated costs of a file.

    Raises:
        DataError: it cannot be read, or is none.
    """
    try:
        return Calibration.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error}); check the path") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"])) or "file"
        raise DataError(
            f"{path}: {key}: {first['msg']}; write it with `areal-sim calibrate --from FILE -o {path.name}`"
        ) from None
