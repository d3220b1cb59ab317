"""A bound that only counts is exceeded: one rollout 13 times longer than the others shows it (AReaL#602)."""

from typing import Any

import pytest
from systems import built, with_one_straggler

SOFT: list[tuple[str, dict[str, Any]]] = [
    ("areal", {"max_staleness": 1, "max_concurrent_groups": 4}),
    ("skyrl_async", {"max_staleness_steps": 1}),
    ("tinker_async", {"sampling_steps_ahead": 1}),
    ("verl_fully_async", {"staleness_threshold": 1.0, "require_batches": 1}),
    ("pipeline_rl", {"max_lag": 4}),
    ("nemo_rl", {"order": "weight_fifo", "in_flight_weight_updates": True}),
    ("nemo_rl", {"order": "ready_first", "in_flight_weight_updates": True}),
]
HARD: list[tuple[str, dict[str, Any]]] = [
    ("areal_strict", {"max_staleness": 1, "max_concurrent_groups": 4}),
    ("verl_v1_separate", {}),
    ("verl_v1_separate", {"on_stale": "drop"}),
    ("verl_fully_async", {"staleness_threshold": 1.0, "require_batches": 1, "partial_rollout": False}),
    ("nemo_rl", {"in_flight_weight_updates": True}),
    ("prime_rl", {"max_off_policy_steps": 1}),
    ("trl_async", {"max_staleness": 1}),
    ("roll_flash", {"async_generation_ratio": 1}),
    ("staleflow", {}),
    ("xtuner", {}),
]


@pytest.mark.parametrize(("name", "parameters"), SOFT)
def test_a_soft_bound_is_exceeded_by_a_straggler(name: str, parameters: dict[str, Any]) -> None:
    promised = built(name, 2, **parameters).guarantees
    assert not promised.hard
    assert promised.max_staleness is not None
    assert with_one_straggler(name, **parameters).report["staleness"]["max"] > promised.max_staleness


@pytest.mark.parametrize(("name", "parameters"), HARD)
def test_a_hard_bound_is_not(name: str, parameters: dict[str, Any]) -> None:
    assert built(name, 2, **parameters).guarantees.hard
    assert with_one_straggler(name, **parameters).report["staleness"]["max"] <= 1


@pytest.mark.parametrize("name", ["slime_partial", "april", "magistral", "laminar", "forge_window"])
def test_a_system_without_a_bound_names_none(name: str) -> None:
    assert built(name).guarantees.max_staleness is None
