import pytest

from interfaces.conformance import policy_checks
from interfaces.policies.registry import presets

OWN_TESTS = {"sync", "sync_colocated", "one_step_off", "areal", "areal_strict"}
"""Those in test_presets.py, with several parameters each."""


@pytest.mark.conformance
@pytest.mark.parametrize("name", sorted(set(presets()) - OWN_TESTS))
def test_named_system_keeps_its_promises(name):
    for check in policy_checks(name):
        check()
