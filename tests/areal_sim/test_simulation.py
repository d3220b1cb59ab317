"""Whole runs: faults, rewards, colocated roles, evaluation, tools, ends and stalls."""

import gc
from heapq import heapify, heapreplace
from math import inf
from typing import Any

import pytest
from small_runs import Fifo, Finished, HandMadeCost, exponential, lognormal, policy, prepare, simulate, small

from interfaces.actions import Discard, Evaluate, Generate, InFlight, Train
from interfaces.errors import StallError
from interfaces.events import (
    CheckpointFinished,
    EvaluationFinished,
    RewardReady,
    RolloutFailed,
    RolloutFinished,
    TrainingFinished,
    WeightsLoaded,
)
from interfaces.policies.admission import Concurrency, CountGate, QueueRoom

AREAL = {"name": "areal", "max_staleness": 4, "max_concurrent_groups": 16}


def finished_once(run: Finished) -> list[int]:
    rollouts = [event.rollout for event in run.trace.events(RolloutFinished)]
    assert len(set(rollouts)) == len(rollouts)
    return rollouts


# ---- faults -----------------------------------------------------------------------------------------------


def test_every_rollout_finishes_once_when_replicas_die_and_return() -> None:
    faults = tuple(
        {"replica": number % 3, "at_s": 0.7 + 1.3 * number, "down_s": 1.1 + number % 2} for number in range(8)
    )
    resolved = small(
        run={"steps": 20, "last_batch": "train"},
        cluster={"rollout_gpus": 3},
        workload={
            "batch_size": 8, "group_size": 2, "response_tokens": lognormal(90.0, 0.8), "dataset_size": 90,
        },
        policy=AREAL,
        faults={"replica": faults},
    )  # fmt: skip
    run = simulate(resolved)
    assert run.report["ended"] == "data"
    assert sorted(finished_once(run)) == list(range(180))
    trained = [rollout for train in run.trace.actions(Train) for rollout in train.rollouts]
    assert sorted(trained) == list(range(180))


def test_a_dead_replica_slows_the_run_and_the_last_one_ends_nothing() -> None:
    """With all replicas down the run waits for the first to return."""
    resolved = small(
        run={"steps": 6},
        policy=AREAL,
        faults={"replica": ({"replica": 0, "at_s": 2.0, "down_s": 50.0},)},
    )
    healthy = simulate(small(run={"steps": 6}, policy=AREAL)).report
    run = simulate(resolved)
    assert run.report["steps"] == 6
    assert healthy["sim_time_s"] + 45 < run.report["sim_time_s"] < healthy["sim_time_s"] + 55
    assert run.report["time_share"]["rollout"]["down"] == pytest.approx(50 / run.report["sim_time_s"])


def test_a_slow_replica_gets_less_work_and_costs_time() -> None:
    def run(*faults: dict[str, Any]) -> Finished:
        return simulate(
            small(
                run={"steps": 10},
                cluster={"rollout_gpus": 2},
                workload={"batch_size": 16},
                policy={"name": "areal", "max_staleness": inf, "max_concurrent_groups": 64},
                cost={"train_s": 0.05},
                faults={"replica": faults},
            )
        )

    normal, slow = run(), run({"replica": 1, "at_s": 0.0, "slowdown": 4.0})
    finished = slow.trace.events(RolloutFinished)
    share = sum(event.replica == 1 for event in finished) / len(finished)
    assert 0.1 < share < 0.4
    assert slow.report["sim_time_s"] > normal.report["sim_time_s"]


def test_failed_rollouts_are_retried_and_then_given_up() -> None:
    """prime-rl#2581: with p = 0.3 and groups of 4, no retries give up 1 - 0.7^4 = 76 % of the groups."""
    shares = {}
    for retries in (0, 8):
        run = simulate(
            small(
                run={"steps": 40},
                workload={"batch_size": 8, "group_size": 4},
                policy=AREAL,
                faults={"rollout_failure_probability": 0.3, "max_retries": retries},
            )
        )
        assert run.report["steps"] == 40
        finished_once(run)
        failed = run.report["discarded_groups"].get("failed", 0)
        shares[retries] = failed / (failed + 40 * 8)
    assert shares[0] == pytest.approx(1 - 0.7**4, abs=0.03)
    assert shares[8] < 0.002


def test_only_so_many_attempts() -> None:
    run = simulate(
        small(
            run={"steps": 10},
            policy=AREAL,
            faults={"rollout_failure_probability": 0.5, "max_retries": 2},
        )
    )
    failures: dict[int, int] = {}
    for event in run.trace.events(RolloutFailed):
        failures[event.rollout] = failures.get(event.rollout, 0) + 1
    assert max(failures.values()) == 3


# ---- rewards ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "jobs"), [(1, 7), (3, 10), (4, 8), (16, 10)])
def test_simultaneous_rewards_queue_for_workers(workers: int, jobs: int) -> None:
    """k jobs of D seconds at once on w workers: the i-th is ready ceil(i / w) D later."""
    resolved = small(
        run={"steps": 1},
        workload={"batch_size": jobs},
        reward={"latency_s": {"type": "constant", "value": 2.0}, "workers": workers},
        policy={"name": "sync"},
    )
    ready = [event.at for event in simulate(resolved).trace.events(RewardReady)]
    assert ready == pytest.approx([1.0 + 2.0 * (1 + i // workers) for i in range(jobs)])


def test_rewards_agree_with_a_queue_of_several_servers() -> None:
    """First come first served, exponential service, against the textbook recursion over free servers."""
    resolved = small(
        run={"steps": 20},
        workload={"batch_size": 16, "response_tokens": exponential(120.0)},
        reward={"latency_s": exponential(0.3), "workers": 3},
        policy={"name": "areal", "max_staleness": inf, "max_concurrent_groups": 16},
    )
    run = simulate(resolved)
    free = [0.0] * 3
    heapify(free)
    expected = {}
    action_of = {action.rollout: action for action in run.trace.actions(Generate)}
    for event in run.trace.events(RolloutFinished):
        action = action_of[event.rollout]
        latency = run.simulation.workload.group(action.prompt).reward_latency_s
        assert latency is not None
        done = max(event.at, free[0]) + latency[action.member]
        heapreplace(free, done)
        expected[event.rollout] = done
    found = {event.rollout: event.at for event in run.trace.events(RewardReady)}
    assert len(found) > 300
    assert found == pytest.approx({rollout: expected[rollout] for rollout in found})


def test_a_slow_judge_delays_its_group_only() -> None:
    """slime#2176: training starts with the groups that are scored."""
    resolved = small(
        run={"steps": 3},
        workload={"batch_size": 4},
        reward={"latency_s": {"type": "lognormal", "median": 0.01, "sigma": 5.0}},
        policy={"name": "areal", "max_staleness": inf, "max_concurrent_groups": 64},
    )
    run = simulate(resolved)
    first = run.trace.events(TrainingFinished)[0].at
    latencies = [run.simulation.workload.group(prompt).reward_latency_s or [0.0] for prompt in range(64)]
    assert max(latency[0] for latency in latencies) > 20
    assert first < 5


# ---- colocated, evaluation, checkpoint -------------------------------------------------------------------


def test_a_colocated_step_takes_generation_switch_training_publish_load_and_switch() -> None:
    cost = HandMadeCost(base=lambda _: 0.01, train=lambda _: 7.0, publish=0.3, load=lambda _: 0.2, switch=1.5)
    resolved = small(run={"steps": 5}, policy={"name": "sync_colocated"})
    run = simulate(resolved, cost=cost)
    ends = [event.at for event in run.trace.events(TrainingFinished)]
    generation = 1.0
    step = generation + 1.5 + 7.0 + 0.3 + 1.5 + 0.2
    assert ends == pytest.approx([generation + 1.5 + 7.0 + step * i for i in range(5)])
    usage = run.trace.usages[-1].trainer_s
    assert usage["train"] == pytest.approx(35.0)
    assert usage["switch"] == pytest.approx(1.5 * 9)


def test_evaluation_on_the_trainer_does_not_delay_generation() -> None:
    """AReaL at 4aef98d resumed generation last: 30 s of evaluation each step idled the servers for 30 s."""

    def idle_s(policy: dict[str, Any], **run: Any) -> float:
        resolved = small(
            run={"steps": 10, **run},
            workload={"batch_size": 8, "response_tokens": exponential(6000.0)},
            policy=policy,
            cost={"train_s": 5.0, "publish_s": 0.5, "load_s": 0.5},
        )
        usage = simulate(resolved).trace.usages
        return sum(seconds for kind, seconds in usage[-1].rollout_s.items() if kind.startswith("idle"))

    evaluation = {"evaluation_every_steps": 1, "evaluation_s": 30.0}
    checkpoint = {"checkpoint_every_steps": 1, "checkpoint_s": 30.0}
    for extra in (evaluation, checkpoint):
        assert idle_s(AREAL, **extra) - idle_s(AREAL) < 0.05 * 30.0 * 10


def test_weights_are_loaded_before_an_evaluation_ends() -> None:
    resolved = small(
        run={"steps": 4, "evaluation_every_steps": 1, "evaluation_s": 30.0},
        policy={"name": "sync"},
        cost={"publish_s": 0.5, "load_s": 0.5},
    )
    run = simulate(resolved)
    trained = [event.at for event in run.trace.events(TrainingFinished)]
    loaded = [event.at for event in run.trace.events(WeightsLoaded)]
    evaluated = [event.at for event in run.trace.events(EvaluationFinished)]
    assert loaded[:3] == pytest.approx([at + 1.0 for at in trained[:3]])
    assert evaluated == pytest.approx(
        [trained[0] + 0.5 + 30.0 + i * (evaluated[1] - evaluated[0]) for i in range(4)]
    )


def test_evaluation_on_the_rollout_pool_stops_it() -> None:
    """Every replica stands still for 30 s a step: a generation-bound run takes 30 s a step longer."""
    stop = {"evaluation_every_steps": 1, "evaluation_s": 30.0, "evaluation_on": "rollout"}

    def seconds(**run: Any) -> Finished:
        return simulate(small(run={"steps": 6, **run}, policy={"name": "sync"}))

    normal, stopped = seconds(), seconds(**stop)
    assert stopped.report["sim_time_s"] - normal.report["sim_time_s"] == pytest.approx(30 * 6, rel=0.01)
    assert len(stopped.trace.actions(Evaluate)) == 6
    assert stopped.trace.usages[-1].rollout_s["evaluation"] == pytest.approx(30 * 6, rel=0.2)


def test_the_run_ends_only_when_the_last_checkpoint_is_whole() -> None:
    resolved = small(
        run={"steps": 4, "checkpoint_every_steps": 2, "checkpoint_s": 20.0}, policy={"name": "sync"}
    )
    run = simulate(resolved)
    assert [event.step for event in run.trace.events(CheckpointFinished)] == [1, 3]
    assert run.trace.fed_[-1][0] == run.trace.events(CheckpointFinished)[-1]


# ---- turns ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["areal", "one_step_off", "sync_colocated"])
def test_evaluation_on_the_rollout_pool_is_booked_in_full(name: str) -> None:
    """Also when it meets a load, or replicas that are empty."""
    resolved = small(
        run={"steps": 8, "evaluation_every_steps": 1, "evaluation_s": 3.0, "evaluation_on": "rollout"},
        cluster={"rollout_gpus": 2, "trainer_gpus": 2},
        workload={"batch_size": 8, "response_tokens": exponential(150.0)},
        policy={"name": name},
        cost={"publish_s": 0.1, "load_s": 1.5, "train_s": 0.3},
    )
    usage = simulate(resolved).trace.usages[-1]
    assert usage.rollout_s["evaluation"] == pytest.approx(2 * 8 * 3.0)
    assert sum(usage.rollout_s.values()) == pytest.approx(2 * usage.at)


@pytest.mark.parametrize("turns", [1, 2, 5])
def test_a_turn_takes_its_tool_time(turns: int) -> None:
    """100 tokens in n turns with 3 s of tool time after each but the last; tool tokens are read again."""
    law: dict[str, Any] = {
        "number": {"type": "constant", "value": float(turns)},
        "tool_time_s": {"type": "constant", "value": 3.0},
        "tool_tokens": {"type": "constant", "value": 50.0},
    }
    resolved = small(run={"steps": 1}, workload={"batch_size": 4, "turns": law}, policy={"name": "sync"})
    run = simulate(resolved, cost=HandMadeCost(base=lambda _: 0.01))
    finished = run.trace.events(RolloutFinished)
    assert [event.at for event in finished] == pytest.approx([1.0 + 3.0 * (turns - 1)] * 4)
    assert all(sum(s.tokens for s in event.segments) == 100 for event in finished)
    assert all(event.prompt_tokens == 50 * (turns - 1) for event in finished)


@pytest.mark.parametrize("action", list(InFlight))
def test_turns_survive_every_kind_of_interruption(action: InFlight) -> None:
    law: dict[str, Any] = {
        "number": {"type": "constant", "value": 3.0},
        "tool_time_s": exponential(0.8),
        "tool_tokens": {"type": "constant", "value": 20.0},
    }
    resolved = small(
        run={"steps": 15},
        cluster={"rollout_gpus": 2},
        workload={"batch_size": 4, "response_tokens": lognormal(150.0, 0.6), "turns": law},
    )
    run = simulate(resolved, policy=policy(CountGate(4), Concurrency(12), in_flight=action))
    assert run.report["steps"] == 15
    finished_once(run)


# ---- the end ----------------------------------------------------------------------------------------------


def test_a_full_buffer_never_stalls() -> None:
    run = simulate(small(run={"steps": 20}), policy=policy(Concurrency(24), QueueRoom(24), buffering=Fifo()))
    assert run.report["steps"] == 20


def test_a_stall_names_the_missing_credit() -> None:
    """A queue with less room than a batch can never fill one."""
    with pytest.raises(StallError, match=r"no credit left of 'buffer_full'.*") as stall:
        simulate(small(), policy=policy(QueueRoom(5)))
    assert "waits for 8 groups, 5 are ready" in str(stall.value)


def test_a_concurrency_of_none_is_named_too() -> None:
    with pytest.raises(StallError, match="'concurrency'"):
        simulate(small(), policy=policy(Concurrency(0)))


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_a_run_whose_groups_are_all_filtered_ends_with_an_error(rate: float) -> None:
    """ASearcher#21, SkyRL: everything filtered, and the run went on for ever."""
    resolved = small(
        workload={"batch_size": 4, "group_size": 4},
        reward={"success_rate": rate},
        policy={"name": "areal", "filter_zero_variance": True},
    )
    with pytest.raises(StallError, match=r"discarded .* and none could train.*filtered"):
        simulate(resolved)


def test_a_filtered_data_set_ends_with_the_data() -> None:
    resolved = small(
        workload={"batch_size": 4, "group_size": 4, "dataset_size": 40},
        reward={"success_rate": 1.0},
        policy={"name": "areal", "filter_zero_variance": True},
    )
    report = simulate(resolved).report
    assert report["ended"] == "data"
    assert (report["steps"], report["trained_tokens"]) == (0, 0)
    assert report["discarded_groups"]["filtered"] == 40


def test_half_filtered_keeps_its_capacity() -> None:
    """SkyRL: filtered groups never gave their credit back; throughput decayed, then a deadlock."""
    resolved = small(
        run={"steps": 60},
        workload={"batch_size": 4, "group_size": 2},
        policy={"name": "areal", "filter_zero_variance": True, "max_staleness": 0},
    )
    run = simulate(resolved)
    ends = [event.at for event in run.trace.events(TrainingFinished)]
    assert ends[59] - ends[30] == pytest.approx(ends[29] - ends[0], rel=0.3)
    assert run.report["discarded_groups"]["filtered"] == pytest.approx(240, rel=0.3)


@pytest.mark.parametrize(("last_batch", "steps", "trained"), [("drop", 2, 8), ("train", 3, 10)])
def test_the_end_of_the_data(last_batch: str, steps: int, trained: int) -> None:
    """NeMo-RL#2899, tinker-cookbook#480: 10 prompts, batches of 4."""
    resolved = small(
        run={"steps": 9, "last_batch": last_batch},
        workload={"batch_size": 4, "dataset_size": 10},
        policy=AREAL,
    )
    report = simulate(resolved).report
    assert (report["ended"], report["steps"], report["trained_rollouts"]) == ("data", steps, trained)


def test_epochs_wrap_around() -> None:
    """NeMo-RL#2899: 10 prompts, batches of 4, 6 steps need 2.4 epochs."""
    resolved = small(
        run={"steps": 6}, workload={"batch_size": 4, "dataset_size": 10, "epochs": 3}, policy=AREAL
    )
    assert simulate(resolved).report["steps"] == 6


@pytest.mark.parametrize("name", ["sync", "sync_colocated", "one_step_off", "areal", "areal_strict"])
def test_the_end_leaves_nothing_behind(name: str) -> None:
    """No rollout on a replica, nothing queued or buffered, no credit out; and no later callback acts."""
    resolved = small(
        run={"steps": 5},
        workload={"batch_size": 4, "group_size": 2, "response_tokens": lognormal(100.0, 1.0)},
        reward={"latency_s": exponential(0.5)},
        policy={"name": name},
        cost={"publish_s": 0.2, "load_s": 0.3},
    )
    simulation = prepare(resolved)
    report = simulation.run()
    view, ledger = simulation.loop.view, simulation.loop.ledger
    assert report["ended"] == "steps"
    for replica in simulation.replicas:
        assert not any((replica.batch.running, replica.waiting, replica.away))
    assert not any((view.running, view.ready, view.training, view.running_rollouts))
    assert not ledger.groups
    assert len(simulation.buffer) == 0
    fed = view.now
    simulation.env.run()
    assert simulation.loop.view.now == fed


def test_run_leaves_the_garbage_collector_as_it_was() -> None:
    assert gc.isenabled()
    with pytest.raises(StallError):
        simulate(small(), policy=policy(QueueRoom(1)))
    assert gc.isenabled()


def test_an_interrupted_run_still_has_a_report() -> None:
    simulation = prepare(small(run={"steps": 1000}))
    simulation._on_step = lambda step, _: setattr(simulation, "interrupted", step >= 7)
    report = simulation.run()
    assert report["partial"]
    assert report["steps"] == 7


def test_discards_name_what_runs() -> None:
    """What is named `running` is reported later; the rest is not on a replica."""
    resolved = small(
        run={"steps": 10},
        workload={"batch_size": 2, "group_size": 3, "response_tokens": lognormal(100.0, 1.3)},
    )
    limits = CountGate(6), Concurrency(12)
    run = simulate(resolved, policy=policy(*limits, in_flight=InFlight.ABORT_DROP))
    assert all(set(d.running) <= set(d.rollouts) for d in run.trace.actions(Discard))
