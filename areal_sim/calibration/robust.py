"""Linear fits of seconds to amounts: relative residuals, soft-L1 loss, no negative parameter, intervals.

Relative, because a model that is 5 % off at 4 ms and at 4 s is equally good; soft L1, because measured times
have outliers (a garbage collection, a neighbour) that are no part of the cost.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares, nnls
from scipy.stats import t as student

Floats = NDArray[np.float64]

COLLINEAR = 1e-3
"""Sine of the angle between a column and the span of the others below which it counts as inside."""
ALL = 1e3
"""Scale of the soft-L1 loss at which nothing is an outlier."""
MOST_ROUNDS = 60
UNCERTAIN = 0.5
"""A parameter is not identified if its interval alone moves some prediction by this share."""


class Rows(NamedTuple):
    """What is fitted: `seconds = known + amounts @ parameters`."""

    amounts: Floats
    """Shape (rows, parameters)."""
    seconds: Floats
    """Measured, shape (rows,)."""
    known: Floats
    """Part of them that is given, same shape."""

    @property
    def relative(self) -> Floats:
        """Amounts per measured second."""
        return self.amounts / self.seconds[:, None]


class LinearFit(NamedTuple):
    """Parameters, their 95 % confidence intervals, and the relative error of every row."""

    values: Floats
    low: Floats
    high: Floats
    errors: Floats
    """predicted / measured - 1."""


def collinear(rows: Rows) -> list[tuple[int, ...]]:
    """Sets of columns that the rows cannot tell apart; a column that is always 0 is a set of its own."""
    relative = rows.relative
    norms = np.linalg.norm(relative, axis=0)
    found: list[tuple[int, ...]] = [(int(j),) for j in np.flatnonzero(norms == 0)]
    used = np.flatnonzero(norms > 0)
    unit = relative[:, used] / norms[used]
    tied: set[int] = set()
    for j in range(len(used)):
        rest = np.delete(unit, j, axis=1)
        if not rest.shape[1]:
            continue
        solution = np.linalg.lstsq(rest, unit[:, j], rcond=None)[0]
        if np.linalg.norm(unit[:, j] - rest @ solution) < COLLINEAR:
            partners = [k for k, x in zip(np.delete(used, j), solution, strict=True) if abs(x) > 0.05]
            tied |= {int(used[j]), *map(int, partners)}
    return [*found, tuple(sorted(tied))] if tied else found


def fit(rows: Rows, *, keep_outliers: bool = False) -> LinearFit:
    """The parameters that explain the rows best.

    Residuals are relative to what is *predicted* (weights are computed again until they agree): relative to
    what was measured, slow rows would weigh less than fast ones, and noise alone would make every
    prediction too small. Rows outnumber parameters, and no column is `collinear`. Intervals: sandwich
    covariance (HC3) of the robust fit and Student's t; a parameter that the data push below 0 is 0, with the
    interval's upper end. `keep_outliers`: plain least squares, which gets sums right.
    """
    norms = np.linalg.norm(rows.relative, axis=0)
    amounts, sought = rows.amounts / norms, rows.seconds - rows.known
    scale = ALL if keep_outliers else 0.1
    values, floor = nnls(amounts, sought)[0], 0.01 * float(np.median(rows.seconds))
    for _ in range(MOST_ROUNDS):
        before = values
        basis = np.maximum(rows.known + amounts @ values, floor)
        unit, target = amounts / basis[:, None], sought / basis
        values = _minimum(unit, target, values, scale)
        residual = unit @ values - target
        scale = max(1.4826 * float(np.median(np.abs(residual))), 1e-6)
        scale = ALL if keep_outliers else scale
        if np.abs(values - before).max() <= 1e-7 * values.max():
            break
    predicted = rows.known + amounts @ values
    half = _half_widths(unit, residual, scale)
    values = np.where(values < 1e-7 * values.max(), 0.0, values)
    low, high = np.maximum(values - half, 0.0), values + half
    return LinearFit(values / norms, low / norms, high / norms, predicted / rows.seconds - 1.0)


def _minimum(unit: Floats, target: Floats, start: Floats, scale: float) -> Floats:
    def residual(x: Floats) -> Floats:
        return np.asarray(unit @ x - target, dtype=np.float64)

    def jacobian(_: Floats) -> Floats:
        return unit

    return least_squares(
        residual, start, jac=jacobian, loss="soft_l1", f_scale=scale, bounds=(0.0, np.inf),
        xtol=1e-14, ftol=1e-14, gtol=1e-14,
    ).x  # fmt: skip


def _half_widths(unit: Floats, residual: Floats, scale: float) -> Floats:
    rows, count = unit.shape
    weight = 1.0 / np.sqrt(1.0 + (residual / scale) ** 2)
    slope = weight**3  # of the influence r * weight(r) in r
    bread = np.linalg.inv((unit * slope[:, None]).T @ unit)
    leverage = np.einsum("ij,jk,ik->i", unit * slope[:, None], bread, unit)
    score = weight * residual / np.maximum(1.0 - leverage, 0.05)
    meat = (unit * score[:, None] ** 2).T @ unit
    variance = np.diag(bread @ meat @ bread)
    return np.asarray(student.ppf(0.975, rows - count) * np.sqrt(np.maximum(variance, 0.0)))


def uncertain(fitted: LinearFit, rows: Rows) -> Sequence[int]:
    """Parameters whose interval alone moves some prediction by more than `UNCERTAIN`.

    Only where there are several, which could stand in for each other; a single one is an average, and its
    interval says how good.
    """
    if len(fitted.values) == 1:
        return []
    half = np.maximum(fitted.high - fitted.values, fitted.values - fitted.low)
    predicted = rows.seconds * (1.0 + fitted.errors)
    effect = half * (rows.amounts / predicted[:, None]).max(axis=0)
    return [int(j) for j in np.flatnonzero(effect > UNCERTAIN)]
