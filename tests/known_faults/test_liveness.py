"""Deadlocks, lost wake-ups, the end of data and of a run."""

import pytest
from core_runs import (
    aborting,
    ages,
    by_hand,
    config,
    filtering,
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
from interfaces.backend import Capabilities, refuse_unless_able
from interfaces.conformance import InvariantViolation
from interfaces.conformance.laws import check_starvation
from interfaces.conformance.target import target_of
from interfaces.conformance.timed import Durations
from interfaces.diagnosis import explain_stall
from interfaces.errors import ScenarioError
from interfaces.policies.admission import QueueRoom
from interfaces.policies.buffering import Bounded, Straggler
from interfaces.policies.presets import Areal, ArealStrict, OneStepOff, Sync
from interfaces.policies.protocols import Guarantees
from interfaces.policies.sync import EveryStep


def test_rejected_sample_does_not_hold_the_run():
    # AReaL#588, AReaL#595: 2 prompts, one rejected
    shape = config(1, 2, steps=5, dataset_size=2)
    one_rejected = Durations(reward=lambda prompt, member: float(member * prompt))
    backend = timed(filtering(shape), shape, one_rejected)
    backend.run()
    assert backend.monitor.loop.ended == "data"
    assert trained_prompts(backend) == [1, 1]


def test_dataset_smaller_than_a_batch_is_refused_by_name():
    # ASearcher#21
    shape = config(4, dataset_size=3)
    with pytest.raises(ScenarioError, match="fewer prompts than the 4 groups"):
        refuse_unless_able(Sync().build(shape), Capabilities(), shape, "a.toml")


def test_everything_filtered_ends_with_the_data():
    # ASearcher#21
    shape = config(2, 2, dataset_size=6)
    backend = timed(filtering(shape), shape, Durations(reward=lambda prompt, member: 0.0))
    backend.run()
    assert backend.monitor.loop.ended == "data"
    assert not trains(backend)


def test_generation_goes_on_after_an_update():
    # AReaL#1160, AReaL#1181: pause without resume
    shape = config(1, steps=3)
    backend = timed(soft(shape, 1), shape, Durations(load_s=2.0))
    backend.run()
    assert backend.monitor.loop.ended == "steps"


def test_generation_does_not_wait_for_checkpoint_and_evaluation():
    # AReaL at 4aef98d: servers idle through both
    times = {}
    for phase_s in (0.0, 30.0):
        shape = config(2, steps=6, checkpoint_every_steps=1, evaluation_every_steps=1)
        backend = timed(Areal(1, 4).build(shape), shape, Durations(phase_s=phase_s))
        backend.run()
        times[phase_s] = trains(backend)[-1][0]
    assert times[30.0] == times[0.0]


@pytest.mark.parametrize("intent", [InFlight.ABORT_RESUME, InFlight.ABORT_RESTART, InFlight.ABORT_DROP])
def test_every_queued_request_comes_back_at_a_load(intent):
    # verl#7990: 4 running, 100 queued in the engine: all are in flight for the core
    shape = config(1, steps=2)
    loop, answer = by_hand(aborting(shape, intent, eta=104), shape)
    assert len(started(answer)) == 105
    finish(loop, 0)
    loop.feed(events.TrainingFinished(1.0, 0, True))
    answer = loop.feed(events.WeightsPublished(2.0, 1))
    load = of(actions.LoadWeights, answer)[0]
    assert load.in_flight is intent
    for rollout in range(1, 105):
        loop.feed(events.RolloutAborted(2.0, rollout, 0, ()))
    assert loop.view.running_rollouts == 0
    assert loop.view.pending_rollouts == (0 if intent is InFlight.ABORT_DROP else 104) or loop.view.running


def test_last_version_is_published_and_nothing_waits_for_more():
    # prime-rl#2990
    shape = config(1, steps=3)
    backend = timed(OneStepOff().build(shape), shape)
    backend.run()
    assert backend.monitor.loop.ended == "steps"
    assert backend.monitor.loop.view.published == 3


def test_a_generator_far_ahead_ends_with_a_slow_trainer():
    # prime-rl#3050
    shape = config(1, steps=3)
    backend = timed(soft(shape, 2), shape, Durations(train_s=10.0))
    backend.run()
    assert backend.monitor.loop.ended == "steps"
    assert len(ages(backend)) == 3


@pytest.mark.parametrize(("last_batch", "steps"), [("drop", 7), ("train", 8)])
def test_epochs_go_on_and_the_last_batch_is_explicit(last_batch, steps):
    # NeMo-RL#2899: 10 prompts, batch 4: 6 steps need 2.4 epochs
    shape = config(4, steps=6, dataset_size=10, epochs=3)
    backend = timed(Sync().build(shape), shape)
    backend.run()
    assert backend.monitor.loop.ended == "steps"
    shape = config(4, steps=99, dataset_size=10, epochs=3, last_batch=last_batch)
    backend = timed(Sync().build(shape), shape)
    backend.run()
    assert (backend.monitor.loop.ended, len(trains(backend))) == ("data", steps)


def test_work_of_a_dead_replica_moves_and_no_replica_is_named():
    # NeMo-RL#3488, NeMo-RL#2368
    shape = config(2, steps=2)
    loop, answer = by_hand(soft(shape, 0), shape, replicas=2)
    assert len(started(answer)) == 2
    answer = loop.feed(events.ReplicaDown(1.0, 0, "died"))
    assert [(a.rollout, a.replica) for a in of(actions.Generate, answer)] == [(0, 1)]
    loop.feed(events.ReplicaDown(2.0, 1, "died"))
    assert "no replica is alive" in explain_stall(loop)


def test_a_straggler_is_either_waited_for_or_overtaken():
    # NeMo-RL#3238
    shape = config(4, steps=4)
    straggler = Durations(tokens=lambda prompt, member: 100 if prompt == 3 else 1)
    times = {}
    for name, policy in {"soft": soft(shape, 1), "wait": ArealStrict(1, 99).build(shape)}.items():
        backend = timed(policy, shape, straggler)
        backend.run()
        assert backend.ended
        times[name] = trains(backend)[-1][0]
    assert times["soft"] < 100 < times["wait"]


def test_credit_released_by_an_event_is_used_in_its_answer():
    # NeMo-RL#3410: check, then wait: there is nothing in between
    shape = config(1, steps=3)
    loop, _ = by_hand(soft(shape, 1, concurrency=1), shape)
    assert started(finish(loop, 0)) == [1]


def test_crashed_workers_are_started_again():
    # SkyRL#1173: 128 launched, 3 crash: the buffer must not stay at 125
    shape = config(128, steps=1, max_retries=1)
    crash = Durations(fails=lambda prompt, attempt: prompt in (3, 60, 127) and attempt == 0)
    backend = timed(soft(shape, 0), shape, crash)
    backend.run()
    assert backend.monitor.loop.ended == "steps"
    assert len(trained_prompts(backend)) == 128


def test_data_end_leaves_a_rest_that_is_reported():
    # tinker-cookbook#480: 10 prompts, batch 4: 2 steps, 2 leftovers
    shape = config(4, steps=99, dataset_size=10)
    backend = timed(soft(shape, 1), shape)
    backend.run()
    assert len(trains(backend)) == 2
    assert backend.monitor.loop.ledger.discarded == {"run_end": 2}


def test_requeue_into_a_full_buffer_does_not_lock():
    # tinker-cookbook#107
    shape = config(1, steps=8)
    promise = Guarantees(no_drops=False)
    buffering = Bounded(0, Straggler.REQUEUE)
    policy = soft(shape, admission=QueueRoom(2), buffering=buffering, guarantees=promise)
    backend = timed(policy, shape, Durations(tokens=lambda prompt, member: 1 + prompt % 3, train_s=2.0))
    backend.run()
    assert backend.monitor.loop.ended == "steps"


def test_a_group_for_the_next_step_does_not_block_the_present_one():
    # ROLL#253, ROLL commit daa7290f: alpha = 0
    shape = config(2, steps=4)
    backend = timed(Areal(0, 99).build(shape), shape, Durations(tokens=lambda prompt, member: 1 + prompt % 5))
    backend.run()
    assert backend.monitor.loop.ended == "steps"


def test_batch_that_replicas_do_not_divide():
    # verl#3895: 2 replicas, batch 3
    shape = config(3, steps=3)
    backend = timed(Sync().build(shape), shape, replicas=2)
    backend.run()
    assert backend.monitor.loop.ended == "steps"


def test_five_completions_in_one_tick():
    # slime#2238: bounded queue of 4
    shape = config(1, steps=9)
    loop, answer = by_hand(soft(shape, admission=QueueRoom(5)), shape)
    for rollout in started(answer):
        finish(loop, rollout, at=1.0)
    assert (len(loop.view.training), len(loop.view.ready), len(loop.view.running)) == (1, 4, 1)


@pytest.mark.parametrize("when", range(12))
def test_stop_ends_from_any_state(when):
    # AReaL#697, AReaL#684: stop in the middle of a load, a step, a publish; prime-rl#2841: abort while paused
    shape = config(2, steps=9, checkpoint_every_steps=1)
    durations = Durations(train_s=1.5, publish_s=0.4, load_s=0.7, phase_s=2.0)
    backend = timed(Areal(1, 4).build(shape), shape, durations, replicas=2)
    backend.start()
    backend.later(0.5 * when, backend.stop)
    backend.run()
    assert backend.ended
    assert backend.now < 0.5 * when + 5.0


def test_restart_at_every_load_fails_loudly_and_keeping_does_not():
    # miles#2589, miles#2296, miles#2372: rollout five steps long, a publish each step
    with pytest.raises(InvariantViolation, match="never trained") as failure:
        check_starvation(target_of(lambda shape: aborting(shape, InFlight.ABORT_RESTART)))
    assert failure.value.name == "progress"
    check_starvation(target_of(lambda shape: aborting(shape, InFlight.KEEP_RECOMPUTE)))


def test_slow_reward_does_not_close_the_round_late():
    # slime#2176: 32 of 64 accepted at t = 10, one judge takes 300 s
    shape = config(32, steps=1)
    loop, answer = by_hand(soft(shape, 1), shape)
    assert len(started(answer)) == 64
    finish(loop, 0, reward=None, at=10.0)
    answers = [finish(loop, rollout, at=10.0) for rollout in range(1, 33)]
    assert of(actions.Train, answers[-1])


def test_overlap_gains_at_most_the_shorter_part():
    # UniRL#94: generation 10, training 1: at most 11/10
    times = []
    for preset in (Sync(), OneStepOff()):
        shape = config(2, steps=20)
        backend = timed(preset.build(shape), shape, Durations(tokens=lambda prompt, member: 10))
        backend.run()
        times.append(backend.now)
    assert 1.0 < times[0] / times[1] <= 1.1


def test_last_version_is_published_out_of_turn():
    # prime-rl#2990: publish every second version, 3 steps
    shape = config(1, steps=3)
    backend = timed(soft(shape, 2, sync=EveryStep(InFlight.KEEP_STALE, every=2),
                         in_flight=frozenset({InFlight.KEEP_STALE})), shape)  # fmt: skip
    backend.run()
    assert backend.monitor.loop.view.published == 3
