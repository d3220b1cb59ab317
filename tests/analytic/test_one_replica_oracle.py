"""One replica, all rollouts admitted at once, no updates.

With the lengths L_1 >= L_2 >= ... >= L_n and L_{n+1} = 0, exactly j sequences run for L_j - L_{j+1} decode
steps of tau(j) seconds each, so that the last rollout finishes at

    T = sum_j tau(j) (L_j - L_{j+1})

A step that also reads C context tokens at g seconds each takes tau(j) + g C; then the sum over all steps is
done one by one.
"""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import HandMadeCost, exponential, simulate, small

from interfaces.events import RolloutFinished, WeightsLoaded

EXACT = 1e-9
lengths_of = st.lists(st.integers(1, 3000), min_size=1, max_size=40)


def oracle(lengths: list[int], tau: Callable[[int], float]) -> float:
    ordered = [*sorted(lengths, reverse=True), 0]
    return sum(tau(j) * (ordered[j - 1] - ordered[j]) for j in range(1, len(ordered)))


def step_by_step(lengths: list[int], prompt: int, cost: HandMadeCost) -> dict[int, float]:
    """When each finishes, adding up one decode step after another."""
    finished, now, token = {}, 0.0, 0
    alive = list(range(len(lengths)))
    while alive:
        context = len(alive) * (prompt + token)
        now += cost.base(len(alive)) + cost.decode_per_context_token_s * context
        token += 1
        for i in [i for i in alive if lengths[i] == token]:
            finished[i] = now
            alive.remove(i)
    return finished


def finish_times(lengths: list[int], cost: HandMadeCost, prompt: int = 0) -> dict[int, float]:
    size = len(lengths)
    tokens = {"type": "constant", "value": float(prompt)}
    resolved = small(
        run={"steps": 1}, workload={"batch_size": size, "prompt_tokens": tokens}, policy={"name": "sync"}
    )
    run = simulate(resolved, cost=cost, lengths=lambda i, _: lengths[i % size])
    assert not run.report["recomputed_tokens"]
    assert run.report["generated_tokens"] == sum(lengths)
    finished = {e.rollout: e.at for e in run.trace.events(RolloutFinished)}
    assert len(finished) == size
    return finished


@pytest.mark.parametrize(
    "tau", [lambda _: 0.013, lambda n: 0.007 + 0.00031 * n], ids=["constant", "affine in the batch"]
)
@given(lengths=lengths_of)
@settings(max_examples=40, deadline=None)
def test_time_of_a_batch_is_the_sum_over_its_sorted_lengths(
    tau: Callable[[int], float], lengths: list[int]
) -> None:
    last = max(finish_times(lengths, HandMadeCost(base=tau)).values())
    assert last == pytest.approx(oracle(lengths, tau), rel=EXACT)


@given(lengths=st.lists(st.integers(1, 400), min_size=1, max_size=20), prompt=st.integers(0, 500))
@settings(max_examples=40, deadline=None)
def test_kv_reads_agree_with_a_sum_step_by_step(lengths: list[int], prompt: int) -> None:
    cost = HandMadeCost(base=lambda n: 0.005 + 0.0002 * n, decode_per_context_token_s=3.7e-6)
    assert finish_times(lengths, cost, prompt) == pytest.approx(
        step_by_step(lengths, prompt, cost), rel=EXACT
    )


@pytest.mark.parametrize("seed", range(5))
def test_drawn_lengths_obey_the_oracle_without_an_update(seed: int) -> None:
    """Lengths as the workload draws them; the first load comes only after the whole batch."""
    resolved = small(
        run={"steps": 1, "seed": seed},
        workload={"batch_size": 256, "response_tokens": exponential(900.0)},
        policy={"name": "sync"},
    )
    cost = HandMadeCost(base=lambda n: 0.011 + 0.0004 * n)
    run = simulate(resolved, cost=cost)
    finished = run.trace.events(RolloutFinished)
    lengths = [sum(segment.tokens for segment in event.segments) for event in finished]
    assert len(lengths) == 256
    assert all(e.at >= finished[-1].at for e in run.trace.events(WeightsLoaded))
    assert finished[-1].at == pytest.approx(oracle(lengths, cost.base), rel=EXACT)
