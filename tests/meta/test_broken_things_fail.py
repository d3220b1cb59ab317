"""The kit is held to its promise: every broken thing fails its named check, with a short story."""

import pytest
from broken_loops import LOOPS
from broken_policies import POLICIES

from interfaces import snapshot as snapshots
from interfaces.conformance.check import explore
from interfaces.conformance.invariants import Monitor
from interfaces.conformance.laws import directed_checks
from interfaces.conformance.target import target_of
from interfaces.conformance.violation import LAWS, InvariantViolation
from interfaces.loop import TrainingLoop
from interfaces.policies.presets import Areal

LONGEST = 12
RARE = {
    "gate is tighter than the bound",
    "restarts long rollouts for ever",
    "trains the newest first",
    "loses the credit of discarded groups, slowly",
}
"""Faults that chance does not show: a directed check does."""


def find(subject, name, loop_class=TrainingLoop):
    """The violation of the named law; other laws that the same fault breaks are set aside one by one."""
    target = target_of(subject)
    others = set()
    for _ in LAWS:
        violation = explore(target, "dev", frozenset(others), loop_class, shrink=False)
        if violation is None:
            return directed(target, name, loop_class)
        if violation.name == name:
            return explore(target, "dev", frozenset(others), loop_class)
        others.add(violation.number)
    return None


def directed(target, name, loop_class):
    for _, check in directed_checks(target, loop_class):
        try:
            check()
        except InvariantViolation as violation:
            if violation.name == name:
                return violation
    return None


def assert_short_story(violation):
    assert violation is not None
    assert violation.events <= LONGEST
    story = str(violation)
    assert story.startswith(f"law {violation.number} ({violation.name}): {LAWS[violation.number].sentence}")
    assert all(word in story for word in ("expected:", "seen:", "likely cause:"))


@pytest.mark.conformance
@pytest.mark.parametrize("fault", POLICIES)
def test_broken_policy_fails_its_check(fault):
    policy, name = POLICIES[fault]
    if fault in RARE:
        assert_short_story(directed(target_of(policy), name, TrainingLoop))
    else:
        assert_short_story(find(policy, name))


@pytest.mark.conformance
@pytest.mark.parametrize("fault", LOOPS)
def test_broken_core_fails_its_check(fault):
    loop_class, policy, name = LOOPS[fault]
    assert_short_story(find(policy, name, loop_class))


def forgets_running(loop):
    return snapshots.snapshot(loop) | {"requeued": []}


def forgets_the_trainer(loop):
    state = snapshots.snapshot(loop)
    held = {group.id for group in loop.view.training.values()}
    return state | {"ready": [group for group in state["ready"] if group["id"] not in held]}


def repeats_the_data(loop):
    return snapshots.snapshot(loop) | {"next_index": 0}


def forgets_the_version(loop):
    return snapshots.snapshot(loop) | {"version": 0}


SNAPSHOTS = {
    "forgets in-flight work": (forgets_running, "recovery"),
    "forgets what the trainer holds": (forgets_the_trainer, "conservation"),
    "repeats the data": (repeats_the_data, "once"),
    "forgets the version": (forgets_the_version, "versions"),
}


@pytest.mark.conformance
@pytest.mark.parametrize("fault", SNAPSHOTS)
def test_broken_snapshot_fails_its_check(fault, monkeypatch):
    faulty, name = SNAPSHOTS[fault]
    monkeypatch.setattr(Monitor, "take_snapshot", staticmethod(faulty))
    violation = find(Areal(1, 4), name)
    assert_short_story(violation)
    with pytest.raises(InvariantViolation) as again:
        exec(compile("if True:\n" + violation.snippet, "snippet", "exec"), {})
    assert again.value.number == violation.number
