"""Any policy without drops: mean staleness = (admitted and not yet taken, just before a version bump) / B."""

from math import inf
from typing import Any

import pytest
from small_runs import exponential, lognormal, simulate, small

from interfaces.events import Event, TrainingFinished
from interfaces.loop import TrainingLoop

POLICIES = {
    "sync": {"name": "sync"},
    "one_step_off": {"name": "one_step_off"},
    "areal 0": {"name": "areal", "max_staleness": 0},
    "areal 1": {"name": "areal", "max_staleness": 1},
    "areal 4": {"name": "areal", "max_staleness": 4, "max_concurrent_groups": 48},
    "areal 8, loose": {"name": "areal", "max_staleness": 8, "max_concurrent_groups": 200},
    "areal inf": {"name": "areal", "max_staleness": inf, "max_concurrent_groups": 24},
    "areal_strict 2": {"name": "areal_strict", "max_staleness": 2, "max_concurrent_groups": 64},
    "areal_strict 4": {"name": "areal_strict", "max_staleness": 4, "max_concurrent_groups": 32},
}


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("name", POLICIES)
def test_mean_staleness_is_the_untaken_before_a_bump(name: str, replicas: int) -> None:
    """In a steady state as many groups enter the window as leave it half-way: 0.5 % over 300 steps."""
    size, warmup, steps = 16, 20, 320
    untaken: list[int] = []

    def count(loop: TrainingLoop, event: Event) -> None:
        if type(event) is TrainingFinished:
            untaken.append(loop.view.untaken)

    resolved = small(
        run={"steps": steps, "warmup_steps": warmup},
        cluster={"rollout_gpus": replicas},
        workload={"batch_size": size, "group_size": 1, "response_tokens": lognormal(200.0, 0.7)},
        policy=POLICIES[name],
    )
    report = simulate(resolved, traced=False, watch=count).report
    assert not report["dropped_rollouts"]
    # The window's steps are the last `steps - warmup`; the batch of each was taken after the bump before it.
    seen = sum(untaken[warmup - 1 : steps - 1]) / (steps - warmup) / size
    mean = report["staleness"]["mean"]
    assert mean == pytest.approx(seen, rel=0.005, abs=1e-9), (mean, seen)


def test_it_holds_for_groups_whose_members_differ() -> None:
    """Groups of 8 under a gate: all start at once, wait for the slowest member and are taken together."""
    size, warmup, steps = 8, 20, 300
    untaken: list[int] = []

    def count(loop: TrainingLoop, event: Event) -> None:
        if type(event) is TrainingFinished:
            untaken.append(loop.view.untaken)

    workload: dict[str, Any] = {
        "batch_size": size, "group_size": 8, "response_tokens": exponential(150.0), "group_correlation": 0.4,
    }  # fmt: skip
    resolved = small(
        run={"steps": steps, "warmup_steps": warmup},
        workload=workload,
        policy={"name": "areal", "max_staleness": 4, "max_concurrent_groups": 24},
    )
    report = simulate(resolved, traced=False, watch=count).report
    seen = sum(untaken[warmup - 1 : steps - 1]) / (steps - warmup) / size
    assert report["staleness"]["mean"] == pytest.approx(seen, rel=0.005)
