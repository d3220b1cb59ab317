"""Transitions of the core that few runs come to: each is noticed by one of these within a second."""

from dataclasses import replace

from interfaces import actions, events
from interfaces.actions import InFlight
from interfaces.ledger import Prompt
from interfaces.loop import TrainingLoop
from interfaces.policies.presets import Areal, Sync
from interfaces.policies.registry import build_policy
from interfaces.policies.sync import EveryStep
from interfaces.rollout import Group, Rollout, Segment
from interfaces.snapshot import restore, snapshot
from interfaces.view import LoopConfig


def started(policy, config, replicas=1):
    loop = TrainingLoop(policy, config)
    loop.feed(events.RunStarted(0.0, tuple(range(replicas)), 0))
    return loop


def finish(loop, rollout, version=0, reward=1.0):
    segments = (Segment(version, 1),)
    return loop.feed(events.RolloutFinished(0.0, rollout, 0, 1, segments, 0.0, reward))


def kinds(answer):
    return [type(action) for action in answer]


def trained(loop, version):
    """A step is trained and its version published."""
    loop.feed(events.TrainingFinished(0.0, version - 1, True))
    return loop.feed(events.WeightsPublished(0.0, version))


class ChangesItsMind(EveryStep):
    """Drains for the first version, keeps for the second."""

    def load(self, view, replica):  # noqa: ARG002
        return InFlight.DRAIN if view.published == 1 else InFlight.KEEP_RECOMPUTE


def test_a_replica_that_drains_is_not_asked_again_before_it_is_empty():
    config = LoopConfig(1, 1, 9)
    base = Areal(4, 9).build(config)
    both = frozenset({InFlight.DRAIN, InFlight.KEEP_RECOMPUTE})
    loop = started(replace(base, sync=ChangesItsMind(InFlight.DRAIN), in_flight=both), config)
    finish(loop, 1)
    assert actions.LoadWeights not in kinds(trained(loop, 1))
    finish(loop, 2)
    assert actions.LoadWeights not in kinds(trained(loop, 2))
    for rollout in (0, 3):
        assert actions.LoadWeights not in kinds(finish(loop, rollout))
    assert actions.LoadWeights in kinds(finish(loop, 4))


def test_a_drained_replica_loads_at_once_although_the_last_reward_is_due():
    config = LoopConfig(1, 1, 9)
    loop = started(Areal(1, 2, interruptible=False).build(config), config)
    finish(loop, 0)
    assert actions.LoadWeights not in kinds(trained(loop, 1))
    assert actions.LoadWeights in kinds(finish(loop, 1, reward=None))


def test_aborted_work_waits_until_the_gpus_generate_again():
    config = LoopConfig(1, 1, 9)
    loop = started(build_policy("slime_partial", {}, config, "test"), config)
    assert actions.Abort in kinds(finish(loop, 0))
    answer = loop.feed(events.RolloutAborted(0.0, 1, 0, (Segment(0, 1),)))
    assert kinds(answer) == [actions.SwitchRole]
    answers = [
        *loop.feed(events.RoleSwitched(0.0, "train")),
        *trained(loop, 1),
        *loop.feed(events.RoleSwitched(0.0, "generate")),
    ]
    assert actions.Generate not in kinds(answers)
    assert actions.Generate in kinds(loop.feed(events.WeightsLoaded(0.0, 0, 1)))


def test_a_run_restored_from_after_its_last_step_ends_at_once():
    config = LoopConfig(1, 1, 2)
    loop = started(Sync().build(config), config)
    finish(loop, 0)
    loop.feed(events.TrainingFinished(0.0, 0, True))
    short = replace(config, steps=1)
    again = restore(Sync().build(short), short, snapshot(loop))
    assert actions.EndRun in kinds(again.feed(events.RunStarted(0.0, (0,), 1)))


def test_a_prompt_given_back_after_the_data_ended_is_data_again():
    config = LoopConfig(1, 1, 9, dataset_size=1)
    loop = started(Areal(0).build(config), config)
    assert loop.ledger.next_prompt() is None
    assert not loop.view.prompts_left
    loop.ledger.discard(loop.view.running[0], "stale", requeue=True)
    assert loop.view.prompts_left


def test_a_group_is_as_old_as_its_oldest_member_in_whatever_order_they_finish():
    config = LoopConfig(1, 2, 9)
    loop = started(Areal(1, 4).build(config), config)
    group = loop.view.running[0]
    finish(loop, 0, version=1)
    finish(loop, 1, version=0)
    assert (group.head_version, group.tail_version) == (0, 1)


def test_replicas_are_counted_as_closed_only_while_they_load():
    config = LoopConfig(1, 1, 9)
    loop = started(Areal(1, 2).build(config), config)
    finish(loop, 0)
    trained(loop, 1)
    assert loop.view.pool.closed == 1
    loop.feed(events.WeightsLoaded(0.0, 0, 1))
    assert loop.view.pool.closed == 0


def test_prompts_that_wait_to_be_admitted_again_are_in_the_snapshot():
    config = LoopConfig(1, 1, 9)
    loop = started(Areal(0).build(config), config)
    loop.ledger.requeued.append(Prompt(7, 1))
    assert [7, 1] in [list(prompt) for prompt in snapshot(loop)["requeued"]]


def test_a_rollout_that_begins_again_has_no_version_of_before():
    rollout = Rollout(0, Group(0, 0, 0, 1), 0)
    rollout.add_segments((Segment(1, 5),))
    rollout.forget()
    rollout.add_segments((Segment(3, 5),))
    assert (rollout.head_version, rollout.tail_version, rollout.response_tokens) == (3, 3, 5)
