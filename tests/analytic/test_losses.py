"""What is generated and never trained is counted, with its cause; admitted is not the same as finished."""

from collections import Counter
from math import inf

import pytest
from small_runs import Finished, exponential, policy, simulate, small

from interfaces.actions import Discard, Generate, InFlight, Train
from interfaces.events import ReplicaDown, RolloutAborted, RolloutFailed, RolloutFinished
from interfaces.policies.admission import Concurrency, CountGate


def faulty(**sections: object) -> Finished:
    resolved = small(
        **{
            "run": {"steps": 15},
            "cluster": {"rollout_gpus": 3, "trainer_gpus": 3},
            "engine": {"max_num_seqs": 16},
            "workload": {"batch_size": 6, "group_size": 2, "response_tokens": exponential(120.0)},
            "faults": {
                "rollout_failure_probability": 0.1, "max_retries": 1,
                "replica": (
                    {"replica": 1, "at_s": 4.5, "down_s": 3.0}, {"replica": 2, "at_s": 9.3, "down_s": 1.0},
                ),
            },
            **sections,
        }
    )  # fmt: skip
    return simulate(resolved)


def left_at_the_end(finished: Finished) -> int:
    """Response tokens that the end of the run cut off: on replicas, half done, or in the buffer."""
    held: Counter[int] = Counter()
    over: set[int] = set()
    for event, answer in finished.trace.fed_:
        if isinstance(event, RolloutFinished | RolloutAborted):
            held[event.rollout] += sum(tokens for _, tokens in event.segments)
        for action in answer:
            if isinstance(action, Generate) and not action.resume_tokens:
                del held[action.rollout]
            elif isinstance(action, Train) or (isinstance(action, Discard) and action.reason != "run_end"):
                over.update(action.rollouts)
    on_replicas = 0
    for replica in finished.simulation.replicas:
        on_replicas += sum(s.lost_tokens for s in (*replica.batch.running.values(), *replica.waiting))
        on_replicas += sum(replica.batch.clock - s.start_clock for s in replica.batch.running.values())
    return on_replicas + sum(tokens for rollout, tokens in held.items() if rollout not in over)


def test_every_token_is_trained_dropped_with_a_cause_or_cut_off_by_the_end() -> None:
    finished = faulty()
    report = finished.report
    trained = round(report["mean_length"]["trained"] * report["trained_rollouts"])
    assert report["dropped_by_cause"].keys() == {"failed", "replica_down"}
    assert sum(report["dropped_by_cause"].values()) == report["dropped_tokens"]
    assert report["generated_tokens"] == trained + report["dropped_tokens"] + left_at_the_end(finished)


def test_a_dead_replica_tells_what_it_lost_and_so_does_a_failed_rollout() -> None:
    finished = faulty()
    dead = sum(event.lost_tokens for event in finished.trace.events(ReplicaDown))
    failed = sum(event.lost_tokens for event in finished.trace.events(RolloutFailed))
    assert finished.report["dropped_by_cause"]["replica_down"] == dead > 0
    assert finished.report["dropped_by_cause"]["failed"] >= failed > 0


def test_a_restart_is_a_cause_of_its_own() -> None:
    restarting = policy(CountGate(inf), Concurrency(8), in_flight=InFlight.ABORT_RESTART)
    resolved = small(workload={"batch_size": 4, "response_tokens": exponential(150.0)}, cost={"train_s": 1.0})
    report = simulate(resolved, policy=restarting).report
    assert report["dropped_by_cause"] == {"restarted": report["dropped_tokens"]}
    assert report["dropped_tokens"] > 0


def test_the_mean_length_admitted_counts_what_was_cut_short_at_its_full_length() -> None:
    """Half of the rollouts are aborted at the median: how long they would have become is part of the mean."""
    resolved = small(
        run={"steps": 30},
        workload={"batch_size": 64, "response_tokens": exponential(1000.0)},
        policy={"name": "slime_partial", "over_sampling_batch_size": 128, "partial_rollout": False},
    )
    lengths = simulate(resolved, traced=False).report["mean_length"]
    assert lengths["admitted"] == pytest.approx(1000.0, rel=0.05)
    assert lengths["trained"] == pytest.approx(307.0, rel=0.08)
    assert lengths["lower_bound"] is False


def test_the_largest_buffer_is_what_the_trainer_found_waiting() -> None:
    """Generation is ten times as fast as training, three batches may wait: 3 x 8 rollouts of 100 tokens."""
    resolved = small(
        workload={"batch_size": 8}, cost={"train_s": 10.0}, policy={"name": "areal", "max_staleness": 3}
    )
    assert simulate(resolved, traced=False).report["buffer"] == {"max_rollouts": 24, "max_tokens": 2400}
