"""Measured seconds with the amounts that explain them, from whatever file they come."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from interfaces.calibration import PartName
from interfaces.profile import (
    About,
    DecodeRow,
    LoadRow,
    Measurement,
    PrefillRow,
    Profile,
    PublishRow,
    TrainRow,
)


class Sample(NamedTuple):
    """One measurement of a part, or the sum of many."""

    part: PartName
    amounts: dict[str, float]
    """By parameter: what it is multiplied with. A parameter that is missing was not observable."""
    validity: dict[str, float]
    """Sizes as `Part.validity` names them; of a sum: of an average one."""
    seconds: float
    source: str


@dataclass
class Measured:
    """What was read so far."""

    samples: list[Sample] = field(default_factory=list)
    about: list[About] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    tensor_parallel: set[int] = field(default_factory=set)

    def add_profile(self, path: Path, profile: Profile) -> None:
        """Take the rows of a profile."""
        self.about.append(profile.about)
        self.sources.append(path.name)
        self.samples += of_rows(profile.rows, path.name)


def of_rows(rows: Iterable[Measurement], source: str) -> list[Sample]:
    """Samples of the rows of a profile."""
    return [_of_row(row, source) for row in rows]


def _of_row(row: Measurement, source: str) -> Sample:
    match row:
        case DecodeRow(batch=batch, context_tokens=context):
            return decode_sample(1.0, float(batch), context, row.seconds, source)
        case PrefillRow(tokens=tokens, squared_tokens=squared):
            amounts = {"call_s": 1.0, "token_s": float(tokens), "squared_token_s": squared}
            return Sample("prefill", amounts, {"tokens": float(tokens)}, row.seconds, source)
        case TrainRow():
            amounts = {
                "optimizer_step_s": float(row.optimizer_steps), "microbatch_s": float(row.microbatches),
                "token_s": float(row.tokens), "squared_token_s": row.squared_tokens,
            }  # fmt: skip
            return Sample("train", amounts, {"tokens": float(row.tokens)}, row.seconds, source)
        case LoadRow() | PublishRow():
            size = float(row.bytes)
            return Sample(row.kind, {"fixed_s": 1.0, "byte_s": size}, {"bytes": size}, row.seconds, source)


def decode_sample(steps: float, sequences: float, context: float, seconds: float, source: str) -> Sample:
    """Of so many decode steps; sequences and context tokens are summed over the steps."""
    amounts = {"step_s": steps, "sequence_s": sequences, "context_token_s": context}
    sizes = {"sequences": sequences / steps, "context_tokens": context / steps}
    return Sample("decode", amounts, sizes, seconds, source)
