"""Distributions a scenario may name: lengths in tokens, latencies in seconds, turns as counts."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat


class _Distribution(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Constant(_Distribution):
    """Always the same value."""

    type: Literal["constant"]
    value: Annotated[float, Field(ge=0)]

    @property
    def largest(self) -> float | None:
        """Upper end of the support, or None when it has none."""
        return self.value


class LogNormal(_Distribution):
    """`exp(N(ln median, sigma))`, capped at `max` (capped values stay, they are not drawn again)."""

    type: Literal["lognormal"]
    median: PositiveFloat
    sigma: Annotated[float, Field(ge=0)]
    max: PositiveFloat | None = None

    @property
    def largest(self) -> float | None:
        """Upper end of the support, or None when it has none."""
        return self.max


class Exponential(_Distribution):
    """Exponential with the given mean, capped at `max`."""

    type: Literal["exponential"]
    mean: PositiveFloat
    max: PositiveFloat | None = None

    @property
    def largest(self) -> float | None:
        """Upper end of the support, or None when it has none."""
        return self.max


class Empirical(_Distribution):
    """Quantiles of one column of a CSV or Parquet file, path relative to the scenario file."""

    type: Literal["empirical"]
    file: str
    column: str
    max: PositiveFloat | None = None

    @property
    def largest(self) -> float | None:
        """Upper end of the support, or None when only the file knows it."""
        return self.max


Distribution = Annotated[Constant | LogNormal | Exponential | Empirical, Field(discriminator="type")]
