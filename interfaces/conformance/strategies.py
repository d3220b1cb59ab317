"""Hypothesis strategies for users' own properties."""

from dataclasses import replace
from math import inf

from hypothesis import strategies as st

from interfaces.conformance.target import Buildable, Target, target_of
from interfaces.events import Event
from interfaces.policies.protocols import Policy
from interfaces.rollout import Group, GroupState, Rollout, RolloutState, Segment
from interfaces.view import LoopConfig


@st.composite
def loop_configs(draw: st.DrawFn, target: Target | None = None) -> tuple[LoopConfig, int]:
    """A small run, and its number of replicas; sizes that the target can carry."""
    batch = target.fixed_batch if target is not None and target.fixed_batch else draw(st.integers(1, 3))
    config = LoopConfig(batch_size=batch, group_size=draw(st.integers(1, 2)), steps=draw(st.integers(1, 6)))
    policy = None if target is None else target.policy(config)
    if policy is not None and getattr(policy.buffering, "filter_zero_variance", False):
        config = replace(config, group_size=2)
    if draw(st.booleans()):
        needed = batch if policy is None else max(1, policy.min_outstanding_groups)
        config = replace(
            config,
            dataset_size=needed + draw(st.integers(0, 6)),
            epochs=draw(st.integers(1, 2)),
            last_batch=draw(st.sampled_from(("drop", "train"))),
        )
    config = replace(
        config,
        checkpoint_every_steps=draw(st.integers(0, 2)),
        evaluation_every_steps=draw(st.integers(0, 2)),
        max_retries=draw(st.integers(0, 2)),
    )
    return config, draw(st.integers(1, 3))


@st.composite
def rollouts(draw: st.DrawFn, *, newest: int = 8) -> Rollout:
    """A finished, rewarded rollout whose versions never fall, none newer than `newest`."""
    group = Group(draw(st.integers(0, 99)), draw(st.integers(0, 99)), draw(st.integers(0, 2)), 1)
    rollout = Rollout(draw(st.integers(0, 999)), group, 0)
    versions = sorted(draw(st.lists(st.integers(0, newest), min_size=1, max_size=4, unique=True)))
    rollout.add_segments(tuple(Segment(version, draw(st.integers(1, 50))) for version in versions))
    rollout.dispatch_version = rollout.head_version
    rollout.reward, rollout.state = draw(st.sampled_from((0.0, 1.0))), RolloutState.FINISHED
    group.rollouts, group.finished, group.state = [rollout], 1, GroupState.READY
    group.head_version, group.tail_version = rollout.head_version, rollout.tail_version
    return rollout


def staleness_settings() -> st.SearchStrategy[float]:
    """Bounds worth trying: the synchronous limit, off-by-one neighbours, none."""
    return st.sampled_from((0, 1, 2, 3, 8, inf))


@st.composite
def scenarios(draw: st.DrawFn) -> tuple[LoopConfig, int]:
    """The shape of a small run: configuration and number of replicas."""
    return draw(loop_configs())


@st.composite
def event_sequences(
    draw: st.DrawFn, policy: Buildable, *, max_events: int = 40
) -> tuple[Policy, LoopConfig, list[Event]]:
    """A policy, a configuration, and events that a backend could report to it in this order."""
    from interfaces.conformance.adversary import Adversary  # noqa: PLC0415
    from interfaces.conformance.invariants import Monitor  # noqa: PLC0415
    from interfaces.conformance.moves import faultless  # noqa: PLC0415
    from interfaces.loop import TrainingLoop  # noqa: PLC0415

    target = target_of(policy)
    config, replicas = draw(loop_configs(target))
    built = target.policy(config)
    backend = Adversary(Monitor(TrainingLoop(built, config), ignore=range(1, 99)), replicas)
    backend.start()
    for _ in range(draw(st.integers(0, max_events))):
        moves = faultless(backend)
        if not moves:
            break
        move = draw(st.sampled_from(moves))
        backend.make(move.name, **move.arguments)
    return built, config, [step.event for step in backend.monitor.history if step.event is not None]
