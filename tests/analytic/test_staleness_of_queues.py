"""Staleness by Little's law, in a steady state with constant costs.

C sequences in flight, B in a batch, Q of queue room, X rollouts generated a second, T seconds a training
step, rho = T X / B. Groups of one, publish and load take no time. A version bump is the end of a training
step; a rollout trained by the step that starts from version v has seen v - head bumps on its way. So the mean
staleness is the mean number of rollouts that are admitted and not yet taken just before a bump, over B.
"""

from math import inf
from random import Random
from typing import Any

import pytest
from small_runs import Fifo, Finished, exponential, lognormal, policy, simulate, small

from interfaces.policies.admission import Concurrency, CountGate, QueueRoom
from interfaces.policies.buffering import OldestFirst

C, B, Q, T = 512, 128, 256, 10.0
STEP_S = 0.1


def run(
    mean_rollout_s: float, *, steps: int, warmup: int = 30, law: dict[str, Any] | None = None, **parts: Any
) -> Finished:
    resolved = small(
        run={"steps": steps, "warmup_steps": warmup},
        workload={"batch_size": B, "response_tokens": law or exponential(mean_rollout_s / STEP_S)},
        cost={"decode_step_s": STEP_S, "train_s": T},
        policy=parts.pop("scenario_policy", {"name": "areal"}),
    )
    return simulate(resolved, traced=False, **parts)


def finished_per_s(report: dict[str, Any]) -> float:
    rollouts = report["trained_rollouts"] + report["dropped_rollouts"]
    return float(rollouts / (report["step_time_s"]["mean"] * report["measured_steps"]))


@pytest.mark.parametrize(
    "law", [exponential(1000.0), lognormal(1000.0, 0.6)], ids=["exponential", "lognormal"]
)
def test_rollout_bound(law: dict[str, Any]) -> None:
    """C/B + rho = 4.40.

    No gate, C always in flight; the trainer waits for a batch and takes it when the B-th rollout is ready,
    which leaves an empty buffer. It is T later that the version rises; by then X T more have finished. So
    C + X T rollouts see the bump: (C + X T)/B = C/B + rho. Each batch is all that is ready, so that the order
    (finishing, or oldest head first as here) cannot matter. X = C / mean rollout time: 0.4 B / T = 5.12 a
    second needs rollouts of 100 s.
    """
    areal = {"name": "areal", "max_staleness": inf, "max_concurrent_groups": C}
    report = run(100.0, steps=250, law=law, scenario_policy=areal).report
    assert T * finished_per_s(report) / B == pytest.approx(0.40, rel=0.02)
    assert report["staleness"]["mean"] == pytest.approx(C / B + 0.40, rel=0.01)


@pytest.mark.parametrize("buffering", [Fifo(), OldestFirst()], ids=["in order of finishing", "oldest first"])
def test_trainer_bound_with_a_queue_that_blocks(buffering: Fifo | OldestFirst) -> None:
    """(C + Q)/B = 6.0: a full queue holds producers back, so that C + Q rollouts see every bump."""
    limits = (Concurrency(C), QueueRoom(C + Q))
    report = run(20.0, steps=150, policy=policy(*limits, buffering=buffering)).report
    assert report["utilisation"]["trainer"] == pytest.approx(1.0, rel=1e-3)
    assert report["staleness"]["mean"] == pytest.approx((C + Q) / B, rel=0.01)


@pytest.mark.parametrize("rho", [1.3, 1.6, 2.0])
def test_trainer_bound_with_a_queue_that_drops_who_finished_first(rho: float) -> None:
    """(C + Q - B/2)/(X T) + 1/2, rollouts ordered by when they finished.

    C in flight take C/X on average, and what is dropped or trained is chosen whatever the length. The trainer
    takes the first B of the last Q: they finished between (Q - B)/X and Q/X ago. So they are
    (C + Q - B/2)/X old; one of age a has seen a/T + 1/2 bumps on average, because the last of them is now.

    The order matters. By head version (`OldestFirst(max_ready=Q)`) the same set-up drops who took *long*:
    with exponential lengths and rho = 1.6 the mean is 3.0 in place of 3.9, with lognormal(sigma 0.5) 3.7,
    and equal only where lengths are.
    """
    x = rho * B / T
    buffered = policy(Concurrency(C), buffering=Fifo(max_ready=Q))
    report = run(C / x, steps=180, law=lognormal(C / x / STEP_S, 0.5), policy=buffered).report
    assert finished_per_s(report) == pytest.approx(x, rel=0.01)
    assert report["staleness"]["mean"] == pytest.approx((C + Q - B / 2) / (x * T) + 0.5, rel=0.01)


@pytest.mark.parametrize("tokens", [363, 381])
def test_trainer_bound_with_a_queue_that_drops_the_oldest_version(tokens: int) -> None:
    """The same by head version, where both orders agree: constant lengths, evenly spread at the start.

    rho is near 1 (1.10, 1.05) so that the batch's ages span about one period: then their mean number of bumps
    is a/T + 1/2 although nothing is random.
    """
    first = Random(0)
    spread = [first.randint(1, tokens) for _ in range(C)]
    buffered = policy(Concurrency(C), buffering=OldestFirst(max_ready=Q))
    report = run(1.0, steps=200, policy=buffered, lengths=lambda i, _: spread[i] if i < C else tokens).report
    x = C / (tokens * STEP_S)
    assert report["dropped_rollouts"] > 0
    assert report["staleness"]["mean"] == pytest.approx((C + Q - B / 2) / (x * T) + 0.5, rel=0.01)


@pytest.mark.parametrize("eta", [1, 2, 4, 8])
def test_admission_gate_that_is_always_hit(eta: int) -> None:
    """eta: while step v trains, the gate lets eta B groups be admitted and not taken, and they are."""
    gated = policy(CountGate(eta))
    report = run(2.0, steps=60 + 10 * eta, policy=gated).report
    assert report["staleness"]["mean"] == pytest.approx(eta, rel=0.005)


def test_admission_gate_of_zero_is_on_policy() -> None:
    report = run(2.0, steps=20, warmup=0, policy=policy(CountGate(0))).report
    assert report["staleness"]["max"] == 0
