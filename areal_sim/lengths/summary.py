"""Length models from what papers print: a mean, a cap, and the share of responses cut at the cap."""

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammainc, gammainccinv, log_ndtr, ndtri

from areal_sim.lengths.forms import Form
from interfaces.distributions import Exponential, Gamma, LogNormal
from interfaces.errors import DataError


def from_mean(mean: float) -> list[Form]:
    """One number determines one parameter: the exponential."""
    return [Exponential(type="exponential", mean=mean)]


def from_truncation(mean: float, share: float, cap: float) -> list[Form]:
    """Log-normal and gamma whose capped mean is `mean` and of which `share` reaches `cap`: exactly both.

    Raises:
        DataError: no distribution has these numbers.
    """
    if not 0 < share < 1:
        raise DataError(
            f"--truncated-share {share:g} is not between 0 and 1; 0 would say only that all are shorter: "
            "give the smallest share that the publication allows, or fit a column"
        )
    if not share * cap < mean < cap:
        raise DataError(
            f"--mean {mean:g}: {share:g} of the lengths are {cap:g}, so the mean lies between "
            f"{share * cap:g} and {cap:g}; check whether the published mean counts truncated responses"
        )
    spread = _solve(lambda s: _lognormal_mean(s, share, cap) - mean, -8.0, 4.0)
    shape = _solve(lambda k: _gamma_mean(k, share, cap) - mean, -8.0, 8.0)
    forms: list[Form] = []
    if spread is not None:
        median = float(np.exp(np.log(cap) + spread * ndtri(share)))
        forms.append(LogNormal(type="lognormal", median=median, sigma=spread, max=cap))
    if shape is not None:
        scale = cap / float(gammainccinv(shape, share))
        forms.append(Gamma(type="gamma", mean=shape * scale, shape=shape, max=cap))
    if not forms:
        raise DataError(f"no log-normal or gamma has mean {mean:g} with {share:g} at {cap:g}; check them")
    return forms


def _solve(gap: Callable[[float], float], low: float, high: float) -> float | None:
    """The positive root over a logarithmic range; None where there is none."""
    ends = gap(float(np.exp(low))), gap(float(np.exp(high)))
    if ends[0] * ends[1] > 0:
        return None
    return float(np.exp(brentq(lambda x: gap(float(np.exp(x))), low, high, xtol=1e-12)))


def _lognormal_mean(sigma: float, share: float, cap: float) -> float:
    """Capped mean when `share` lies above the cap: `e^(mu + s^2/2) Phi((ln L - mu)/s - s) + L share`."""
    at_cap = -float(ndtri(share))
    mu = np.log(cap) - sigma * at_cap
    return float(np.exp(mu + sigma**2 / 2 + log_ndtr(at_cap - sigma)) + cap * share)


def _gamma_mean(shape: float, share: float, cap: float) -> float:
    """Capped mean when `share` lies above the cap: `k theta P(k + 1, L / theta) + L share`."""
    at_cap = float(gammainccinv(shape, share))
    if at_cap <= 0.0:  # so small a shape that the rest is at 0, to the last digit
        return cap * share
    return float(shape * cap / at_cap * gammainc(shape + 1, at_cap) + cap * share)
