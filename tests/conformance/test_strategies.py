from math import inf

from hypothesis import given, settings

from interfaces.conformance import strategies
from interfaces.events import RunStarted
from interfaces.loop import TrainingLoop
from interfaces.policies.presets import Areal
from interfaces.view import LoopConfig

FEW = settings(max_examples=40, derandomize=True, database=None, deadline=None)


@FEW
@given(strategies.rollouts(newest=5))
def test_rollouts_are_finished_and_their_versions_never_fall(rollout):
    versions = [version for version, _ in rollout.segments]
    assert versions == sorted(versions)
    assert 0 <= rollout.head_version == versions[0] <= rollout.tail_version == versions[-1] <= 5
    assert rollout.response_tokens == sum(tokens for _, tokens in rollout.segments) > 0
    assert rollout.group.finished == 1


@FEW
@given(strategies.scenarios())
def test_scenarios_are_runs_that_can_be_run(scenario):
    config, replicas = scenario
    assert replicas >= 1
    assert config.prompts is None or config.prompts >= config.batch_size


@FEW
@given(strategies.event_sequences(Areal(1, 4)))
def test_event_sequences_are_answered_by_a_fresh_core(sequence):
    policy, config, events = sequence
    loop = TrainingLoop(policy, config)
    assert isinstance(events[0], RunStarted)
    for event in events:
        loop.feed(event)
    assert loop.view.now == events[-1].at


@FEW
@given(strategies.staleness_settings())
def test_staleness_settings_build_a_policy(bound):
    policy = Areal(bound).build(LoopConfig(batch_size=2, group_size=1, steps=3))
    assert policy.guarantees.max_staleness == (None if bound == inf else bound)
