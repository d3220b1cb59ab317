"""Decode steps from measurements where there are some, everything else from the roofline.

The shipped fits, `scenarios/fits/decode.toml`, are sums of measured kernels, so the overheads and the
slowdown of the hardware file are added to them as to the roofline. DeepSeek-R1-Distill-Qwen-1.5B uses the
fit of Qwen2.5-1.5B; its output head is untied, but a decode step multiplies with the same parameters.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

from areal_sim.cost.roofline import DecodeKernels, RooflineCost, RooflineKernels
from interfaces.errors import ScenarioError
from interfaces.scenario import Resolved

SHIPPED = "scenarios/fits/decode.toml"


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, allow_inf_nan=False)

    gpu: str
    model: str
    tp: PositiveInt
    gamma_ms_per_ktok: Annotated[float, Field(ge=0)]
    mape_pct: float | None = None

    @property
    def error(self) -> str:
        return "" if self.mape_pct is None else f", mean error of the fit {self.mape_pct:g} %"

    @property
    def per_context_token_s(self) -> float:
        """For each token of context."""
        return self.gamma_ms_per_ktok * 1e-6


class LineFit(_Row):
    """A decode step that is linear in its sequences: `alpha + beta * n + gamma * context`."""

    backend: str
    version: str
    alpha_ms: Annotated[float, Field(ge=0)]
    beta_ms_per_seq: Annotated[float, Field(ge=0)]

    @property
    def source(self) -> str:
        """Which measurement this is."""
        return f"fitted: {self.model} tp{self.tp} on {self.gpu}, {self.backend} {self.version}{self.error}"

    def base_s(self, n: int) -> float:
        """Without context, for `n` sequences."""
        return (self.alpha_ms + self.beta_ms_per_seq * n) * 1e-3


class TableFit(_Row):
    """A decode step tabulated by its sequences (mixture of experts): `f(n) + gamma * context`.

    Linear between the entries; beyond the last, on with its slope; below the first, the first.
    """

    sequences: tuple[PositiveInt, ...]
    f_ms: tuple[PositiveFloat, ...]

    @property
    def source(self) -> str:
        """Which measurement this is."""
        return f"fitted: {self.model} tp{self.tp} on {self.gpu}, table by batch{self.error}"

    def base_s(self, n: int) -> float:
        """Without context, for `n` sequences."""
        x, y = self.sequences, self.f_ms
        if n <= x[-1] or len(x) == 1:
            return float(np.interp(n, x, y)) * 1e-3
        slope = (y[-1] - y[-2]) / (x[-1] - x[-2])
        return (y[-1] + slope * (n - x[-1])) * 1e-3


class FittedCost(RooflineCost):
    """`RooflineCost` with measured decode kernels for this GPU, engine, model and tensor parallelism.

    A table is preferred to a line. `provenance` says which measurement is used, or that there is none.

    Raises:
        ScenarioError: `cost.file` is not a table of fits, or has none for this scenario.
    """

    def __init__(self, resolved: Resolved) -> None:
        kernels = find_fit(resolved)
        super().__init__(resolved, kernels)
        if kernels is None:
            engine = resolved.scenario.engine
            asked = (
                f"{resolved.model.name} tp{engine.tensor_parallel} on {resolved.hardware.name}, {engine.name}"
            )
            self.provenance = f"{RooflineKernels.source} (no measured decode steps for {asked})"


def find_fit(resolved: Resolved) -> DecodeKernels | None:
    """The measured decode steps for this scenario, from its `cost.file` or else the shipped table."""
    own = resolved.scenario.cost.file
    if own is None:
        tables, lines = _shipped()
        return _match(resolved, tables, lines)
    tables, lines = _calibrated(resolved.where, own)
    fit = _match(resolved, tables, lines)
    if fit is None:
        engine, model = resolved.scenario.engine, resolved.model.fits_as or resolved.model.name
        asked = f"{model} tp{engine.tensor_parallel} on {_gpu(resolved)}, {engine.name}"
        raise ScenarioError(
            resolved.where,
            "cost.file",
            own,
            f"has no fit for {asked}",
            "calibrate this pair, or leave it out",
        )
    return fit


_Tables = tuple[TableFit, ...]
_Lines = tuple[LineFit, ...]


def _gpu(resolved: Resolved) -> str:
    return resolved.hardware.fits_as or resolved.hardware.name


def _match(resolved: Resolved, tables: _Tables, lines: _Lines) -> DecodeKernels | None:
    engine = resolved.scenario.engine
    key = (_gpu(resolved), resolved.model.fits_as or resolved.model.name, engine.tensor_parallel)
    for table in tables:
        if (table.gpu, table.model, table.tp) == key:
            return table
    for line in lines:
        if (line.gpu, line.model, line.tp) == key and line.backend == engine.name:
            return line
    return None


@cache
def _shipped() -> tuple[_Tables, _Lines]:
    return _parse(tomllib.loads(files("scenarios").joinpath("fits", "decode.toml").read_text("utf-8")))


def _calibrated(where: str, file: str) -> tuple[_Tables, _Lines]:
    path = Path(where).parent / file
    try:
        return _parse(tomllib.loads(path.read_text("utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValidationError) as error:
        rule = f"is not a table of fits: {str(error).splitlines()[0]}"
        raise ScenarioError(where, "cost.file", file, rule, f"write it in the form of {SHIPPED}") from None


def _parse(data: Mapping[str, object]) -> tuple[_Tables, _Lines]:
    rows = {key: value if isinstance(value, list) else [] for key, value in data.items()}
    tables = tuple(TableFit.model_validate(_as_tuples(row)) for row in rows.get("moe", []))
    return tables, tuple(LineFit.model_validate(row) for row in rows.get("fit", []))


def _as_tuples(row: Mapping[str, object]) -> dict[str, object]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
