"""The forms a length distribution may take: tails, densities, capped means, and their TOML."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc, gammaln, log_ndtr, ndtr, ndtri

from areal_sim.quantiles import quantile
from interfaces.distributions import Exponential, Gamma, LogNormal, Mixture

Floats = NDArray[np.float64]
Form = Exponential | LogNormal | Gamma | Mixture
LOG_ROOT_TAU = 0.5 * float(np.log(2 * np.pi))


def log_survival(form: Form, x: Floats) -> Floats:
    """`ln P(X > x)` of the form without its cap."""
    match form:
        case Exponential(mean=mean):
            return np.asarray(-x / mean)
        case LogNormal(median=median, sigma=sigma):
            return np.asarray(log_ndtr(-(np.log(x) - np.log(median)) / sigma))
        case Gamma(mean=mean, shape=shape):
            return np.asarray(np.log(np.maximum(gammaincc(shape, x * shape / mean), 1e-300)))
        case Mixture():
            return np.asarray(np.log(np.maximum(_mixed(form, x, lambda z, _: ndtr(-z)), 1e-300)))


def log_density(form: Form, x: Floats) -> Floats:
    """Natural logarithm of the density of the form without its cap."""
    match form:
        case Exponential(mean=mean):
            return np.asarray(-x / mean - np.log(mean))
        case LogNormal(median=median, sigma=sigma):
            z = (np.log(x) - np.log(median)) / sigma
            return np.asarray(-0.5 * z * z - np.log(x) - np.log(sigma) - LOG_ROOT_TAU)
        case Gamma(mean=mean, shape=shape):
            scaled = x * shape / mean
            return np.asarray(shape * np.log(scaled) - scaled - np.log(x) - gammaln(shape))
        case Mixture():
            density = _mixed(form, x, lambda z, sigma: np.exp(-0.5 * z * z - LOG_ROOT_TAU) / sigma)
            return np.asarray(np.log(np.maximum(density, 1e-300)) - np.log(x))


def _mixed(form: Mixture, x: Floats, of_part: Callable[[Floats, float], Floats]) -> Floats:
    """Weighted sum over the parts of a function of their normal scores."""
    whole = sum(part.weight for part in form.parts)
    total = np.zeros_like(x, dtype=np.float64)
    for part in form.parts:
        z = (np.log(x) - np.log(part.median)) / part.sigma
        total += part.weight / whole * of_part(z, part.sigma)
    return total


def values_at(form: Form, shares: Floats) -> Floats:
    """Quantiles, capped."""
    values = quantile(form, "lengths", "form")(np.asarray(ndtri(shares), dtype=np.float64))
    return values if form.max is None else np.minimum(values, form.max)


def mean(form: Form) -> float:
    """Of the capped lengths: the middle sum over 20,000 equal shares."""
    shares = (np.arange(20_000) + 0.5) / 20_000
    return float(values_at(form, shares).mean())


def toml(form: Form) -> str:
    """An inline table to paste behind `response_tokens =`."""
    return _table(form.model_dump(exclude_none=True))


def _table(data: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{key} = {_value(value)}" for key, value in data.items()) + "}"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return _table(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(float(f"{value:.6g}"))
