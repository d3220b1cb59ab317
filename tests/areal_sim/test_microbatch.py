import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from areal_sim.microbatch import (
    Microbatches,
    deal_to_ranks,
    dynamic_microbatches_many,
    fixed_microbatches,
    fixed_microbatches_many,
    imbalance,
)
from interfaces.microbatch import dynamic_microbatches

some_lengths = st.lists(st.integers(1, 100), max_size=40)
ranks_of_lengths = st.lists(some_lengths, min_size=1, max_size=5)


def table(rows: list[list[int]]) -> np.ndarray:
    """Rows padded with 0 to the same length."""
    longest = max(map(len, rows))
    return np.array([row + [0] * (longest - len(row)) for row in rows], dtype=np.int64).reshape(
        len(rows), longest
    )


def agrees(cut: Microbatches, row: int, lengths: list[int], expected: list[list[int]]) -> None:
    """One row of a vectorised answer against the reference's micro-batches."""
    count = len(expected)
    assert cut.opened[row] == count
    tokens = [sum(lengths[i] for i in batch) for batch in expected]
    squared = [sum(lengths[i] ** 2 for i in batch) for batch in expected]
    assert cut.tokens[row, :count].tolist() == tokens
    assert cut.squared[row, :count].tolist() == squared
    assert cut.sequences[row, :count].tolist() == [len(batch) for batch in expected]
    assert not cut.tokens[row, count:].any()


def test_algorithm_1_by_hand() -> None:
    # 9 opens; 6 does not fit beside 9 of 12; 5 joins 6; 3 joins the 9; 1 fits the 6+5 only.
    assert dynamic_microbatches([5, 9, 6, 3, 1], 12) == [[1, 3], [2, 0, 4]]


def test_the_fitting_micro_batch_with_the_fewest_sequences_is_taken() -> None:
    # 8 and 7 open; 2 and 1 fit both: 2 goes to the first, 1 to the second, which has fewer.
    assert dynamic_microbatches([8, 7, 2, 1], 12) == [[0, 2], [1, 3]]


def test_at_least_k_min_micro_batches_are_opened() -> None:
    assert len(dynamic_microbatches([1, 1, 1, 1], 100, k_min=3)) == 3
    assert len(dynamic_microbatches([1, 1], 100, k_min=3)) == 2


def test_a_sequence_longer_than_the_capacity_is_alone() -> None:
    assert dynamic_microbatches([50, 3, 2], 10) == [[0], [1, 2]]


@given(some_lengths, st.integers(1, 150), st.integers(1, 6))
def test_every_sequence_is_in_one_micro_batch_that_fits(
    lengths: list[int], capacity: int, k_min: int
) -> None:
    batches = dynamic_microbatches(lengths, capacity, k_min)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or sum(lengths[i] for i in batch) <= capacity for batch in batches)
    assert len(batches) >= min(k_min, len(lengths))


@given(ranks_of_lengths, st.integers(1, 300), st.integers(1, 8))
@example([[50, 50, 50], []], 10, 2)
@example([[1] * 40, [100] * 40], 100, 1)
def test_all_ranks_at_once_equal_one_rank_at_a_time(rows: list[list[int]], capacity: int, k_min: int) -> None:
    cut = dynamic_microbatches_many(table(rows), capacity, k_min)
    for row, lengths in enumerate(rows):
        agrees(cut, row, lengths, dynamic_microbatches(lengths, capacity, k_min))


@given(some_lengths, st.integers(1, 50))
def test_fixed_micro_batches_have_equally_many_sequences_in_order(lengths: list[int], count: int) -> None:
    batches = fixed_microbatches(lengths, count)
    assert [i for batch in batches for i in batch] == list(range(len(lengths)))
    assert len(batches) == min(count, len(lengths))
    assert not batches or max(map(len, batches)) - min(map(len, batches)) <= 1


@given(st.integers(1, 4), st.integers(1, 20), st.integers(1, 30), st.data())
def test_fixed_for_all_ranks_equals_the_reference(
    ranks: int, number: int, count: int, data: st.DataObject
) -> None:
    row = st.lists(st.integers(1, 100), min_size=number, max_size=number)
    rows = data.draw(st.lists(row, min_size=ranks, max_size=ranks))
    cut = fixed_microbatches_many(np.array(rows), count, limit_tokens=10**9)
    for index, lengths in enumerate(rows):
        agrees(cut, index, lengths, fixed_microbatches(lengths, count))


@given(st.lists(st.integers(1, 100), min_size=1, max_size=30), st.integers(1, 5), st.integers(1, 400))
def test_a_fixed_count_that_does_not_fit_is_raised_to_the_first_that_does(
    lengths: list[int], count: int, limit: int
) -> None:
    def fits(number: int) -> bool:
        return all(
            len(batch) == 1 or sum(lengths[i] for i in batch) <= limit
            for batch in fixed_microbatches(lengths, number)
        )

    cut = fixed_microbatches_many(np.array([lengths]), count, limit)
    expected = next(number for number in range(count, count + len(lengths) + 1) if fits(number))
    assert cut.opened[0] == min(expected, len(lengths))


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=60), st.integers(1, 8), st.booleans())
def test_dealing_loses_nothing_and_balances(lengths: list[int], ranks: int, keep_order: bool) -> None:
    shares = deal_to_ranks(np.array([lengths]), ranks, keep_order)
    assert sorted(shares[shares > 0].tolist()) == sorted(lengths)
    per_rank = shares.sum(axis=1)
    assert per_rank.max() - per_rank.min() <= max(lengths)
    counts = (shares > 0).sum(axis=1)
    assert counts.max() - counts.min() <= 1


def test_dealing_goes_back_and_forth_over_the_sorted_lengths() -> None:
    shares = deal_to_ranks(np.array([[1, 2, 3, 4, 5, 6]]), 2)
    assert shares.tolist() == [[6, 3, 2], [5, 4, 1]]
    assert deal_to_ranks(np.array([[1, 2, 3, 4, 5, 6]]), 2, keep_order=True).tolist() == [
        [2, 3, 6],
        [1, 4, 5],
    ]


def test_steps_are_dealt_apart() -> None:
    shares = deal_to_ranks(np.array([[9, 1], [5, 0]]), 2)
    assert shares.tolist() == [[9], [1], [5], [0]]


def test_imbalance_is_the_busiest_over_the_mean_rank() -> None:
    assert imbalance(np.array([[2.0, 2.0]])) == 1.0
    assert imbalance(np.array([[3.0, 1.0], [2.0, 2.0]])) == pytest.approx(5 / 4)
    assert imbalance(np.zeros((1, 2))) == 1.0
