"""From a distribution of the scenario to values: quantiles at given normal scores.

Working on normal scores z (u = Phi(z)) is what lets members of a group correlate whatever the distribution
(a Gaussian copula).
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainccinv, gammaincinv, log_ndtr, ndtr

from interfaces.distributions import (
    Constant,
    Distribution,
    Empirical,
    Exponential,
    Gamma,
    LogNormal,
    Mixture,
)
from interfaces.errors import ScenarioError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Quantile = Callable[[Floats], Floats]


def quantile(distribution: Distribution, where: str, key: str) -> Quantile:
    """The function from normal scores to values of this distribution, without its cap.

    Raises:
        ScenarioError: an empirical distribution whose file cannot serve; `where` and `key` name it.
    """
    match distribution:
        case Constant(value=value):
            return lambda z: np.full_like(z, value)
        case LogNormal(median=median, sigma=sigma):
            mu = float(np.log(median))
            return lambda z: np.exp(mu + sigma * z)
        case Exponential(mean=mean):
            return lambda z: -mean * log_ndtr(-z)
        case Gamma(mean=mean, shape=shape):
            return lambda z: _gamma(z, mean, shape)
        case Mixture():
            return lambda z: _mixture(z, distribution)
        case Empirical():
            values = np.sort(read_column(distribution, where, key))
            return lambda z: values[np.minimum((ndtr(z) * len(values)).astype(np.int64), len(values) - 1)]


def _gamma(z: Floats, mean: float, shape: float) -> Floats:
    """Each half from its own tail, so that neither loses digits."""
    low, high = gammaincinv(shape, ndtr(z)), gammainccinv(shape, ndtr(-z))
    return np.asarray(np.where(z < 0, low, high) * (mean / shape))


def _mixture(z: Floats, law: Mixture) -> Floats:
    """Bisection of `sum of w Phi((ln x - mu) / sigma) = Phi(z)` over ln x, in the nearer tail.

    The answer lies between the parts' own quantiles at z; 60 halvings leave nothing of that interval.
    """
    weights = np.array([part.weight for part in law.parts])
    weights = weights / weights.sum()
    mu = np.log([part.median for part in law.parts])
    sigma = np.array([part.sigma for part in law.parts])
    own = mu + sigma * z[..., None]
    low, high = own.min(axis=-1), own.max(axis=-1)
    side = np.where(z < 0, 1.0, -1.0)
    target = ndtr(-np.abs(z))
    for _ in range(60):
        middle = (low + high) / 2
        tail = (weights * ndtr(side[..., None] * (middle[..., None] - mu) / sigma)).sum(axis=-1)
        right = np.where(side > 0, tail < target, tail > target)
        low, high = np.where(right, middle, low), np.where(right, high, middle)
    return np.asarray(np.exp((low + high) / 2))


def capped(values: Floats, distribution: Distribution) -> Floats:
    """Values with those above the distribution's `max` moved to it."""
    cap = None if isinstance(distribution, Constant) else distribution.max
    return values if cap is None else np.minimum(values, cap)


def whole(values: Floats, distribution: Distribution) -> Ints:
    """Values rounded to whole numbers, none above the distribution's `max`."""
    cap = None if isinstance(distribution, Constant) else distribution.max
    rounded = np.rint(values)
    return (rounded if cap is None else np.minimum(rounded, np.floor(cap))).astype(np.int64)


def read_column(source: Empirical, where: str, key: str) -> Floats:
    """The column of a CSV or Parquet file that an empirical distribution names, as finite numbers >= 0.

    A relative path starts at the folder of the scenario file `where`.

    Raises:
        ScenarioError: no such file or column, no values, or some that are not finite numbers >= 0.
    """

    def wrong(part: str, value: object, rule: str, remedy: str) -> ScenarioError:
        return ScenarioError(where, f"{key}.{part}", value, rule, remedy)

    path = Path(where).parent / source.file
    if not path.is_file():
        raise wrong("file", source.file, "is not a file", f"give a path relative to {Path(where).parent}")
    columns = _columns(path, source, wrong)
    if source.column not in columns:
        raise wrong("column", source.column, f"is not in {source.file}", f"use {', '.join(columns)}")
    values = _numbers(path, source, wrong)
    if not len(values):
        raise wrong("column", source.column, f"of {source.file} has no values", "give at least one row")
    for bad, what in ((~np.isfinite(values), "not a finite number"), (values < 0, "negative")):
        if bad.any():
            row = int(bad.argmax())
            rule = f"of {source.file} is {what} in row {row} (the first is 0)"
            raise wrong("column", source.column, rule, "remove or correct such rows")
    return values


_Wrong = Callable[[str, object, str, str], ScenarioError]


def _columns(path: Path, source: Empirical, wrong: _Wrong) -> list[str]:
    import pyarrow as pa  # noqa: PLC0415 - only scenarios with such a file pay for it
    from pyarrow import csv, parquet  # noqa: PLC0415

    try:
        match path.suffix.lower():
            case ".csv":
                return [str(name) for name in csv.open_csv(path).schema.names]
            case ".parquet":
                return [str(name) for name in parquet.read_schema(path).names]
    except (pa.ArrowInvalid, OSError) as error:
        reason = str(error).splitlines()[0]
        raise wrong("file", source.file, f"cannot be read ({reason})", "check the file") from None
    raise wrong("file", source.file, "is neither .csv nor .parquet", "convert it to one of them")


def _numbers(path: Path, source: Empirical, wrong: _Wrong) -> Floats:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import csv, parquet  # noqa: PLC0415

    try:
        if path.suffix.lower() == ".csv":
            options = csv.ConvertOptions(include_columns=[source.column])
            table = csv.read_csv(path, convert_options=options)
        else:
            table = parquet.read_table(path, columns=[source.column])
        column = table.column(0).cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = str(error).splitlines()[0]
        rule = f"of {source.file} is not numeric ({reason})"
        raise wrong("column", source.column, rule, "name a column of numbers") from None
    return np.asarray(column.to_numpy(), dtype=np.float64)
