"""How a data-parallel rank cuts its sequences into micro-batches, and how sequences reach the ranks.

Sequences are packed: a micro-batch costs its tokens, never padding. Each rule exists twice: readable, for one
rank, and vectorised, for all (optimizer step, rank) pairs of a training step at once. Tests hold them equal.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_NONE_FITS = np.int32(2**30)
_WIDEN_EVERY = 8


class Microbatches(NamedTuple):
    """The micro-batches of many ranks: row r holds those of rank r in the order in which they were opened."""

    opened: Ints
    """Micro-batches of each rank, shape (ranks,); the rest of a row is 0."""
    tokens: Floats
    """Tokens of each micro-batch, shape (ranks, most micro-batches of a rank)."""
    squared: Floats
    """Sum of squared sequence lengths, same shape: what attention costs."""
    sequences: Ints
    """Sequences of each micro-batch, same shape."""


def dynamic_microbatches_many(lengths: Ints, capacity_tokens: int, k_min: int = 1) -> Microbatches:
    """`dynamic_microbatches` of every row of `lengths`, shape (ranks, sequences); 0 is no sequence.

    The j-th longest sequences of all rows are placed together, so the cost is one numpy pass a sequence of
    a rank.
    """
    by_size = np.ascontiguousarray(np.sort(lengths, axis=1)[:, ::-1].T).astype(np.int32)
    slots, opened = _place(by_size, capacity_tokens, k_min)
    return _collect(by_size, slots, opened)


def _place(by_size: NDArray[np.int32], capacity: int, k_min: int) -> tuple[Ints, Ints]:
    """Micro-batch of every sequence, shape (sequences, ranks), and the number each rank opened."""
    number, ranks = by_size.shape
    heaviest = int(by_size.sum(axis=0, dtype=np.int64).max(initial=0))
    # Beyond k_min one is opened only when no other has room, so any two hold more than the capacity together.
    most = min(number, k_min + 2 * heaviest // max(1, capacity) + 1)
    room = np.full(ranks * most, -1, dtype=np.int32)  # not opened: nothing fits
    taken = np.zeros(ranks * most, dtype=np.int32)
    room_2d, taken_2d = room.reshape(ranks, most), taken.reshape(ranks, most)
    row_start = np.arange(ranks) * most
    rows = np.arange(ranks)
    opened = np.zeros(ranks, dtype=np.int64)
    slots = np.zeros((number, ranks), dtype=np.int64)
    width = 0
    for j in range(number):
        if j % _WIDEN_EVERY == 0:  # columns nobody can have opened by the next look need no work
            width = min(most, int(opened.max()) + _WIDEN_EVERY)
        length = by_size[j]
        fewest = np.where(room_2d[:, :width] >= length[:, None], taken_2d[:, :width], _NONE_FITS)
        best = fewest.argmin(axis=1)
        opens = ((fewest[rows, best] == _NONE_FITS) | (opened < k_min)) & (length > 0)
        slot = np.where(opens, opened, best)
        flat = row_start + slot
        room[flat] = np.where(opens, capacity, room[flat]) - length
        taken[flat] += length > 0
        opened += opens
        slots[j] = slot
    return slots, opened


def fixed_microbatches(lengths: Sequence[int], count: int) -> list[list[int]]:
    """Cut sequences, in the order given, into `count` micro-batches of equally many sequences (within one).

    Fewer sequences than `count` give a micro-batch each. Returns indices into `lengths`.
    """
    edges = [i * len(lengths) // count for i in range(count + 1)]
    batches = (list(range(start, end)) for start, end in pairwise(edges))
    return [batch for batch in batches if batch]


def fixed_microbatches_many(lengths: Ints, count: int, limit_tokens: int) -> Microbatches:
    """`fixed_microbatches` of every row of `lengths`, shape (ranks, sequences); 0 is no sequence.

    `limit_tokens` is what fits in memory. Where a micro-batch exceeds it the run would die, so all ranks
    use the smallest larger count at which every micro-batch fits or holds one sequence: what a user would
    have to set.
    """
    ranks, number = lengths.shape
    total = np.zeros((ranks, number + 1), dtype=np.int64)
    np.cumsum(lengths, axis=1, out=total[:, 1:])
    count = max(1, min(count, number))
    while True:
        edges = np.arange(count + 1) * number // count
        tokens = np.diff(total[:, edges], axis=1)
        several = np.diff(edges) > 1
        if count == number or not (tokens[:, several] > limit_tokens).any():
            break
        count += 1
    slots = np.searchsorted(edges, np.arange(number), side="right") - 1
    columns = np.broadcast_to(slots[:, None], (number, ranks))
    return _collect(lengths.T, columns, np.full(ranks, count, dtype=np.int64))


def _collect(by_size: NDArray[np.integer], slots: Ints, opened: Ints) -> Microbatches:
    """Sums over each micro-batch; `by_size` and `slots` have shape (sequences, ranks)."""
    ranks, most = len(opened), max(1, int(opened.max(initial=0)))
    flat = (slots + np.arange(ranks) * most).ravel()
    weights = by_size.astype(np.float64).ravel()

    def total(values: Floats) -> Floats:
        sums = np.bincount(flat, weights=values, minlength=ranks * most)
        return sums.reshape(ranks, most).astype(np.float64, copy=False)

    sequences = total((weights > 0).astype(np.float64)).astype(np.int64)
    used = (sequences > 0).sum(axis=1)
    return Microbatches(used, total(weights), total(weights * weights), sequences)


def deal_to_ranks(lengths: Ints, ranks: int, keep_order: bool = False) -> Ints:
    """Deal the sequences of each optimizer step to data-parallel ranks so that they get about equal tokens.

    Sorted descending and dealt in snake order (0 1 .. d-1, d-1 .. 1 0, ...): ranks differ by at most the
    longest sequence. `lengths` has shape (steps, sequences), 0 where there is no sequence.

    Returns:
        Shape (steps * ranks, rounds), ranks of one step together; each row descending, or in the order of
        `lengths` with `keep_order`; 0 where a rank has no sequence.
    """
    steps, number = lengths.shape
    rounds = -(-number // ranks)
    padded = np.zeros((steps, rounds * ranks), dtype=np.int64)
    padded[:, :number] = lengths
    order = np.argsort(-padded, axis=1, kind="stable").reshape(steps, rounds, ranks)
    order[:, 1::2] = order[:, 1::2, ::-1].copy()
    dealt = order.transpose(0, 2, 1).reshape(steps, ranks * rounds)
    if keep_order:
        dealt = np.sort(dealt.reshape(steps, ranks, rounds), axis=2).reshape(steps, ranks * rounds)
    return np.take_along_axis(padded, dealt, axis=1).reshape(steps * ranks, rounds)


def imbalance(work: Floats) -> float:
    """Busiest over mean rank, 1.0 when equal; `work` has shape (steps, ranks), a step awaits its ranks."""
    mean = float(work.mean(axis=1).sum())
    return float(work.max(axis=1).sum()) / mean if mean > 0 else 1.0
