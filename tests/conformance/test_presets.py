import pytest

from interfaces.conformance import policy_checks
from interfaces.policies.presets import Areal, ArealStrict, OneStepOff, Sync, SyncColocated

PRESETS = {
    "sync": Sync(),
    "sync, filtered": Sync(filter_zero_variance=True),
    "sync_colocated": SyncColocated(),
    "one_step_off": OneStepOff(),
    "areal eta=1": Areal(1),
    "areal eta=2 C=6 filtered": Areal(2, 6, filter_zero_variance=True),
    "areal eta=1 C=4 drained": Areal(1, 4, interruptible=False),
    "areal_strict eta=0": ArealStrict(0),
    "areal_strict wait eta=1": ArealStrict(1, 6),
    "areal_strict wait eta=2 drained": ArealStrict(2, 9, interruptible=False),
    "areal_strict drop": ArealStrict(1, 6, straggler="drop"),
    "areal_strict drop drained": ArealStrict(2, 9, straggler="drop", interruptible=False),
    "areal_strict requeue": ArealStrict(1, 6, straggler="requeue"),
    "areal_strict mask": ArealStrict(1, 6, straggler="mask"),
}

CHECKS = [
    pytest.param(check, id=f"{name}-{check}")
    for name, preset in PRESETS.items()
    for check in policy_checks(preset)
]


@pytest.mark.conformance
@pytest.mark.parametrize("check", CHECKS)
def test_preset_keeps(check):
    check()
