"""Nothing is lost: tokens, replica-seconds and the timeline add up, whatever the policy."""

from collections import Counter, defaultdict
from math import inf
from typing import Any

import pytest
from small_runs import (
    AMPLE,
    Fifo,
    HandMadeCost,
    Trace,
    exponential,
    lognormal,
    policy,
    prepare,
    simulate,
    small,
)

from areal_sim.simulation import Simulation
from interfaces.actions import Discard, Generate, InFlight, Train
from interfaces.events import Event, RolloutAborted, RolloutFailed, RolloutFinished, TrainingFinished
from interfaces.loop import TrainingLoop
from interfaces.policies.admission import Concurrency, CountGate
from interfaces.policies.protocols import Policy
from interfaces.scenario import Resolved

COST = HandMadeCost(
    base=lambda n: 0.008 + 0.0001 * n, decode_per_context_token_s=2e-7, prefill_token_s=2e-5,
    train=lambda lengths: 0.4 + 2e-5 * float(lengths.sum()), publish=0.21, load=lambda n: 0.3 + 0.02 * n,
    switch=0.5,
)  # fmt: skip
GATE = CountGate(4), Concurrency(24)
NAMED: dict[str, dict[str, Any]] = {
    "sync": {"name": "sync"},
    "sync_colocated": {"name": "sync_colocated"},
    "one_step_off": {"name": "one_step_off"},
    "areal": {"name": "areal", "max_staleness": 4, "max_concurrent_groups": 12},
    "areal, not interruptible": {"name": "areal", "interruptible": False},
    "areal, filtered": {"name": "areal", "filter_zero_variance": True},
    "areal, no gate": {"name": "areal", "max_staleness": inf, "max_concurrent_groups": 16},
    "strict, drop": {"name": "areal_strict", "max_staleness": 1, "straggler": "drop"},
    "strict, requeue": {"name": "areal_strict", "max_staleness": 1, "straggler": "requeue"},
}
BUILT: dict[str, Policy] = {
    "keep stale": policy(*GATE, in_flight=InFlight.KEEP_STALE),
    "abort, resume": policy(*GATE, in_flight=InFlight.ABORT_RESUME),
    "abort, restart": policy(*GATE, in_flight=InFlight.ABORT_RESTART),
    "abort, drop": policy(*GATE, in_flight=InFlight.ABORT_DROP),
    "bounded buffer": policy(Concurrency(24), buffering=Fifo(max_ready=12)),
}
ALL = [*NAMED, *BUILT]


def scenario(name: str, **sections: dict[str, Any]) -> Resolved:
    return small(
        **{
            "run": {"steps": 12},
            "cluster": {"rollout_gpus": 3, "trainer_gpus": 3},
            "engine": {"max_num_seqs": 16},
            "workload": {
                "batch_size": 6, "group_size": 4, "response_tokens": lognormal(120.0, 0.8),
                "prompt_tokens": exponential(60.0),
            },
            "policy": NAMED.get(name, {"name": "areal"}),
            **sections,
        }
    )  # fmt: skip


def tokens(event: Any) -> int:
    return sum(segment.tokens for segment in event.segments)


def unreported(simulation: Simulation) -> int:
    """Tokens on replicas that no event has told of."""
    total = 0
    for replica in simulation.replicas:
        for sequence in (*replica.batch.running.values(), *replica.waiting, *replica.away.values()):
            total += sum(segment.tokens for segment in sequence.segments)
            if sequence.rollout in replica.batch.running:
                total += replica.batch.clock - sequence.start_clock
    return total


@pytest.mark.parametrize("kv", [AMPLE, 2600], ids=["ample KV", "preemption"])
@pytest.mark.parametrize("name", ALL)
def test_generated_tokens_are_trained_dropped_buffered_or_in_flight(name: str, kv: int) -> None:
    trace = Trace()
    seen = []

    def check(loop: TrainingLoop, event: Event) -> None:
        if type(event) is TrainingFinished:
            in_flight = unreported(simulation)
            reported = sum(tokens(e) for e, _ in trace.fed_ if type(e) in (RolloutFinished, RolloutAborted))
            waiting = sum(
                tokens(e) for e in simulation._queue if type(e) in (RolloutFinished, RolloutAborted)
            )
            assert (
                sum(replica.batch.generated_tokens for replica in simulation.replicas)
                == reported + waiting + in_flight
            )
            seen.append(loop.view.steps_finished)

    resolved = scenario(name)
    simulation = prepare(resolved, policy=BUILT.get(name), cost=COST, kv=kv, watch=check, trace=trace)
    report = simulation.run()
    assert len(seen) == 12

    # What was reported is trained, dropped, still buffered (discarded by the end of the run), or half done.
    per_rollout: Counter[int] = Counter()
    restarted = 0
    trained = dropped = ended = 0
    for event, answer in trace.fed_:
        if type(event) in (RolloutFinished, RolloutAborted):
            per_rollout[event.rollout] += tokens(event)  # type: ignore[union-attr]
        for action in answer:
            if type(action) is Train:
                trained += sum(per_rollout.pop(rollout) for rollout in action.rollouts)
            elif type(action).__name__ == "Generate" and not action.resume_tokens:
                restarted += per_rollout.pop(action.rollout, 0)
    gone = {
        rollout: action.reason
        for action in trace.actions(Discard) for rollout in action.rollouts
    }  # fmt: skip
    for rollout, count in per_rollout.items():
        if gone[rollout] == "run_end":
            ended += count
        else:
            dropped += count
    assert trained == round(report["mean_length"]["trained"] * report["trained_rollouts"])
    assert report["dropped_tokens"] == dropped + restarted
    generated = trace.usages[-1].generated_tokens
    assert generated == trained + dropped + restarted + ended + unreported(simulation)


@pytest.mark.parametrize("kv", [AMPLE, 2600], ids=["ample KV", "preemption"])
@pytest.mark.parametrize("name", ALL)
def test_replica_seconds_and_timeline_add_up(name: str, kv: int) -> None:
    run = simulate(scenario(name), policy=BUILT.get(name), cost=COST, kv=kv)
    last = run.trace.usages[-1]
    for usage in run.trace.usages:
        assert sum(usage.rollout_s.values()) == pytest.approx(3 * usage.at, rel=1e-9)
        assert sum(usage.trainer_s.values()) == pytest.approx(usage.at, rel=1e-9)
        assert min(usage.rollout_s.values()) >= 0.0
    on_tracks: defaultdict[str, float] = defaultdict(float)
    by_kind: dict[str, defaultdict[str, float]] = {
        "rollout": defaultdict(float),
        "trainer": defaultdict(float),
    }
    for span in run.trace.spans:
        kind = f"idle:{span.detail}" if span.kind == "idle" else span.kind
        on_tracks[span.track] += span.end - span.start
        by_kind["trainer" if span.track == "trainer" else "rollout"][kind] += span.end - span.start
    tracks = ("replica 0", "replica 1", "replica 2", "trainer")
    assert dict(on_tracks) == pytest.approx(dict.fromkeys(tracks, last.at), rel=1e-6)
    for pool, totals in (("rollout", last.rollout_s), ("trainer", last.trainer_s)):
        expected = {kind: seconds for kind, seconds in totals.items() if seconds > 1e-9}
        assert dict(by_kind[pool]) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_spans_of_a_track_do_not_overlap(name: str) -> None:
    run = simulate(scenario(name), policy=BUILT.get(name), cost=COST)
    ends: dict[str, float] = {}
    for span in run.trace.spans:
        assert span.start == pytest.approx(ends.get(span.track, 0.0), abs=1e-9), span
        assert span.end > span.start
        ends[span.track] = span.end


def test_the_report_counts_what_the_timeline_shows() -> None:
    run = simulate(scenario("areal"), cost=COST)
    usage = run.trace.usages[-1]
    shares = run.report["time_share"]["rollout"]
    assert sum(shares.values()) == pytest.approx(1.0, rel=1e-9)
    assert shares["load"] == pytest.approx(usage.rollout_s["load"] / (3 * usage.at), rel=1e-9)


@pytest.mark.parametrize("name", ["areal", "areal, not interruptible", "abort, resume", "sync_colocated"])
def test_they_add_up_when_replicas_stop_die_or_are_slow(name: str) -> None:
    run = simulate(
        scenario(
            name,
            run={
                "steps": 12, "evaluation_every_steps": 2, "evaluation_s": 1.3, "evaluation_on": "rollout",
                "checkpoint_every_steps": 3, "checkpoint_s": 0.4,
            },
            faults={
                "replica": (
                    {"replica": 0, "at_s": 3.0, "down_s": 2.0},
                    {"replica": 1, "at_s": 1.0, "slowdown": 2.0, "until_s": 9.0},
                )
            },
        ),
        policy=BUILT.get(name),
        cost=COST,
    )  # fmt: skip
    last = run.trace.usages[-1]
    assert last.rollout_s["down"] == pytest.approx(2.0)
    for usage in run.trace.usages:
        assert sum(usage.rollout_s.values()) == pytest.approx(3 * usage.at, rel=1e-9)
    on_tracks: defaultdict[str, float] = defaultdict(float)
    for span in run.trace.spans:
        on_tracks[span.track] += span.end - span.start
    assert max(on_tracks.values()) == pytest.approx(last.at, rel=0.01)
    assert min(on_tracks.values()) == pytest.approx(last.at, rel=0.01)


def test_failed_rollouts_lose_exactly_their_tokens() -> None:
    """Between generated and reported there is only what failed, and what still runs."""
    resolved = scenario("areal", faults={"rollout_failure_probability": 0.2})
    run = simulate(resolved, cost=COST)
    where = {action.rollout: action for action in run.trace.actions(Generate)}
    attempts: Counter[int] = Counter()
    failed = 0
    for event in run.trace.events(RolloutFailed):
        action = where[event.rollout]
        draw = run.simulation.workload.group(action.prompt, attempts[event.rollout])
        failed += draw.response_tokens[action.member]
        attempts[event.rollout] += 1
    reported = sum(tokens(e) for kind in (RolloutFinished, RolloutAborted) for e in run.trace.events(kind))
    assert failed > 0
    assert run.trace.usages[-1].generated_tokens == reported + failed


@pytest.mark.parametrize("name", ALL)
def test_a_death_loses_only_what_was_on_the_replica(name: str) -> None:
    lost: list[tuple[float, int]] = []
    trace = Trace()

    def check(loop: TrainingLoop, event: Event) -> None:
        if type(event) is TrainingFinished:
            reported = sum(tokens(e) for e, _ in trace.fed_ if type(e) in (RolloutFinished, RolloutAborted))
            reported += sum(
                tokens(e) for e in simulation._queue if type(e) in (RolloutFinished, RolloutAborted)
            )
            generated = sum(replica.batch.generated_tokens for replica in simulation.replicas)
            lost.append((loop.view.now, generated - reported - unreported(simulation)))

    resolved = scenario(name, faults={"replica": ({"replica": 1, "at_s": 6.0, "down_s": 5.0},)})
    simulation = prepare(resolved, policy=BUILT.get(name), cost=COST, watch=check, trace=trace)
    simulation.run()
    before = {count for at, count in lost if at < 6.0}
    after = {count for at, count in lost if at >= 6.0}
    assert before <= {0}
    assert len(after) == 1
    assert max(after) < 16 * 2000
