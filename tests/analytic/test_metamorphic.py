"""What must change in a known way when the scenario does."""

from itertools import pairwise
from math import inf
from typing import Any

import pytest
from small_runs import HandMadeCost, exponential, lognormal, simulate, small

from interfaces.events import TrainingFinished

POLICIES: dict[str, dict[str, Any]] = {
    "sync": {"name": "sync"},
    "sync_colocated": {"name": "sync_colocated"},
    "one_step_off": {"name": "one_step_off"},
    "areal": {"name": "areal", "max_staleness": 4, "max_concurrent_groups": 24},
    "areal_strict": {"name": "areal_strict", "max_staleness": 2},
}


def cost(scale: float = 1.0) -> HandMadeCost:
    """Costs that are powers of two apart in binary: scaling by a power of two is exact."""
    return HandMadeCost(
        base=lambda n: scale * (0.01 + 0.0002 * n), decode_per_context_token_s=scale * 1e-7,
        prefill_token_s=scale * 1e-5, train=lambda lengths: scale * (0.3 + 1e-5 * float(lengths.sum())),
        publish=scale * 0.2, load=lambda _: scale * 0.1, switch=scale * 0.4,
    )  # fmt: skip


def run(
    name: str,
    *,
    gpus: int = 2,
    law: dict[str, Any] | None = None,
    scale: float = 1.0,
    seed: int = 0,
    steps: int = 15,
) -> Any:
    resolved = small(
        run={"steps": steps, "seed": seed},
        cluster={"rollout_gpus": gpus, "trainer_gpus": gpus if name == "sync_colocated" else 1},
        workload={"batch_size": 12, "group_size": 2, "response_tokens": law or lognormal(200.0, 0.8)},
        reward={"latency_s": {"type": "constant", "value": 0.25 * scale}, "workers": 4},
        policy=POLICIES[name],
    )
    return simulate(resolved, cost=cost(scale))


@pytest.mark.parametrize("scale", [0.25, 2.0, 3.7])
@pytest.mark.parametrize("name", POLICIES)
def test_scaling_every_time_scales_the_run(name: str, scale: float) -> None:
    base, scaled = run(name), run(name, scale=scale)
    ends = [event.at for event in base.trace.events(TrainingFinished)]
    assert [event.at for event in scaled.trace.events(TrainingFinished)] == pytest.approx(
        [scale * at for at in ends], rel=1e-9
    )
    assert scaled.report["staleness"] == base.report["staleness"]
    assert scaled.report["idle_by_cause"]["rollout"] == pytest.approx(
        base.report["idle_by_cause"]["rollout"], abs=1e-9
    )


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "sync_colocated"])
def test_more_rollout_gpus_never_slow_a_policy_down(name: str) -> None:
    """Beyond noise: another number of replicas is loaded differently."""
    times = [run(name, gpus=gpus, steps=40).report["sim_time_s"] for gpus in (1, 2, 4, 8)]
    for fewer, more in pairwise(times):
        assert more <= fewer * 1.02


@pytest.mark.parametrize("seed", range(3))
def test_a_longer_tail_never_helps_synchronous_rl(seed: int) -> None:
    """The same mean length, ever more spread: a synchronous step waits for its longest rollout."""
    times = [
        run("sync", law=lognormal(200.0, sigma), seed=seed, steps=40).report["sim_time_s"]
        for sigma in (0.0, 0.3, 0.6, 0.9, 1.2)
    ]
    assert times == sorted(times)


def test_a_longer_tail_costs_areal_less_than_synchronous_rl() -> None:
    def slowdown(name: str) -> float:
        short, long = (
            run(name, law=lognormal(200.0, sigma), steps=60).report["sim_time_s"] for sigma in (0.1, 1.2)
        )
        return float(long / short)

    assert slowdown("areal") < slowdown("sync")


def test_slowing_one_replica_or_another_is_the_same_in_distribution() -> None:
    """Replicas are alike: which of four is slow changes a seed's run, not its mean beyond noise."""

    def mean_time(slow: int) -> float:
        total = 0.0
        for seed in range(6):
            resolved = small(
                run={"steps": 30, "seed": seed},
                cluster={"rollout_gpus": 4},
                workload={"batch_size": 16, "response_tokens": exponential(200.0)},
                cost={"train_s": 0.2},
                policy={"name": "areal", "max_staleness": inf, "max_concurrent_groups": 32},
                faults={"replica": ({"replica": slow, "at_s": 0.0, "slowdown": 3.0},)},
            )
            total += simulate(resolved, traced=False).report["sim_time_s"]
        return total / 6

    times = [mean_time(slow) for slow in range(4)]
    assert max(times) <= 1.02 * min(times), times


def test_overlap_alone_cannot_beat_the_slower_of_two_phases() -> None:
    """UniRL#94: generation 10 s, training 1 s: one step off gains at most 11/10, and all of that."""
    law = {"type": "constant", "value": 1000.0}

    def step_s(name: str, train_s: float) -> float:
        resolved = small(
            run={"steps": 30, "warmup_steps": 5},
            workload={"batch_size": 8, "response_tokens": law},
            policy={"name": name},
            cost={"train_s": train_s},
        )
        return float(simulate(resolved).report["step_time_s"]["mean"])

    assert step_s("sync", 1.0) == pytest.approx(11.0)
    assert step_s("one_step_off", 1.0) == pytest.approx(10.0)
    assert step_s("one_step_off", 10.0) == pytest.approx(10.0)
    assert step_s("one_step_off", 25.0) == pytest.approx(25.0)


def test_the_bound_is_tight_for_a_fast_generator() -> None:
    """Otherwise it is off by one (verl V1: a threshold of 1 meant on-policy)."""
    for eta in (0, 1, 2, 3, 5):
        for name in ("areal", "areal_strict"):
            resolved = small(
                run={"steps": 30},
                workload={"response_tokens": {"type": "constant", "value": 5.0}},
                policy={"name": name, "max_staleness": eta, "max_concurrent_groups": 1000},
            )
            assert simulate(resolved).report["staleness"]["max"] == eta


def test_every_batch_of_a_fast_generator_arrives_in_order() -> None:
    """NeMo-RL#3238 read backwards: with equal lengths the order of admission is the order of training."""
    resolved = small(run={"steps": 20}, policy={"name": "areal", "max_staleness": 3})
    trains = [action.groups for _, answer in simulate(resolved).trace.fed_ for action in answer
              if type(action).__name__ == "Train"]  # fmt: skip
    assert [group for groups in trains for group in groups] == list(range(160))
