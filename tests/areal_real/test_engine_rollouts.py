"""Rollouts on a real engine: limits, ends, seeds, aborts, and moving to another replica."""

from itertools import pairwise

import pytest
from engine_kit import EOS, PROMPT_LIMIT, RESPONSE_LIMIT, Bench, difference, reference

from areal_real.engine.flight import seed_of
from areal_real.engine.replica import VllmReplica
from interfaces.actions import Generate
from interfaces.errors import ProtocolError
from interfaces.events import RolloutAborted, RolloutFailed, RolloutFinished

CLOSE = 1e-4


def test_the_budget_is_never_exceeded_and_the_limit_counts_all_dispatches(
    bench: Bench, replica: VllmReplica
) -> None:
    budget = 60

    async def run() -> int:
        rollout = bench.generate(replica, 2, budget=budget)
        for dispatch in range(1, 10):
            await bench.ended([rollout], times=dispatch)
            if isinstance(bench.ends(rollout)[-1], RolloutFinished):
                break
            bench.generate(replica, 2, rollout=rollout, budget=budget)
        return rollout

    rollout = bench.run(run())
    ends = bench.ends(rollout)
    assert [type(event) for event in ends] == [RolloutAborted, RolloutAborted, RolloutFinished]
    assert [sum(tokens for _, tokens in event.segments) for event in ends] == [60, 60, RESPONSE_LIMIT - 120]
    trajectory = bench.trajectory(rollout, 2)
    assert len(trajectory.response_ids) == RESPONSE_LIMIT
    assert difference(trajectory, reference(bench.models, trajectory)) < CLOSE
    assert bench.tokens.responses[rollout][3] == [False, False, False]


def test_a_new_dispatch_never_repeats_its_random_numbers(bench: Bench, replica: VllmReplica) -> None:
    whole = bench.generate(replica, 2)
    parts = bench.generate(replica, 2, budget=10)
    bench.run(bench.ended([whole, parts]))
    bench.generate(replica, 2, rollout=parts)
    bench.run(bench.ended([parts], times=2))
    one, two = bench.trajectory(whole, 2).response_ids, bench.trajectory(parts, 2).response_ids
    assert one[:10] == two[:10]  # the same rollout by its name: the same numbers
    assert one[10:] != two[10:]
    assert two[:30] != two[10:40]
    action = Generate(0, 5, 1, 0, 0, 0, None)
    seeds = {
        seed_of(run, changed, resume)
        for run in (0, 1)
        for changed in (
            action,
            action._replace(prompt=6),
            action._replace(member=2),
            action._replace(attempt=1),
        )
        for resume in (0, 1)
    }
    assert len(seeds) == 16
    assert seed_of(0, action, 0) == seed_of(0, action._replace(rollout=9, replica=3), 0)


def test_members_of_a_group_differ(bench: Bench, replica: VllmReplica) -> None:
    rollouts = [bench.generate(replica, 2, member=member) for member in range(3)]
    bench.run(bench.ended(rollouts))
    assert len({bench.trajectory(rollout, 2).response_ids for rollout in rollouts}) == 3


def test_aborts(bench: Bench, replica: VllmReplica) -> None:
    async def run() -> tuple[int, int, int]:
        at_once, running, finished = (bench.generate(replica, prompt) for prompt in range(3))
        bench.abort(replica, at_once)
        bench.abort(replica, 10**9)  # never heard of
        await bench.generated(replica, 30)
        bench.abort(replica, running)
        bench.abort(replica, running)
        await bench.ended([at_once, running, finished])
        bench.abort(replica, finished)
        return at_once, running, finished

    at_once, running, finished = bench.run(run())
    assert [type(event) for event in bench.ends(at_once)] == [RolloutAborted]
    assert [type(event) for event in bench.ends(running)] == [RolloutAborted]
    assert [type(event) for event in bench.ends(finished)] == [RolloutFinished]
    (event,) = bench.ends(running)
    trajectory = bench.trajectory(running, 1)
    assert 0 < len(trajectory.response_ids) < RESPONSE_LIMIT
    assert event.segments == trajectory.segments
    assert difference(trajectory, reference(bench.models, trajectory)) < CLOSE


def test_a_request_that_the_engine_refuses_fails_alone(
    bench: Bench, replica: VllmReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = bench.generate(replica, 0)
    monkeypatch.setattr(bench.tokens, "prompt_ids", lambda _: (3,) * (PROMPT_LIMIT + RESPONSE_LIMIT + 1))
    bad = bench.generate(replica, 0)
    bench.run(bench.ended([good, bad]))
    (event,) = bench.ends(bad)
    assert isinstance(event, RolloutFailed)
    assert "maximum" in event.reason
    assert isinstance(bench.ends(good)[0], RolloutFinished)


def test_tokens_that_the_core_does_not_know_of_are_an_error(replica: VllmReplica) -> None:
    with pytest.raises(ProtocolError, match="resumed after 7 tokens, 0 are stored"):
        replica.generate(Generate(10**6, 0, 0, 0, 0, 7, None))


def test_too_little_cache_costs_time_and_nothing_else(bench: Bench) -> None:
    """A cache of 2048 tokens for 16 rollouts that grow to 260: some are preempted and computed again."""
    replica = bench.replica(9, kv_cache_bytes=1 << 20, prefix_caching=False)
    prompts = range(1000, 1016)

    async def run() -> list[int]:
        await replica.start(0)
        rollouts = [bench.generate(replica, prompt) for prompt in prompts]
        await bench.ended(rollouts)
        await replica.stop()
        return rollouts

    for rollout, prompt in zip(bench.run(run()), prompts, strict=True):
        trajectory = bench.trajectory(rollout, prompt)
        assert trajectory.segments == ((0, RESPONSE_LIMIT),)
        assert difference(trajectory, reference(bench.models, trajectory)) < CLOSE
    usage = replica.usage()
    assert usage.preemptions > 0
    assert usage.recomputed_tokens > 0
    assert usage.kv_blocked_s > 0
    assert usage.generated_tokens == 16 * RESPONSE_LIMIT


def test_usage_adds_up(bench: Bench, replica: VllmReplica) -> None:
    replica.blame("staleness")
    before, began = replica.usage(), bench.clock.now()
    prompts, many = range(4), 20
    rollouts = [bench.generate(replica, prompt % 4, member=prompt) for prompt in range(many)]
    bench.run(bench.ended(rollouts))
    after, ended = replica.usage(), bench.clock.now()
    assert after.generated_tokens - before.generated_tokens == many * RESPONSE_LIMIT
    assert 2 * RESPONSE_LIMIT - 2 <= after.decode_steps - before.decode_steps <= 2 * RESPONSE_LIMIT + 2
    lengths = [len(bench.tokens.prompt_ids(prompt)) for prompt in prompts]
    prefilled = after.prefilled_tokens - before.prefilled_tokens
    assert 0 < prefilled <= many // 4 * sum(lengths)
    steps = sum(
        length + token for length in lengths for token in range(RESPONSE_LIMIT) for _ in range(many // 4)
    )
    assert after.context_token_steps - before.context_token_steps == pytest.approx(steps, rel=0.15)
    assert after.recomputed_tokens == before.recomputed_tokens
    seconds = {kind: value - before.seconds.get(kind, 0.0) for kind, value in after.seconds.items()}
    assert sum(seconds.values()) == pytest.approx(ended - began, abs=0.05)
    assert seconds["decode"] > 0.0
    kinds = {kind for kind, value in seconds.items() if value}
    assert kinds <= {"decode", "prefill", "idle:staleness", "load"}  # the load before may still be ending


def test_spans_follow_one_another(bench: Bench, replica: VllmReplica) -> None:
    rollout = bench.generate(replica, 0)
    bench.run(bench.ended([rollout]))
    bench.run(bench.load(replica, bench.next_version(), None))
    spans = [span for span in bench.spans if span.track == "replica 0"]
    assert all(one.end == two.start for one, two in pairwise(spans))
    assert {"idle", "prefill", "decode", "load"} <= {span.kind for span in spans}


def test_a_rollout_moves_to_a_replica_with_another_end_and_version(
    bench: Bench, replica: VllmReplica
) -> None:
    """Two replicas at different versions; the second one lets the model stop."""
    old = replica.version
    second = bench.replica(1, eos_id=EOS)
    new = bench.next_version()

    async def run() -> list[int]:
        await second.start(new, bench.directory / "weights" / f"v{new}.safetensors")
        rollouts = [bench.generate(replica, prompt) for prompt in range(6)]
        await bench.generated(replica, 90)
        for rollout in rollouts:
            bench.abort(replica, rollout)
        await bench.ended(rollouts)
        for prompt, rollout in enumerate(rollouts):
            bench.generate(second, prompt, rollout=rollout)
        await bench.ended(rollouts, times=2)
        await second.stop()
        return rollouts

    ended = []
    for prompt, rollout in enumerate(bench.run(run())):
        trajectory = bench.trajectory(rollout, prompt)
        assert [segment.version for segment in trajectory.segments] == [old, new]
        assert difference(trajectory, reference(bench.models, trajectory)) < CLOSE
        last = bench.ends(rollout)[-1]
        assert isinstance(last, RolloutFinished)
        assert last.replica == 1
        stopped = bench.tokens.responses[rollout][3][-1]
        tail = trajectory.response_ids[-last.segments[0].tokens :]
        assert tail.count(EOS) == (1 if stopped else 0)
        assert stopped == (trajectory.response_ids[-1] == EOS)
        ended.append(stopped)
    assert any(ended)
    assert second.checksums == {new: bench.checksum(new)}
