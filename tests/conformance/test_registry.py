import pytest

from interfaces.conformance import check_policy
from interfaces.policies.registry import presets

OWN_TESTS = {"sync", "sync_colocated", "one_step_off", "areal", "areal_strict"}


@pytest.mark.conformance
@pytest.mark.parametrize("name", sorted(set(presets()) - OWN_TESTS))
def test_named_system_keeps_its_promises(name):
    check_policy(name)
