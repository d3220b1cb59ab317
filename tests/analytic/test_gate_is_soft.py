"""AReaL's gate bounds how many groups are outstanding, not the age of each (AReaL#602)."""

from typing import Any

import pytest
from small_runs import Finished, simulate, small, trained_staleness

from interfaces.events import RolloutFinished

ETA = 1


def with_one_straggler(policy: dict[str, Any]) -> Finished:
    """B = 2, eta = 1; the first rollout is 13 times longer than all others (13 s and 1 s; T = 0.4 s)."""
    resolved = small(
        run={"steps": 25},
        workload={"batch_size": 2},
        cost={"train_s": 0.4},
        policy={**policy, "max_staleness": ETA, "max_concurrent_groups": 4},
    )
    return simulate(resolved, lengths=lambda prompt, _: 1300 if prompt == 0 else 100)


def test_admission_alone_trains_a_straggler_at_staleness_nine() -> None:
    ages = trained_staleness(with_one_straggler({"name": "areal"}).trace)
    assert max(ages) == 9
    assert sorted(ages)[-2] <= ETA, "only the straggler is too old"


@pytest.mark.parametrize("straggler", ["wait", "drop", "requeue"])
def test_strict_never_trains_beyond_the_bound(straggler: str) -> None:
    run = with_one_straggler({"name": "areal_strict", "straggler": straggler})
    assert max(trained_staleness(run.trace)) <= ETA
    assert run.report["staleness"]["max"] <= ETA
    assert run.report["steps"] == 25


def test_strict_masks_every_token_beyond_the_bound() -> None:
    report = with_one_straggler({"name": "areal_strict", "straggler": "mask"}).report
    assert report["token_staleness"]["max"] <= ETA
    assert report["staleness"]["max"] == 9, "the rollout itself is as old as without the mask"
    assert 0 < report["masked_tokens"] < 1300


def test_each_straggler_rule_has_its_price() -> None:
    """Waiting costs time, dropping the straggler's tokens, requeueing both again and again."""
    by_rule = {
        rule: with_one_straggler({"name": "areal_strict", "straggler": rule})
        for rule in ("wait", "drop", "requeue", "mask")
    }
    soft = with_one_straggler({"name": "areal"}).report
    assert by_rule["wait"].report["sim_time_s"] > soft["sim_time_s"]
    assert by_rule["wait"].report["dropped_tokens"] == 0
    assert by_rule["mask"].report["dropped_tokens"] == 0
    assert by_rule["drop"].report["discarded_groups"]["stale"] == 1
    assert by_rule["requeue"].report["discarded_groups"]["stale"] > 1
    finished = by_rule["wait"].trace.events(RolloutFinished)
    assert sum(e.rollout == 0 for e in finished) == 1
