"""Lost, repeated or incomplete data; recovery."""

import json
from collections import Counter

import pytest
from core_runs import (
    aborting,
    by_hand,
    config,
    finish,
    of,
    soft,
    started,
    timed,
    trained_prompts,
    trains,
)  # fmt: skip

from interfaces import actions, events
from interfaces.actions import InFlight
from interfaces.conformance.timed import Durations
from interfaces.errors import ProtocolError
from interfaces.loop import TrainingLoop
from interfaces.policies.dispatch import LeastLoaded
from interfaces.policies.presets import Areal, ArealStrict, Sync
from interfaces.rollout import Segment, Trajectory
from interfaces.snapshot import restore, snapshot


@pytest.mark.parametrize("killed_after", range(1, 60, 4))
@pytest.mark.parametrize("preset", [Areal(1, 4), ArealStrict(1, 4, straggler="wait"), Sync()])
def test_kill_and_resume_trains_every_prompt_of_the_epoch_once(preset, killed_after):
    # AReaL#1656, NeMo-RL#3599, OpenRLHF#1322: B = 2, eta = 1
    shape = config(2, steps=99, dataset_size=12)
    backend = timed(preset.build(shape), shape, Durations(tokens=lambda prompt, member: 1 + prompt % 4))
    backend.run(killed_after)
    if not backend.ended:
        backend.kill(None)
        backend.run()
    assert backend.monitor.loop.ended == "data"
    counts = backend.monitor.loop.view.trained_groups
    assert counts == 12
    assert all(prompt in backend.monitor.books.trained for prompt in range(12))


def test_leftovers_of_over_sampling_are_in_the_snapshot():
    # OpenRLHF#1322: prompts 0..7, batch 4, 6 started; the next batch begins with the 2 leftovers
    shape = config(4, steps=2, dataset_size=8)
    policy = soft(shape, 1, concurrency=6)
    loop, _ = by_hand(policy, shape)
    for rollout in (0, 1, 2, 3):
        finish(loop, rollout)
    loop.feed(events.TrainingFinished(1.0, 0, True))
    state = json.loads(json.dumps(snapshot(loop)))
    answer = restore(policy, shape, state).feed(events.RunStarted(0.0, (0,), 1))
    assert [action.prompt for action in of(actions.Generate, answer)] == [4, 5, 6, 7]


def test_cursor_moves_past_a_dropped_group():
    # TRL#7274: group 3 of 1..5 is dropped; the resumed run starts at 6
    shape = config(1, steps=9, max_retries=0)
    policy = soft(shape, 5, concurrency=6)
    loop, _ = by_hand(policy, shape)
    loop.feed(events.RolloutFailed(1.0, 3, 0, "stale"))
    for rollout in (0, 1, 2, 4, 5):
        finish(loop, rollout)
    state = snapshot(loop)
    assert 3 not in [prompt for prompt, _ in state["requeued"]]
    assert state["next_index"] >= 6


def test_groups_too_old_after_a_resume_go_once():
    # xtuner#1814, xtuner#1917
    shape = config(2, steps=9)
    policy = ArealStrict(0, 9, straggler="requeue").build(shape)
    state = snapshot(TrainingLoop(policy, shape)) | {
        "version": 3, "next_index": 1, "admitted_groups": 1, "admitted_rollouts": 1,
        "ready": [{"id": 0, "prompt": 0, "attempt": 0, "rollouts": [
            {"id": 0, "member": 0, "attempt": 0, "failures": 0, "segments": [[1, 5]], "reward": 1.0}]}],
    }  # fmt: skip
    loop = restore(policy, shape, state)
    answer = loop.feed(events.RunStarted(0.0, (0,), 3))
    assert [action.reason for action in of(actions.Discard, answer)] == ["stale"]
    assert [(a.prompt, a.attempt) for a in of(actions.Generate, answer)] == [(0, 1), (1, 0)]
    assert 0 not in loop.ledger.groups


def test_nothing_is_left_over_in_the_core():
    # AReaL#1209, AReaL#1296, AReaL#1714: memory of 100 steps; xtuner#1917: storage empty at the end
    shape = config(2, 2, steps=100)
    backend = timed(Areal(2, 6).build(shape), shape, Durations(tokens=lambda prompt, member: 1 + prompt % 7))
    largest = []
    loop = backend.monitor.loop
    backend.run(until=lambda: bool(largest.append(len(loop.ledger.rollouts))))
    assert max(largest) <= 2 * (2 + 2) * 2 * 2
    assert not loop.ledger.rollouts
    assert not loop.ledger.groups


def test_surplus_groups_train_in_the_next_batch_oldest_first():
    # slime#2238: 11 done, batch 8
    shape = config(8, steps=3)
    loop, answer = by_hand(soft(shape, 1), shape)
    assert len(started(answer)) == 16
    for rollout in range(11):
        finish(loop, rollout)
    assert list(loop.view.ready) == [8, 9, 10]
    loop.feed(events.TrainingFinished(1.0, 0, True))
    answers = [finish(loop, rollout, at=2.0) for rollout in range(11, 16)]
    assert of(actions.Train, answers[-1])[0].groups == (8, 9, 10, 11, 12, 13, 14, 15)


@pytest.mark.parametrize("intent", [InFlight.ABORT_RESTART, InFlight.ABORT_DROP])
def test_without_partial_rollouts_every_trajectory_has_one_version(intent):
    # verl#6882, slime#2092
    shape = config(2, steps=8)
    backend = timed(aborting(shape, intent), shape, Durations(tokens=lambda prompt, member: 1 + prompt % 3))
    backend.run()
    assert backend.ended
    resumed = [a.resume_tokens for s in backend.monitor.history for a in of(actions.Generate, s.answer)]
    assert set(resumed) == {0}


def test_resumed_rollout_knows_its_earlier_tokens():
    # verl#7207, slime#2260, slime#2122: limit 24,576, interrupted at 19,202: 5,374 remain
    shape = config(1, steps=3)
    loop, _ = by_hand(aborting(shape, InFlight.ABORT_RESUME), shape)
    answer = loop.feed(events.RolloutAborted(1.0, 0, 0, (Segment(0, 19_202),)))
    again = of(actions.Generate, answer)[0]
    assert (again.rollout, 24_576 - again.resume_tokens) == (0, 5_374)


def test_batches_are_disjoint_and_exact():
    # prime-rl#3013: interleaved completions of two batches
    shape = config(3, 2, steps=8)
    interleaved = Durations(tokens=lambda prompt, member: 1 + (prompt * 3 + member) % 5)
    backend = timed(soft(shape, 2), shape, interleaved)
    backend.run()
    assert {len(train.rollouts) for _, train in trains(backend)} == {6}
    assert set(Counter(trained_prompts(backend)).values()) == {2}


@pytest.mark.parametrize(("failures", "trained"), [(2, True), (3, False)])
def test_retries_are_bounded(failures, trained):
    # prime-rl#2581, miles#2800
    shape = config(1, steps=1, dataset_size=1, max_retries=2)
    backend = timed(soft(shape, 0), shape, Durations(fails=lambda prompt, attempt: attempt < failures))
    backend.run()
    assert backend.ended
    assert bool(trains(backend)) is trained


def test_a_partial_group_never_trains():
    # AReaL#1419: group size 4, 3 finished
    shape = config(1, 4, steps=1)
    loop, _ = by_hand(soft(shape, 0), shape)
    assert not [a for rollout in (0, 1, 3) for a in of(actions.Train, finish(loop, rollout))]
    assert of(actions.Train, finish(loop, 2))[0].rollouts == (0, 1, 2, 3)


def test_work_submitted_during_an_update_waits_for_it():
    # AReaL#145, torchforge#251
    shape = config(1, steps=3)
    loop, _ = by_hand(soft(shape, 1, concurrency=1), shape)
    finish(loop, 0)
    loop.feed(events.TrainingFinished(1.0, 0, True))
    loop.feed(events.WeightsPublished(1.0, 1))
    assert not started(finish(loop, 1, at=1.5))
    assert started(loop.feed(events.WeightsLoaded(2.0, 0, 1)))


def test_versions_belong_to_the_replica_that_generates():
    # AReaL#941: two engines, one updated
    shape = config(1, steps=3)
    loop, _ = by_hand(soft(shape, 3), shape, replicas=2)
    finish(loop, 0)
    loop.feed(events.TrainingFinished(1.0, 0, True))
    loop.feed(events.WeightsPublished(1.0, 1))
    loop.feed(events.WeightsLoaded(2.0, 0, 1))
    assert [replica.version for replica in loop.view.pool] == [1, 0]
    assert loop.view.serving_version == 1  # what it aims at: no new work starts under version 0


def test_load_nobody_asked_for_is_refused():
    # NeMo-RL#2180: weights written while a forward pass runs
    shape = config(1)
    loop, _ = by_hand(soft(shape, 1), shape)
    with pytest.raises(ProtocolError, match="unasked"):
        loop.feed(events.WeightsLoaded(1.0, 0, 1))


def test_arrays_of_a_trajectory_have_one_length():
    # AReaL at 4aef98d: versions were not shifted with log-probs
    with pytest.raises(ValueError, match="differ in length"):
        Trajectory(0, (1,), (5, 6), (-0.1, -0.2), (3,))
    trajectory = Trajectory(0, (1, 2), (5, 6, 7), (-0.1, -0.2, -0.3), (5, 5, 6))
    assert (trajectory.head_version, trajectory.segments) == (5, (Segment(5, 2), Segment(6, 1)))


def test_full_replicas_keep_the_rest_in_the_core():
    # verl#7990: what the engine does not hold needs no abort
    shape = config(4, steps=1)
    loop, answer = by_hand(soft(shape, 0), shape)
    del loop
    policy = soft(shape, 0)
    policy = type(policy)(**{**{f: getattr(policy, f) for f in policy.__slots__}, "dispatch": LeastLoaded(2)})
    loop, answer = by_hand(policy, shape)
    assert (len(started(answer)), loop.view.pending_rollouts) == (2, 2)
