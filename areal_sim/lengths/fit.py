"""Maximum likelihood for a column of lengths, those at the cap censored, with goodness of fit."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from areal_sim.lengths.forms import Floats, Form, log_density, log_survival
from interfaces.distributions import Exponential, Gamma, LogNormal, Mixture, MixturePart
from interfaces.errors import DataError

MOST_FITTED = 20_000
"""Longer columns are fitted to that many of their quantiles, and judged on all values."""
FEWEST = 20


class Fitted(NamedTuple):
    """One form with its parameters and how well it describes the data."""

    form: Form
    parameters: int
    log_likelihood: float
    ks: float
    """Kolmogorov-Smirnov distance below the cap: largest gap between the two distribution functions."""

    @property
    def aic(self) -> float:
        """Akaike's criterion: smaller is better, differences below 2 mean nothing."""
        return 2.0 * self.parameters - 2.0 * self.log_likelihood


def detect_cap(lengths: Floats) -> float | None:
    """The largest value, if so many lengths equal it that generation must have been cut there."""
    top = float(lengths.max())
    at_top = int((lengths >= top).sum())
    return top if at_top >= max(5, 0.002 * len(lengths)) else None


def fit_all(lengths: Floats, cap: float | None) -> list[Fitted]:
    """Every form, best (least AIC) first; lengths of at least `cap` are known only to reach it.

    Raises:
        DataError: too few lengths, or some below 1.
    """
    if len(lengths) < FEWEST:
        raise DataError(f"{len(lengths)} lengths are too few to tell forms apart; give at least {FEWEST}")
    if (lengths < 1).any():
        row = int((lengths < 1).argmax())
        raise DataError(f"length {lengths[row]:g} in row {row} (the first is 0) is below 1; remove such rows")
    below, _ = _split(lengths, cap)
    if len(np.unique(below)) < 5:
        raise DataError(f"fewer than 5 different lengths below the cap {cap}; give more, or a larger --cap")
    fits = [_judged(form, count, lengths, cap) for form, count in _forms(_thinned(lengths), cap)]
    return sorted(fits, key=lambda fitted: fitted.aic)


def _split(lengths: Floats, cap: float | None) -> tuple[Floats, int]:
    below = lengths if cap is None else lengths[lengths < cap]
    return below, len(lengths) - len(below)


def _thinned(lengths: Floats) -> Floats:
    """All of a short column; evenly spaced order statistics of a long one."""
    if len(lengths) <= MOST_FITTED:
        return lengths
    places = (np.arange(MOST_FITTED) + 0.5) / MOST_FITTED * len(lengths)
    return np.sort(lengths)[places.astype(np.int64)]


def likelihood(form: Form, lengths: Floats, cap: float | None) -> float:
    """Logarithm of the probability of these lengths, those at the cap censored."""
    below, censored = _split(lengths, cap)
    total = float(log_density(form, below).sum())
    if censored:
        assert cap is not None
        total += censored * float(log_survival(form, np.array([cap]))[0])
    return total


def _forms(lengths: Floats, cap: float | None) -> list[tuple[Form, int]]:
    below, _ = _split(lengths, cap)
    top = None if cap is None else float(cap)
    logs = np.log(below)
    mid, spread = float(np.median(logs)), max(float(logs.std()), 1e-3)
    average = float(np.minimum(lengths, np.inf if cap is None else cap).sum() / len(below))

    def lognormal(p: Floats) -> Form:
        return LogNormal(type="lognormal", median=_exp(p[0]), sigma=_exp(p[1]), max=top)

    def gamma(p: Floats) -> Form:
        return Gamma(type="gamma", mean=_exp(p[0]), shape=_exp(p[1]), max=top)

    def mixture(p: Floats) -> Form:
        first = 1.0 / (1.0 + _exp(-p[0]))
        parts = (
            MixturePart(weight=max(first, 1e-6), median=_exp(p[1]), sigma=_exp(p[2])),
            MixturePart(weight=max(1.0 - first, 1e-6), median=_exp(p[3]), sigma=_exp(p[4])),
        )
        return Mixture(type="mixture", parts=parts, max=top)

    low, high = (float(np.quantile(logs, share)) for share in (0.25, 0.85))
    narrow = float(np.log(spread / 2))
    starts = [
        np.array([0.0, low, narrow, high, narrow]),
        np.array([1.5, mid, float(np.log(spread)), high, narrow]),
        np.array([-1.5, low, narrow, mid, float(np.log(spread))]),
    ]
    single = np.array([mid, float(np.log(spread))])
    return [
        (Exponential(type="exponential", mean=average, max=top), 1),
        (_best(lognormal, [single], lengths, cap), 2),
        (_best(gamma, [np.array([float(np.log(average)), 0.0])], lengths, cap), 2),
        (_best(mixture, starts, lengths, cap), 5),
    ]


def _exp(value: float) -> float:
    return float(np.exp(np.clip(value, -18.0, 30.0)))


def _best(make: Callable[[Floats], Form], starts: list[Floats], lengths: Floats, cap: float | None) -> Form:
    """The most likely form over all starts."""
    count = len(lengths)

    def loss(p: Floats) -> float:
        return -likelihood(make(p), lengths, cap) / count

    found = [minimize(loss, start, method="L-BFGS-B") for start in starts]
    return make(min(found, key=lambda one: float(one.fun)).x)


def _judged(form: Form, parameters: int, lengths: Floats, cap: float | None) -> Fitted:
    return Fitted(form, parameters, likelihood(form, lengths, cap), ks_distance(form, lengths, cap))


def ks_distance(form: Form, lengths: Floats, cap: float | None) -> float:
    """Largest gap between the empirical and the fitted distribution function, below the cap."""
    below = np.sort(_split(lengths, cap)[0])
    values, last = np.unique(below, return_index=True)
    before = last / len(lengths)
    after = np.append(last[1:], len(below)) / len(lengths)
    fitted = 1.0 - np.exp(log_survival(form, values))
    return float(np.maximum(np.abs(after - fitted), np.abs(before - fitted)).max())
