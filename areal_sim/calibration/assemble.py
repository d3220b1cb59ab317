"""From measurements to calibrated costs: which parameters, fitted how, valid where."""

import contextlib
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from areal_sim.calibration import robust
from areal_sim.calibration.identify import refusal, refuse_few, scattered
from areal_sim.calibration.robust import Floats
from areal_sim.calibration.samples import Measured, Sample
from interfaces.calibration import PARAMETERS, Calibration, Estimate, Part, PartName, Validity
from interfaces.errors import DataError

DecodeForm = Literal["auto", "line", "table"]
Fixed = Mapping[tuple[PartName, str], float]
MOST_KNOTS = 16
NOT_LINEAR = 0.05
"""Median error of the line above which a table of batch sizes is tried."""


SIMPLER: dict[PartName, tuple[tuple[str, ...], ...]] = {
    "decode": (("sequence_s",), ("sequence_s", "context_token_s")),
    "prefill": (("squared_token_s",), ("squared_token_s", "call_s")),
    "train": (
        ("microbatch_s",),
        ("microbatch_s", "squared_token_s"),
        ("microbatch_s", "squared_token_s", "optimizer_step_s"),
    ),
}
"""Parameters to leave out where the data cannot identify all, least harmful first."""


class _Options(NamedTuple):
    """How to fit."""

    form: DecodeForm
    fixed: Fixed
    left_out: tuple[str, ...]
    keep_outliers: bool


class Residual(NamedTuple):
    """One row of a fit."""

    part: PartName
    source: str
    size: float
    """Its first amount of `Part.validity`; the seconds where it has none."""
    measured_s: float
    predicted_s: float


_Fitted = tuple[Part, list[Residual]]


def calibrate(
    measured: Measured,
    form: DecodeForm = "auto",
    fixed: Fixed | None = None,
    *,
    simplify: bool = False,
    keep_outliers: bool = False,
) -> tuple[Calibration, list[Residual]]:
    """Fit every part that was measured.

    Args:
        measured: what was measured.
        form: how a decode step depends on the batch; `auto` takes the table where a line does not fit.
        fixed: parameters set by hand.
        simplify: leave out, and say so, what the data cannot identify, where a simpler form is sensible.
        keep_outliers: fit averages, so that sums come out right, instead of ignoring what is unusual.

    Raises:
        DataError: nothing was measured, or the data cannot identify a parameter (the message names it).
    """
    parts: dict[PartName, Part] = {}
    residuals: list[Residual] = []
    for name in PARAMETERS:
        samples = _usable([sample for sample in measured.samples if sample.part == name])
        if samples:
            options = _Options(form, fixed or {}, (), keep_outliers)
            parts[name], rows = _part_or_simpler(name, samples, options, simplify)
            residuals += rows
    if not parts:
        raise DataError(
            f"{', '.join(measured.sources) or 'no file'}: holds nothing to fit; see docs/reference/profile.md"
        )
    ranks = measured.tensor_parallel
    made = Calibration(
        made_by=version("areal-testbed"),
        about=tuple(measured.about),
        sources=tuple(measured.sources),
        tensor_parallel=ranks.pop() if len(ranks) == 1 else 0,
        parts=parts,
    )
    return made, residuals


def _usable(samples: list[Sample]) -> list[Sample]:
    """Samples that tell as much as the best ones do: sums of a trace give way to single measurements."""
    most = max((len(sample.amounts) for sample in samples), default=0)
    return [sample for sample in samples if len(sample.amounts) == most]


def _part_or_simpler(name: PartName, samples: list[Sample], options: _Options, simplify: bool) -> _Fitted:
    try:
        return _part(name, samples, options)
    except DataError:
        for left_out in SIMPLER.get(name, ()) if simplify else ():
            with contextlib.suppress(DataError):
                return _fit(name, samples, (), options._replace(left_out=left_out))
        raise


def _part(name: PartName, samples: list[Sample], options: _Options) -> _Fitted:
    form = options.form
    knots = _knots(samples) if name == "decode" and form != "line" else ()
    if form == "table" or not 3 <= len(knots) <= len(samples) - 2:
        return _fit(name, samples, knots if form == "table" else (), options)
    try:
        line = _fit(name, samples, (), options)
    except DataError:
        with contextlib.suppress(DataError):
            table = _fit(name, samples, knots, options)
            if table[0].median_error <= NOT_LINEAR:
                return table
        raise
    if line[0].median_error > NOT_LINEAR:
        with contextlib.suppress(DataError):
            table = _fit(name, samples, knots, options)
            return table if table[0].median_error < line[0].median_error / 2 else line
    return line


def _fit(name: PartName, samples: list[Sample], knots: tuple[int, ...], options: _Options) -> _Fitted:
    amounts = [_tabulated(sample, knots) for sample in samples] if knots else [s.amounts for s in samples]
    names = list(amounts[0])
    assumed = _assumed(name, samples, options, tuple(names), bool(knots))
    free = [one for one in names if one not in assumed]
    matrix = np.array([[row[one] for one in free] for row in amounts])
    seconds = np.array([sample.seconds for sample in samples])
    values = {one: options.fixed.get((name, one), 0.0) for one in assumed}
    known = np.array([sum(values[one] * row.get(one, 0.0) for one in assumed) for row in amounts])
    rows = robust.Rows(matrix, seconds, known)
    fitted = _identified(name, free, samples, rows, keep_outliers=options.keep_outliers)
    parameters = {one: Estimate(value=v, low=v, high=v) for one, v in values.items()}
    for one, value, low, high in zip(free, fitted.values, fitted.low, fitted.high, strict=True):
        parameters[one] = Estimate(value=float(value), low=float(low), high=float(high))
    errors = np.abs(fitted.errors)
    part = Part(
        parameters=parameters,
        knots=knots,
        validity=_validity(samples),
        assumed=assumed,
        rows=len(samples),
        median_error=float(np.median(errors)),
        worst_error=float(errors.max()),
    )
    return part, _residuals(samples, seconds, fitted.errors)


def _identified(
    name: PartName, free: list[str], samples: list[Sample], rows: robust.Rows, *, keep_outliers: bool
) -> robust.LinearFit:
    """The fit, or the refusal that names what cannot be identified."""
    if not free:
        empty = np.zeros(0)
        return robust.LinearFit(empty, empty, empty, rows.known / rows.seconds - 1.0)
    tied = robust.collinear(rows)
    if tied:
        raise refusal(name, [free[j] for j in tied[0]], samples)
    refuse_few(name, len(samples), free)
    fitted = robust.fit(rows, keep_outliers=keep_outliers)
    unsure = robust.uncertain(fitted, rows)
    if unsure:
        raise scattered(name, [free[j] for j in unsure], samples)
    return fitted


def _assumed(
    name: PartName, samples: Sequence[Sample], options: _Options, names: tuple[str, ...], tabulated: bool
) -> dict[str, str]:
    """Parameters that are not fitted, and why."""
    assumed = dict.fromkeys(options.left_out, "0: left out, the data cannot tell it")
    assumed |= {key: "set by hand" for part, key in options.fixed if part == name}
    if tabulated:
        assumed = {key: why for key, why in assumed.items() if key == "context_token_s"}
    else:
        for key in PARAMETERS[name]:
            if key not in names:
                assumed.setdefault(key, "0: a trace does not tell it")
    sizes = {sample.validity.get("bytes") for sample in samples}
    if name in ("load", "publish") and len(sizes) == 1:
        assumed.setdefault("byte_s", "0: one size was measured, and the fit holds for that size")
    return assumed


def _knots(samples: Sequence[Sample]) -> tuple[int, ...]:
    """Batch sizes to tabulate: those measured, or evenly chosen ones if they are many."""
    sizes = sorted({max(1, round(sample.validity["sequences"])) for sample in samples})
    if len(sizes) > MOST_KNOTS:
        places = np.linspace(0, len(sizes) - 1, MOST_KNOTS).round().astype(int)
        sizes = [sizes[place] for place in places]
    return tuple(sizes)


def _tabulated(sample: Sample, knots: tuple[int, ...]) -> dict[str, float]:
    """Amounts of a decode sample with its batch as weights of the neighbouring knots."""
    steps, size = sample.amounts["step_s"], sample.validity["sequences"]
    row = dict.fromkeys((f"batch_{knot}_s" for knot in knots), 0.0)
    if size <= knots[0] or len(knots) == 1:
        row[f"batch_{knots[0]}_s"] = steps
    elif size >= knots[-1]:
        row[f"batch_{knots[-1]}_s"] = steps
    else:
        low, high = next((a, b) for a, b in pairwise(knots) if a <= size <= b)
        share = (size - low) / (high - low)
        row[f"batch_{low}_s"], row[f"batch_{high}_s"] = steps * (1.0 - share), steps * share
    return {**row, "context_token_s": sample.amounts["context_token_s"]}


def _validity(samples: Sequence[Sample]) -> dict[str, Validity]:
    ranges: dict[str, Validity] = {}
    for key in samples[0].validity:
        values = [sample.validity[key] for sample in samples if key in sample.validity]
        ranges[key] = Validity(low=min(values), high=max(values))
    return ranges


def _residuals(samples: Sequence[Sample], seconds: Floats, errors: Floats) -> list[Residual]:
    predicted = seconds * (1.0 + errors)
    return [
        Residual(
            s.part, s.source, next(iter(s.validity.values()), s.seconds), s.seconds, float(p)
        )
        for s, p in zip(samples, predicted, strict=True)
    ]  # fmt: skip
