"""How good a suite of predictions is: mean error, worst, order."""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from areal_sim.validation.predict import Scored

APART = 0.05
"""Published numbers that differ by less are not ordered."""


class Score(NamedTuple):
    """Of the rows of one suite that are predicted and not in doubt."""

    rows: int
    hits: int
    mape: float
    """Mean absolute relative error."""
    worst: Scored
    rank_correlation: float | None
    """Spearman's, over rows of the same kind, weighted by their number; None: nothing to order."""
    pairs: int
    pairs_in_order: int
    """Of pairs of the same kind whose published values differ by more than 5 %."""


def score(scored: Sequence[Scored]) -> Score | None:
    """The score of these; None when none of them counts."""
    counted = [s for s in scored if s.counts]
    if not counted:
        return None
    pairs = in_order = 0
    weighted = weight = 0.0
    for group in _kinds(counted):
        apart = [
            (a, b) for a, b in combinations(group, 2)
            if abs(a.row.published / b.row.published - 1) > APART
        ]  # fmt: skip
        pairs += len(apart)
        in_order += sum((a.row.published < b.row.published) == (a.predicted < b.predicted) for a, b in apart)
        if len(group) > 2:
            weighted += len(group) * spearman([s.row.published for s in group], [s.predicted for s in group])
            weight += len(group)
    return Score(
        rows=len(counted),
        hits=sum(s.hit for s in counted),
        mape=sum(abs(s.error) for s in counted) / len(counted),
        worst=max(counted, key=lambda s: abs(s.error)),
        rank_correlation=weighted / weight if weight else None,
        pairs=pairs,
        pairs_in_order=in_order,
    )


def _kinds(scored: Sequence[Scored]) -> list[list[Scored]]:
    """Rows that can be compared: the same regime and metric."""
    groups: dict[tuple[str, str], list[Scored]] = {}
    for entry in scored:
        groups.setdefault((entry.row.regime, entry.row.metric), []).append(entry)
    return list(groups.values())


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Rank correlation; equal values share their mean rank. 0 when one of them does not vary."""
    a, b = _ranks(first), _ranks(second)
    mean = (len(a) + 1) / 2
    covariance = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    spread = (sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b)) ** 0.5
    return covariance / spread if spread else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered.index(v) + (ordered.count(v) + 1) / 2 for v in values]
