"""Off by one, counted twice: faults of public systems as tests of this core."""

import pytest
from core_runs import ages, by_hand, config, filtering, finish, of, soft, started, timed, trains

from interfaces import actions, events
from interfaces.conformance.timed import Durations
from interfaces.loop import TrainingLoop
from interfaces.policies.admission import QueueRoom
from interfaces.policies.presets import Areal, ArealStrict, OneStepOff
from interfaces.rollout import Segment, staleness
from interfaces.snapshot import restore, snapshot


@pytest.mark.parametrize(("version", "eta", "capacity"), [(50, 2, 12), (0, 2, 12), (5, 1, 8)])
def test_capacity_after_recovery_does_not_grow_with_the_version(version, eta, capacity):
    # AReaL#1388, AReaL#1345; NeMo-RL#3066 (first admission after a restore with an empty buffer)
    shape = config(4, steps=100)
    policy = soft(shape, eta)
    state = snapshot(TrainingLoop(policy, shape)) | {"version": version}
    loop = restore(policy, shape, state)
    answer = loop.feed(events.RunStarted(0.0, (0,), version))
    assert len(of(actions.Generate, answer)) == capacity


def test_count_gate_alone_lets_a_straggler_exceed_the_bound():
    # AReaL#602
    shape = config(2, steps=12)
    straggler = Durations(tokens=lambda prompt, member: 13 if prompt == 1 else 1)
    backend = timed(Areal(1, 4).build(shape), shape, straggler)
    backend.run()
    assert max(ages(backend)) > 1
    assert not backend.monitor.loop.policy.guarantees.hard


@pytest.mark.parametrize("rule", ["wait", "drop", "requeue"])
def test_hard_bound_keeps_every_rollout_within_it(rule):
    # AReaL#602
    shape = config(2, steps=12)
    straggler = Durations(tokens=lambda prompt, member: 13 if prompt == 1 else 1)
    backend = timed(ArealStrict(1, 4, straggler=rule).build(shape), shape, straggler)
    backend.run()
    assert backend.ended
    assert max(ages(backend)) == 1


def test_waiting_for_stragglers_never_lets_two_batches_fall_due_at_once():
    # found by this kit: eta=2, one batch trained around two stragglers left both due in the same step
    shape = config(1, steps=6)
    late = Durations(tokens=lambda prompt, member: 9 if prompt in (1, 2) else 1)
    backend = timed(ArealStrict(2, 9).build(shape), shape, late)
    backend.run()
    assert backend.ended
    assert max(ages(backend)) == 2


def test_staleness_needs_a_generated_token():
    # AReaL#1350
    with pytest.raises(ValueError, match="no generated token"):
        staleness(5, -1)
    assert staleness(5, 5) == 0


def test_finished_groups_count_once():
    # verl#7938: finished groups are in the queue and no longer active
    shape = config(70, steps=2)
    loop, answer = by_hand(soft(shape, admission=QueueRoom(70)), shape)
    assert len(started(answer)) == 70
    for rollout in range(69):
        finish(loop, rollout)
    assert (len(loop.view.running), len(loop.view.ready), loop.view.untaken) == (1, 69, 70)
    answer = finish(loop, 69)
    assert loop.view.untaken == len(started(answer)) == 70  # the batch was taken: all its room is free again


def test_fast_trainer_never_trains_beyond_the_level():
    # prime-rl#1901
    shape = config(1, steps=10)
    backend = timed(ArealStrict(1, 5).build(shape), shape, Durations(train_s=0.3, publish_s=1.0))
    backend.run()
    assert backend.ended
    assert max(ages(backend)) <= 1


def test_next_batch_is_generated_while_one_trains():
    # prime-rl#2937: lead overstated by one
    shape = config(2, steps=4)
    loop, answer = by_hand(OneStepOff().build(shape), shape)
    assert started(answer) == [0, 1]
    finish(loop, 0)
    answer = finish(loop, 1)
    assert of(actions.Train, answer)
    assert loop.view.untaken == 2  # batch k+1 is under way while batch k trains


@pytest.mark.parametrize(("eta", "capacity"), [(0, 4), (1, 8), (4, 20)])
def test_capacity_before_the_first_step(eta, capacity):
    # SkyRL (S+g) against AReaL (eta+c+1)
    shape = config(4)
    _, answer = by_hand(soft(shape, eta), shape)
    assert len(started(answer)) == capacity


@pytest.mark.parametrize("step", range(5))
def test_groups_of_the_previous_version_train_and_older_ones_do_not(step):
    # ROLL commit 01a96191; prime-rl#491 (batches of before a restore): alpha = 1
    shape = config(2, steps=9)
    policy = ArealStrict(1, 9, straggler="drop").build(shape)
    state = snapshot(TrainingLoop(policy, shape)) | {
        "version": step,
        "admitted_groups": 3,
        "admitted_rollouts": 3,
    }
    heads = [head for head in (step, step - 1, step - 2) if head >= 0]
    state["ready"] = [
        {"id": i, "prompt": i, "attempt": 0, "rollouts": [
            {"id": i, "member": 0, "attempt": 0, "failures": 0, "segments": [[head, 3]], "reward": 1.0}]}
        for i, head in enumerate(heads)
    ]  # fmt: skip
    loop = restore(policy, shape, state)
    answer = loop.feed(events.RunStarted(0.0, (0,), step))
    dropped = [action.group for action in of(actions.Discard, answer)]
    assert dropped == [i for i, head in enumerate(heads) if head < step - 1]
    if step:
        assert set(of(actions.Train, answer)[0].groups) == {0, 1}


def test_bound_zero_is_on_policy_and_bound_one_is_one_step_off():
    # verl V1: "threshold 1" meant lag 0
    for bound in (0, 1):
        shape = config(1, steps=6)
        backend = timed(ArealStrict(bound, 5).build(shape), shape, Durations(train_s=9.0))
        backend.run()
        assert max(ages(backend)) == bound


def test_filtered_groups_give_their_credit_back():
    # SkyRL: zero-variance groups counted as accepted; AReaL#588, AReaL#595 (rejected samples)
    shape = config(4, 2, steps=10)
    half = Durations(reward=lambda prompt, member: float(member) if prompt % 2 else 0.0)
    backend = timed(filtering(shape), shape, half)
    backend.run()
    assert backend.ended
    assert len(trains(backend)) == 10


def test_time_in_the_queue_counts_as_staleness():
    # prime-rl#3050: a group that waits two versions in the queue has lag 2
    shape = config(1, steps=6)
    backend = timed(soft(shape, 2), shape, Durations(train_s=10.0))
    backend.run()
    assert max(ages(backend)) == 2


def test_a_rollout_of_three_versions_is_as_old_as_its_oldest_token():
    # verl#6796: version of each token from its own segment
    shape = config(1)
    loop, _ = by_hand(soft(shape, 3), shape)
    segments = (Segment(0, 2), Segment(0, 1))
    loop.feed(events.RolloutFinished(1.0, 0, 0, 1, segments, 0.5, 1.0))
    group = next(iter(loop.view.training.values()))
    assert (group.head_version, group.rollouts[0].response_tokens) == (0, 3)


@pytest.mark.parametrize("rule", ["wait", "drop", "requeue", "mask"])
def test_last_incomplete_batch_keeps_the_bound_too(rule):
    # found by this kit: what the data no longer fill was trained without the mask
    shape = config(2, steps=99, dataset_size=9, last_batch="train")
    straggler = Durations(tokens=lambda prompt, member: 20 if prompt == 1 else 1)
    backend = timed(ArealStrict(1, 9, straggler=rule).build(shape), shape, straggler)
    backend.run()
    assert backend.monitor.loop.ended == "data"
