"""A backend that breaks a contract fails its named check; one that reports the impossible is the cause."""

import pytest
from broken_backends import BACKENDS
from broken_policies import base

from areal_sim.simulation import CAPABILITIES
from interfaces import events
from interfaces.actions import InFlight
from interfaces.conformance import BackendViolation, backend_checks
from interfaces.conformance.adversary import Adversary
from interfaces.conformance.invariants import Monitor
from interfaces.conformance.violation import InvariantViolation
from interfaces.loop import TrainingLoop
from interfaces.policies.sync import EveryStep
from interfaces.rollout import Segment
from interfaces.view import LoopConfig


def start(**changes):
    config = LoopConfig(1, 1, 3)
    adversary = Adversary(Monitor(TrainingLoop(base(config, **changes), config)), 1)
    adversary.start()
    return adversary


def loading(intent):
    """A run in which replica 0 loads version 1 with rollout 1 in flight."""
    adversary = start(sync=EveryStep(intent), in_flight=frozenset({intent}))
    adversary.finish(0, 1, 1.0)
    adversary.train_finishes()
    adversary.published()
    assert adversary.loads
    return adversary


ONE_TOKEN = (Segment(0, 1),)


def finished(rollout=0, at=1.0, segments=ONE_TOKEN, first=0.5, replica=0):
    return events.RolloutFinished(at, rollout, replica, 1, segments, first, 1.0)


FAULTS = {
    "finishes what never started": (finished(77), "causality"),
    "finishes on another replica": (finished(replica=5), "causality"),
    "finishes without a token": (finished(segments=()), "causality"),
    "first token after the end": (finished(first=9.0), "causality"),
    "first token before the start": (finished(first=-9.0), "causality"),
    "tokens of a version that does not exist": (finished(segments=(Segment(3, 1),)), "versions"),
    "versions that fall": (finished(segments=(Segment(0, 1), Segment(-1, 1))), "versions"),
    "trains unasked": (events.TrainingFinished(1.0, 0, True), "causality"),
    "publishes unasked": (events.WeightsPublished(1.0, 1), "versions"),
    "loads unasked": (events.WeightsLoaded(1.0, 0, 1), "versions"),
    "comes back without having died": (events.ReplicaUp(1.0, 0, 0), "versions"),
    "goes back in time": (finished(at=-1.0, first=-1.0), "causality"),
    "switches unasked": (events.RoleSwitched(1.0, "train"), "causality"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_impossible_event_is_the_backends(fault):
    event, name = FAULTS[fault]
    with pytest.raises(InvariantViolation, match="the backend") as failure:
        start().monitor.feed(event)
    assert failure.value.name == name


def test_load_that_is_done_before_its_aborts():
    adversary = loading(InFlight.ABORT_RESUME)
    with pytest.raises(InvariantViolation, match="before WeightsLoaded") as failure:
        adversary.monitor.feed(events.WeightsLoaded(9.0, 0, 1))
    assert failure.value.name == "overlap"


def test_more_tokens_than_the_budget():
    from interfaces.policies.dispatch import LeastLoaded  # noqa: PLC0415

    class Budget(LeastLoaded):
        def token_budget(self, view, rollout):  # noqa: ARG002
            return 2

    adversary = start(dispatch=Budget())
    with pytest.raises(InvariantViolation) as failure:
        adversary.monitor.feed(events.RolloutAborted(1.0, 0, 0, (Segment(0, 3),)))
    assert failure.value.name == "budget"


def test_wrong_end_of_a_step():
    adversary = start()
    adversary.finish(0, 1, 1.0)
    with pytest.raises(InvariantViolation, match="last") as failure:
        adversary.monitor.feed(events.TrainingFinished(9.0, 0, False))
    assert failure.value.name == "causality"


LONGEST = 12


@pytest.mark.conformance
@pytest.mark.parametrize("fault", BACKENDS)
def test_broken_backend_fails_its_contract(fault):
    backend, name = BACKENDS[fault]
    check = next(check for check in backend_checks(backend, CAPABILITIES) if check.name == name)
    with pytest.raises(BackendViolation) as failure:
        check()
    story = str(failure.value)
    assert story.startswith(f"contract {name}: {check.contract.sentence}")
    assert all(word in story for word in ("expected:", "seen:", "likely cause:", "asked:", "reported:"))
    assert story.count("reported:") <= LONGEST
