from dataclasses import replace
from pathlib import Path

import pytest
from simulated import backend

from areal_sim.simulation import CAPABILITIES
from interfaces.actions import InFlight
from interfaces.conformance import backend_checks, check_backend
from interfaces.conformance.contracts import CONTRACTS

LATE_REWARDS = {"latency_s": {"type": "exponential", "mean": 2.0}, "workers": 1}


@pytest.mark.conformance
@pytest.mark.parametrize("check", backend_checks(backend, CAPABILITIES), ids=str)
def test_simulator_keeps(check):
    check()


@pytest.mark.conformance
def test_simulator_with_late_rewards_keeps_all():
    assert len(check_backend(lambda: backend(reward=LATE_REWARDS), CAPABILITIES)) > 40


def test_what_is_not_declared_is_skipped():
    able = replace(
        CAPABILITIES, in_flight=frozenset({InFlight.KEEP_STALE}), streaming=False, quick_runs=False
    )
    names = {check.name for check in backend_checks(backend, able)}
    assert {name for name in names if name.startswith(("load_keep", "load_abort"))} == {"load_keep_stale"}
    assert not {"run_areal", "run_prime_rl"} & names
    assert "training_in_parts" not in names


def test_a_contract_expected_to_be_broken_that_holds_is_an_error():
    checks = backend_checks(backend, CAPABILITIES, expected_failures={"idle_load": "known"})
    with pytest.raises(AssertionError, match="remove it from expected_failures"):
        next(check for check in checks if check.name == "idle_load")()


def test_the_page_lists_every_contract():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "check_backend.md").read_text()
    for name, contract in CONTRACTS.items():
        assert name.startswith("run_") or f"| `{name}` | {contract.sentence} |" in page
