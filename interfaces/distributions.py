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


class Gamma(_Distribution):
    """Gamma with the given mean and `std = mean / sqrt(shape)`; `shape` 1 is exponential."""

    type: Literal["gamma"]
    mean: PositiveFloat
    shape: PositiveFloat
    max: PositiveFloat | None = None

    @property
    def largest(self) -> float | None:
        """Upper end of the support, or None when it has none."""
        return self.max


class MixturePart(_Distribution):
    """One log-normal of a mixture."""

    weight: PositiveFloat
    """Its share, relative to the weights of the others."""
    median: PositiveFloat
    sigma: PositiveFloat


class Mixture(_Distribution):
    """Several log-normals, each with its share; capped at `max`. Short answers and long thoughts, say."""

    type: Literal["mixture"]
    parts: Annotated[tuple[MixturePart, ...], Field(min_length=1)]
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


Distribution = Annotated[
    Constant | LogNormal | Exponential | Gamma | Mixture | Empirical, Field(discriminator="type")
]
