"""Small runs of the core for the tests of known faults."""

from dataclasses import replace

from interfaces import actions, events
from interfaces.actions import InFlight
from interfaces.conformance.invariants import Monitor
from interfaces.conformance.timed import Durations, Timed
from interfaces.loop import TrainingLoop
from interfaces.policies.buffering import OldestFirst
from interfaces.policies.dispatch import LeastLoaded
from interfaces.policies.presets import Areal
from interfaces.policies.protocols import Guarantees, Policy
from interfaces.policies.sync import EveryStep
from interfaces.rollout import Segment
from interfaces.view import LoopConfig


def config(batch_size, group_size=1, steps=5, **options):
    return LoopConfig(batch_size, group_size, steps, **options)


def soft(shape, eta=1, concurrency=1000, **options):
    """AReaL's gate with the default decisions, any of them replaced."""
    return replace(Areal(eta, concurrency).build(shape), dispatch=LeastLoaded(), **options)


def filtering(shape, eta=0):
    promise = Guarantees(eta, no_drops=False)
    return soft(shape, eta, buffering=OldestFirst(filter_zero_variance=True), guarantees=promise)


def aborting(shape, intent, eta=1):
    promise = Guarantees(eta, no_drops=intent is not InFlight.ABORT_DROP)
    return soft(shape, eta, sync=EveryStep(intent), in_flight=frozenset({intent}), guarantees=promise)


def timed(policy: Policy, shape: LoopConfig, durations=None, replicas=1) -> Timed:
    """A monitored run with durations, not started."""
    return Timed(Monitor(TrainingLoop(policy, shape)), replicas, durations or Durations())


def by_hand(policy: Policy, shape: LoopConfig, replicas=1):
    """A loop that has started, and what it answered."""
    loop = TrainingLoop(policy, shape)
    return loop, loop.feed(events.RunStarted(0.0, tuple(range(replicas)), 0))


def finish(loop, rollout, *, version=0, replica=0, reward=1.0, at=None, tokens=1):
    at = loop.view.now if at is None else at
    segments = (Segment(version, tokens),)
    return loop.feed(events.RolloutFinished(at, rollout, replica, 1, segments, at, reward))


def of(kind, answer):
    return [action for action in answer if isinstance(action, kind)]


def started(answer):
    return [action.rollout for action in of(actions.Generate, answer)]


def trains(backend: Timed) -> list[tuple[float, actions.Train]]:
    """Every training of a run, with its time."""
    history = backend.monitor.history
    return [(step.event.at, action) for step in history for action in of(actions.Train, step.answer)]


def trained_prompts(backend: Timed) -> list[int]:
    """Prompts of every finished training, in order."""
    prompt_of = {
        a.rollout: a.prompt for step in backend.monitor.history for a in of(actions.Generate, step.answer)
    }
    return [prompt_of[rollout] for _, train in trains(backend) for rollout in train.rollouts]


def ages(backend: Timed) -> list[int]:
    """Largest staleness of each training."""
    return [step.staleness for step in backend.monitor.history if step.staleness is not None]
