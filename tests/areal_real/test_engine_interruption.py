"""New weights in the middle of generation: exact to the token, for every in-flight action."""

import asyncio
from typing import Any

import pytest
import torch
from engine_kit import RESPONSE_LIMIT, Bench, difference, mixed_reference, reference
from safetensors.torch import load_file

from areal_real.engine.live import LiveEngine
from areal_real.engine.replica import VllmReplica
from areal_real.engine.shelf import Shelf
from areal_real.weight_file import checksum_of, weights_path
from interfaces.actions import InFlight
from interfaces.events import RolloutAborted, RolloutFinished, WeightsLoaded
from interfaces.rollout import Trajectory

CLOSE = 1e-4
"""Between the log-probs of the engine and those of the reference, both float32 (1e-6 is typical)."""
PROMPTS = range(6)


def old_and_new(trajectory: Trajectory, version: int) -> None:
    """Some tokens of the version before, then all others of this one."""
    before, after = trajectory.segments
    assert (before.version, after.version) == (version - 1, version)
    assert before.tokens + after.tokens == RESPONSE_LIMIT


def interrupted(bench: Bench, replica: VllmReplica, intent: InFlight) -> tuple[list[int], int]:
    """Rollouts on all prompts, with new weights after some tokens."""

    async def run() -> tuple[list[int], int]:
        rollouts = [bench.generate(replica, prompt) for prompt in PROMPTS]
        version = bench.next_version()
        await bench.generated(replica, 150)
        await bench.load(replica, version, intent)
        return rollouts, version

    return bench.run(run())


def test_a_load_is_told_before_anything_that_the_new_weights_made(
    bench: Bench, replica: VllmReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the call that lets generation go on takes to return; the next load waits for it."""
    resume = LiveEngine.resume

    async def slow_resume(engine: LiveEngine) -> None:
        await resume(engine)
        await asyncio.sleep(1.0)

    monkeypatch.setattr(LiveEngine, "resume", slow_resume)
    seen = len(bench.events)
    rollouts, version = interrupted(bench, replica, InFlight.KEEP_RECOMPUTE)
    second = bench.next_version()
    bench.run(bench.load(replica, second, None))
    bench.run(bench.ended(rollouts))
    events = bench.events[seen:]
    loads = {e.version: index for index, e in enumerate(events) if isinstance(e, WeightsLoaded)}
    for index, event in enumerate(events):
        if isinstance(event, RolloutFinished):
            assert all(loads.get(segment.version, -1) < index for segment in event.segments)
    assert list(loads) == [version, second]


def test_keep_recompute_is_exact(bench: Bench, replica: VllmReplica) -> None:
    before = replica.usage()
    rollouts, version = interrupted(bench, replica, InFlight.KEEP_RECOMPUTE)
    bench.run(bench.ended(rollouts))
    for rollout, prompt in zip(rollouts, PROMPTS, strict=True):
        trajectory = bench.trajectory(rollout, prompt)
        old_and_new(trajectory, version)
        assert difference(trajectory, reference(bench.models, trajectory)) < CLOSE
        assert difference(trajectory, mixed_reference(bench.models, trajectory)) > 0.1
        (event,) = bench.ends(rollout)
        assert isinstance(event, RolloutFinished)
        assert event.segments == trajectory.segments
    after = replica.usage()
    assert after.generated_tokens - before.generated_tokens == RESPONSE_LIMIT * len(PROMPTS)
    assert after.recomputed_tokens - before.recomputed_tokens >= 150
    assert after.preemptions == before.preemptions


def test_keep_stale_is_exact(bench: Bench, replica: VllmReplica) -> None:
    before = replica.usage()
    rollouts, version = interrupted(bench, replica, InFlight.KEEP_STALE)
    bench.run(bench.ended(rollouts))
    for rollout, prompt in zip(rollouts, PROMPTS, strict=True):
        trajectory = bench.trajectory(rollout, prompt)
        old_and_new(trajectory, version)
        assert difference(trajectory, mixed_reference(bench.models, trajectory)) < CLOSE
        assert difference(trajectory, reference(bench.models, trajectory)) > 0.1
    assert replica.usage().recomputed_tokens == before.recomputed_tokens


@pytest.mark.parametrize("intent", [InFlight.ABORT_RESUME, InFlight.ABORT_RESTART, InFlight.ABORT_DROP])
def test_aborted_rollouts_are_reported_first_and_resume_exactly(
    bench: Bench, replica: VllmReplica, intent: InFlight
) -> None:
    seen = len(bench.events)
    rollouts, version = interrupted(bench, replica, intent)
    events = bench.events[seen:]
    loaded = next(index for index, event in enumerate(events) if isinstance(event, WeightsLoaded))
    aborted = {event.rollout: event for event in events[:loaded] if isinstance(event, RolloutAborted)}
    assert sorted(aborted) == rollouts
    if intent is InFlight.ABORT_DROP:
        return
    if intent is InFlight.ABORT_RESTART:
        for rollout in rollouts:
            bench.tokens.restart(rollout)

    async def resume() -> None:
        for rollout, prompt in zip(rollouts, PROMPTS, strict=True):
            bench.generate(replica, prompt, rollout=rollout)
        await bench.ended(rollouts, times=2)

    bench.run(resume())
    for rollout, prompt in zip(rollouts, PROMPTS, strict=True):
        trajectory = bench.trajectory(rollout, prompt)
        first, last = bench.ends(rollout)
        assert isinstance(last, RolloutFinished)
        if intent is InFlight.ABORT_RESUME:
            old_and_new(trajectory, version)
            assert first.segments + last.segments == trajectory.segments
        else:
            assert last.segments == trajectory.segments == ((version, RESPONSE_LIMIT),)
        assert difference(trajectory, reference(bench.models, trajectory)) < CLOSE


def test_each_rollout_has_its_own_action(bench: Bench, replica: VllmReplica) -> None:
    async def run() -> tuple[list[int], int]:
        rollouts = [bench.generate(replica, prompt) for prompt in PROMPTS]
        version = bench.next_version()
        await bench.generated(replica, 150)
        exceptions = {rollouts[1]: InFlight.KEEP_STALE, rollouts[2]: InFlight.ABORT_RESUME}
        await bench.load(replica, version, InFlight.KEEP_RECOMPUTE, exceptions)
        await bench.ended(rollouts)
        return rollouts, version

    rollouts, version = bench.run(run())
    for rollout, prompt in zip(rollouts, PROMPTS, strict=True):
        trajectory = bench.trajectory(rollout, prompt)
        (event,) = bench.ends(rollout)
        assert event.segments == trajectory.segments
        if rollout == rollouts[2]:
            assert isinstance(event, RolloutAborted)
            assert {segment.version for segment in event.segments} == {version - 1}
            continue
        old_and_new(trajectory, version)
        expected = mixed_reference if rollout == rollouts[1] else reference
        assert difference(trajectory, expected(bench.models, trajectory)) < CLOSE


def test_kept_cache_never_serves_new_requests(bench: Bench, replica: VllmReplica) -> None:
    prompt = 1000  # long enough for blocks to be shared

    async def run() -> list[int]:
        first = [bench.generate(replica, prompt, member=member) for member in range(2)]
        await bench.ended(first[:1])
        version = bench.next_version()
        running = bench.generate(replica, prompt, member=2)
        await bench.generated(replica, 20)
        await bench.load(replica, version, InFlight.KEEP_STALE)
        second = [bench.generate(replica, prompt, member=member) for member in range(3, 5)]
        await bench.ended([running, *second])
        return second

    for rollout in bench.run(run()):
        trajectory = bench.trajectory(rollout, prompt)
        assert len(trajectory.segments) == 1
        assert difference(trajectory, reference(bench.models, trajectory)) < CLOSE


def test_what_waits_in_the_engine_starts_with_new_keys_and_values(bench: Bench, replica: VllmReplica) -> None:
    """A rollout without a token holds no KV to keep: it must not find the prompt of the old weights."""
    prompt, many = 1000, 20  # the engine runs 16 at once

    async def run() -> list[int]:
        rollouts = [bench.generate(replica, prompt, member=member) for member in range(many)]
        version = bench.next_version()
        await bench.generated(replica, 150)
        await bench.load(replica, version, InFlight.KEEP_STALE)
        await bench.ended(rollouts)
        return rollouts

    waited = 0
    for rollout in bench.run(run()):
        trajectory = bench.trajectory(rollout, prompt)
        if len(trajectory.segments) == 1:
            waited += 1
            assert difference(trajectory, reference(bench.models, trajectory)) < CLOSE
    assert waited == many - 16


def test_more_is_recomputed_than_one_step_holds(bench: Bench, replica: VllmReplica) -> None:
    """16 contexts of more than 100 tokens, where a step takes 1024."""
    prompts = range(1000, 1016)

    async def run() -> list[int]:
        rollouts = [bench.generate(replica, prompt) for prompt in prompts]
        version = bench.next_version()
        await bench.generated(replica, 16 * 20)
        await bench.load(replica, version, InFlight.KEEP_RECOMPUTE)
        await bench.ended(rollouts)
        return rollouts

    before = replica.usage().recomputed_tokens
    for rollout, prompt in zip(bench.run(run()), prompts, strict=True):
        trajectory = bench.trajectory(rollout, prompt)
        assert len(trajectory.segments) == 2
        assert difference(trajectory, reference(bench.models, trajectory)) < CLOSE
    assert replica.usage().recomputed_tokens - before > 16 * 100


def test_work_given_during_a_load_starts_under_the_new_weights(
    bench: Bench, replica: VllmReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    install = Shelf.install

    async def install_and_give(shelf: Shelf, *args: Any) -> None:
        given.append(bench.generate(replica, 3))
        await asyncio.sleep(0.05)
        await install(shelf, *args)

    monkeypatch.setattr(Shelf, "install", install_and_give)
    version = bench.next_version()

    async def run() -> None:
        await bench.load(replica, version, None)
        await bench.ended(given)

    bench.run(run())
    trajectory = bench.trajectory(given[0], 3)
    assert trajectory.segments == ((version, RESPONSE_LIMIT),)
    assert difference(trajectory, reference(bench.models, trajectory)) < CLOSE


def test_what_was_loaded_is_what_was_published(bench: Bench, replica: VllmReplica) -> None:
    published = load_file(weights_path(bench.directory / "weights", replica.version))
    assert replica.checksums[replica.version] == checksum_of(published.items())
    assert not torch.equal(
        published["model.embed_tokens.weight"], bench.models[0].state_dict()["model.embed_tokens.weight"]
    )
