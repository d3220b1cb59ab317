"""The protocol: which numbers are predicted by which runs, and which free parameters were fitted on what."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveFloat, model_validator

MOST_PARAMETERS = 2
"""Free parameters of one pair of hardware and engine."""
Metric = Literal[
    "throughput", "step_s", "generated", "generated_per_gpu_s", "train_s", "load_s"
]  # fmt: skip
"""Effective throughput; step time; generation throughput; tokens per GPU-second of generation; training time
of a step; time of one weight load."""


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Parameter(_Data):
    """A free parameter: one value for all scenarios of a pair of hardware and engine."""

    name: str
    pair: str
    unit: str
    scenarios: str
    """Prefix of the scenarios it is set in."""
    keys: list[str]
    value: float
    bounds: tuple[PositiveFloat, PositiveFloat]
    fitted_on: list[str]
    """Ids of the rows it was fitted on."""
    why: str


class Run(_Data):
    """One simulation."""

    id: str
    scenario: str
    set: list[str] = []


class Row(_Data):
    """One published number: a metric of a run, or its ratio to that of another run."""

    id: str
    suite: Literal["areal", "other"]
    what: str
    published: PositiveFloat
    metric: Metric
    run: str
    over: str | None = None
    limit: PositiveFloat
    """Goal for the relative error."""
    regime: str
    suspect: str = ""
    """Why the number, or what is known of its configuration, is in doubt; such rows are shown, not scored."""

    @property
    def runs(self) -> tuple[str, ...]:
        """Ids of the runs it needs."""
        return (self.run,) if self.over is None else (self.run, self.over)


class Protocol(_Data):
    """Everything that `validate` goes by."""

    parameter: list[Parameter]
    run: list[Run]
    row: list[Row]

    @model_validator(mode="after")
    def _holds_together(self) -> "Protocol":
        runs, rows = {run.id for run in self.run}, {row.id for row in self.row}
        if len(runs) < len(self.run) or len(rows) < len(self.row):
            raise ValueError("an id is given twice")
        missing = [name for row in self.row for name in row.runs if name not in runs]
        missing += [name for p in self.parameter for name in p.fitted_on if name not in rows]
        if missing:
            raise ValueError(f"not defined: {', '.join(missing)}")
        for pair in {p.pair for p in self.parameter}:
            number = sum(p.pair == pair for p in self.parameter)
            if number > MOST_PARAMETERS:
                raise ValueError(f"{number} free parameters for {pair}, {MOST_PARAMETERS} at most")
        return self

    @property
    def calibration(self) -> frozenset[str]:
        """Ids of the rows that something was fitted on."""
        return frozenset(name for parameter in self.parameter for name in parameter.fitted_on)

    def named(self, run: str) -> Run:
        """A run by its id."""
        return next(r for r in self.run if r.id == run)


@cache
def protocol() -> Protocol:
    """The protocol that comes with the package, `scenarios/measured/protocol.toml`."""
    text = (files("scenarios") / "measured" / "protocol.toml").read_text(encoding="utf-8")
    return Protocol.model_validate(tomllib.loads(text))
