"""No rollout's timeline violates causality, versions only rise, and an interruption costs what it says."""

from collections import defaultdict
from math import inf
from typing import Any

import pytest
from small_runs import Finished, HandMadeCost, exponential, lognormal, policy, simulate, small

from interfaces.actions import Discard, Generate, InFlight, LoadWeights, Publish, Train
from interfaces.events import (
    ReplicaDown,
    ReplicaUp,
    RewardReady,
    RolloutAborted,
    RolloutFinished,
    TrainingFinished,
    WeightsLoaded,
    WeightsPublished,
)
from interfaces.policies.admission import Concurrency, CountGate
from interfaces.policies.sync import EveryStep

COST = HandMadeCost(
    base=lambda n: 0.01 + 0.0001 * n, prefill_token_s=1e-5, train=lambda _: 0.7, publish=0.13,
    load=lambda _: 0.29,
)  # fmt: skip


def interrupting(action: InFlight, **sections: Any) -> Finished:
    resolved = small(
        **{
            "run": {"steps": 25},
            "cluster": {"rollout_gpus": 3},
            "workload": {
                "batch_size": 4, "group_size": 2, "response_tokens": lognormal(150.0, 0.9),
                "prompt_tokens": exponential(40.0),
            },
            **sections,
        }
    )  # fmt: skip
    return simulate(resolved, policy=policy(CountGate(6), Concurrency(12), in_flight=action), cost=COST)


KINDS = [
    InFlight.KEEP_RECOMPUTE, InFlight.KEEP_STALE, InFlight.DRAIN, InFlight.DEFER, InFlight.ABORT_RESUME,
    InFlight.ABORT_RESTART, InFlight.ABORT_DROP,
]  # fmt: skip


@pytest.mark.parametrize("action", KINDS)
def test_submitted_then_first_token_then_finished_then_rewarded_then_trained(action: InFlight) -> None:
    run = interrupting(
        action,
        reward={"latency_s": exponential(0.2), "workers": 4},
        faults={"replica": ({"replica": 1, "at_s": 4.0, "down_s": 3.0},)},
    )
    submitted: dict[int, float] = {}
    first_token: dict[int, float] = {}
    finished: dict[int, float] = {}
    rewarded: dict[int, float] = {}
    trained: set[int] = set()
    last = 0.0
    for event, answer in run.trace.fed_:
        assert event.at >= last
        last = event.at
        if type(event) is RolloutFinished:
            assert submitted[event.rollout] <= event.first_token_at <= event.at
            assert event.rollout not in finished, "finished twice"
            first_token[event.rollout] = event.first_token_at
            finished[event.rollout] = event.at
        elif type(event) is RewardReady:
            assert finished[event.rollout] <= event.at
            rewarded[event.rollout] = event.at
        for item in answer:
            if type(item) is Generate:
                submitted[item.rollout] = event.at
                assert item.rollout not in finished
            elif type(item) is Train:
                assert trained.isdisjoint(item.rollouts), "trained twice"
                trained.update(item.rollouts)
                assert all(rewarded[rollout] <= event.at for rollout in item.rollouts)
    assert len(trained) == 25 * 4 * 2


@pytest.mark.parametrize("action", KINDS)
def test_versions_are_consecutive_and_never_fall_back(action: InFlight) -> None:
    """loaded <= published <= completed; segments of a rollout and versions of a replica only rise."""
    run = interrupting(action)
    completed = published = 0
    replicas: defaultdict[int, int] = defaultdict(int)
    segments: defaultdict[int, list[int]] = defaultdict(list)
    for event, answer in run.trace.fed_:
        if type(event) is TrainingFinished:
            completed += 1
        elif type(event) is WeightsPublished:
            assert published < event.version <= completed
            published = event.version
        elif type(event) is WeightsLoaded:
            assert replicas[event.replica] < event.version <= published
            replicas[event.replica] = event.version
        elif type(event) in (RolloutFinished, RolloutAborted):
            mine = segments[event.rollout]  # type: ignore[union-attr]
            mine += [segment.version for segment in event.segments]  # type: ignore[union-attr]
            assert mine == sorted(mine)
            assert not mine or mine[-1] <= replicas[event.replica]  # type: ignore[union-attr]
        for item in answer:
            if type(item) is Train:
                assert item.version == completed == item.step
                assert all(max(segments[rollout]) <= item.version for rollout in item.rollouts)
            elif type(item) is Generate and not item.resume_tokens:
                segments[item.rollout] = []
            elif type(item) is Publish:
                assert item.version == completed
    assert completed == 25


@pytest.mark.parametrize(
    "action", [InFlight.DRAIN, InFlight.DEFER, InFlight.ABORT_RESTART, InFlight.ABORT_DROP]
)
def test_a_rollout_has_one_version_unless_it_may_be_resumed(action: InFlight) -> None:
    """verl#6882, slime#2092: partial rollouts off, and still several versions in one sample."""
    run = interrupting(action)
    assert all(len(event.segments) == 1 for event in run.trace.events(RolloutFinished))


def test_no_token_is_generated_while_weights_are_written() -> None:
    run = interrupting(InFlight.KEEP_RECOMPUTE)
    by_track: defaultdict[str, list[Any]] = defaultdict(list)
    for span in run.trace.spans:
        by_track[span.track].append(span)
    for track, spans in by_track.items():
        loads = [span for span in spans if span.kind == "load"]
        assert track == "trainer" or len(loads) >= 20
        for load in loads:
            assert all(
                s.end <= load.start + 1e-9 or s.start >= load.end - 1e-9 for s in spans if s is not load
            )


# ---- what becomes of a rollout in flight ------------------------------------------------------------------


def test_resumed_and_earlier_tokens_make_the_drawn_length() -> None:
    """verl#7207: a resumed generation got the full budget again and exceeded the limit."""
    run = interrupting(InFlight.ABORT_RESUME)
    draw = run.simulation.workload
    where: dict[int, Generate] = {}
    so_far: defaultdict[int, int] = defaultdict(int)
    resumed = 0
    for event, answer in run.trace.fed_:
        if type(event) in (RolloutFinished, RolloutAborted):
            so_far[event.rollout] += sum(s.tokens for s in event.segments)  # type: ignore[union-attr]
        if type(event) is RolloutFinished:
            action = where[event.rollout]
            assert so_far[event.rollout] == draw.group(action.prompt).response_tokens[action.member]
        for item in answer:
            if type(item) is Generate:
                assert item.resume_tokens == so_far[item.rollout]
                resumed += item.resume_tokens > 0
                where[item.rollout] = item
    assert resumed > 20


def test_restarting_loses_what_was_generated_and_keeps_the_length() -> None:
    run = interrupting(InFlight.ABORT_RESTART)
    lost = sum(s.tokens for e in run.trace.events(RolloutAborted) for s in e.segments)
    ended = {rollout for discard in run.trace.actions(Discard) for rollout in discard.rollouts}
    still_lost = sum(
        s.tokens for e in run.trace.events(RolloutAborted) if e.rollout in ended for s in e.segments
    )
    assert lost > still_lost
    assert lost - still_lost <= run.report["dropped_tokens"] <= lost
    assert all(item.resume_tokens == 0 for item in run.trace.actions(Generate))
    assert all(len(e.segments) == 1 for e in run.trace.events(RolloutFinished))


def test_dropping_discards_the_group() -> None:
    run = interrupting(InFlight.ABORT_DROP)
    assert run.report["discarded_groups"]["interrupted"] > 0
    assert run.report["steps"] == 25


def test_restarting_rollouts_longer_than_a_step_wastes_what_keeping_them_saves() -> None:
    """miles#2589: every publish aborts all work in flight."""
    resolved = small(run={"steps": 30}, workload={"batch_size": 4}, cost={"train_s": 1.0})

    def run(action: InFlight) -> Finished:
        return simulate(
            resolved,
            policy=policy(CountGate(inf), Concurrency(12), in_flight=action),
            lengths=lambda prompt, _: 500 if prompt % 3 == 0 else 40,
        )

    restarted, kept = run(InFlight.ABORT_RESTART).report, run(InFlight.KEEP_STALE).report
    assert restarted["dropped_tokens"] > 0.5 * restarted["trained_tokens"]
    assert kept["dropped_tokens"] == 0
    assert kept["sim_time_s"] < restarted["sim_time_s"]


def test_a_rolling_update_loads_on_few_replicas_at_once() -> None:
    resolved = small(
        run={"steps": 12},
        cluster={"rollout_gpus": 6},
        workload={"batch_size": 12, "response_tokens": exponential(100.0)},
    )
    for most in (1, 2, 6):
        sync = EveryStep(InFlight.KEEP_RECOMPUTE, max_loading=most)
        run = simulate(resolved, policy=policy(CountGate(4), Concurrency(24), sync=sync), cost=COST)
        loading: set[int] = set()
        peak = 0
        for event, answer in run.trace.fed_:
            if type(event) is WeightsLoaded:
                loading.discard(event.replica)
            loading |= {item.replica for item in answer if type(item) is LoadWeights}
            peak = max(peak, len(loading))
        assert peak == most
        assert run.report["steps"] == 12


def test_a_replica_that_died_serves_the_published_version_when_it_is_back() -> None:
    run = interrupting(
        InFlight.KEEP_RECOMPUTE, faults={"replica": ({"replica": 0, "at_s": 3.0, "down_s": 6.0},)}
    )
    (down,), (up,) = run.trace.events(ReplicaDown), run.trace.events(ReplicaUp)
    published = max(e.version for e in run.trace.events(WeightsPublished) if e.at <= up.at)
    assert (down.at, up.at, up.version) == (3.0, 9.0, published)
