"""An engine that gets bad weights, dies, hangs or does not start; and a client that dies."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from engine_kit import RESPONSE_LIMIT, Bench, difference, reference

from areal_real.engine.errors import EngineError
from areal_real.engine.live import LiveEngine
from areal_real.engine.replica import WATCH_PERIOD_S, VllmReplica
from areal_real.engine.shelf import Shelf
from areal_real.weight_file import Manifest, WeightFileError, weights_path
from interfaces.actions import InFlight, LoadWeights
from interfaces.events import (
    Event,
    ReplicaDown,
    ReplicaUp,
    RolloutAborted,
    RolloutFinished,
    WeightsLoaded,
)

CLOSE = 1e-4
PROMPTS = range(4)


def spoil(bench: Bench, how: str) -> int:
    """Publish a version whose file is wrong in one way."""
    version = bench.next_version()
    path = weights_path(bench.directory / "weights", version)
    state = bench.models[version].state_dict()
    first = "model.layers.0.self_attn.q_proj.weight"
    if how == "missing":
        del state[first]
    elif how == "unknown":
        state["extra"] = torch.zeros(3)
    elif how == "shape":
        state[first] = state[first].reshape(32, -1)
    elif how == "version":
        bench.publish(version, state).rename(weights_path(bench.directory / "weights", version + 1))
        bench.models[version + 1] = bench.models[version]
        return version + 1
    bench.publish(version, state)
    data = bytearray(path.read_bytes())
    if how == "short":
        path.write_bytes(data[:-40])
    elif how == "flipped":
        data[-3] ^= 1
        path.write_bytes(data)
    elif how == "absent":
        path.unlink()
    return version


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("missing", "1 tensors missing"),
        ("unknown", r"1 tensors unknown to the model \(extra\)"),
        ("shape", r"q_proj.weight has shape \(32, 128\), the model's is \(64, 64\)"),
        ("version", r"holds version \d+, not \d+"),
        ("short", "no whole weight file"),
        ("flipped", "has checksum"),
        ("absent", "cannot be read"),
    ],
)
def test_weights_that_do_not_fit_are_refused_and_generation_goes_on(
    bench: Bench, replica: VllmReplica, how: str, message: str
) -> None:
    good = replica.version
    bad = spoil(bench, how)

    async def run() -> int:
        rollout = bench.generate(replica, 0)
        await bench.generated(replica, 5)
        replica.load(LoadWeights(replica.id, bad, InFlight.ABORT_RESUME, ()))
        await bench.told_of_error()
        return rollout

    rollout = bench.run(run())
    (error,) = bench.errors
    bench.errors.clear()
    assert isinstance(error, WeightFileError)
    with pytest.raises(WeightFileError, match=message):
        raise error
    bench.run(bench.ended([rollout]))
    (event,) = bench.ends(rollout)
    assert isinstance(event, RolloutFinished)
    assert event.segments == ((good, RESPONSE_LIMIT),)
    trajectory = bench.trajectory(rollout)
    assert difference(trajectory, reference(bench.models, trajectory)) < CLOSE
    assert replica.version == good


def down_and_up(events: list[Event], rollouts: list[int], version: int) -> None:
    """Each rollout was aborted once before ReplicaDown; the replica came back with this version."""
    down = next(index for index, event in enumerate(events) if isinstance(event, ReplicaDown))
    aborted = [event.rollout for event in events[:down] if isinstance(event, RolloutAborted)]
    assert sorted(aborted) == sorted(rollouts)
    (up,) = [event for event in events if isinstance(event, ReplicaUp)]
    assert up.version == version
    assert events.index(up) > down


async def resumed(bench: Bench, replica: VllmReplica, rollouts: list[int]) -> None:
    """Finish what was taken off."""
    for prompt, rollout in zip(PROMPTS, rollouts, strict=True):
        bench.generate(replica, prompt, rollout=rollout)
    await bench.ended(rollouts, times=2)


def test_an_update_that_fails_within_the_model_loses_no_rollout(
    bench: Bench, replica: VllmReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check is switched off, so that vLLM itself meets a tensor of the wrong shape."""
    good, bad = replica.version, spoil(bench, "shape")
    pids = replica.pids
    seen = len(bench.events)
    check = Shelf.checked

    async def run() -> list[int]:
        rollouts = [bench.generate(replica, prompt) for prompt in PROMPTS]
        await bench.generated(replica, 100)
        with monkeypatch.context() as patch:
            patch.setattr("areal_real.engine.shelf.check_fits", lambda *_: None)
            await bench.load(replica, bad, InFlight.KEEP_RECOMPUTE)
        return rollouts

    rollouts = bench.run(run())
    assert Shelf.checked is check
    down_and_up(bench.events[seen:], rollouts, good)
    (down,) = [event for event in bench.events[seen:] if isinstance(event, ReplicaDown)]
    assert f"loading version {bad} failed" in down.reason
    assert not any(isinstance(event, WeightsLoaded) for event in bench.events[seen:])
    assert replica.pids != pids
    assert not any(psutil.pid_exists(pid) for pid in pids)
    bench.run(resumed(bench, replica, rollouts))
    for prompt, rollout in zip(PROMPTS, rollouts, strict=True):
        trajectory = bench.trajectory(rollout, prompt)
        assert 0 < bench.ends(rollout)[0].segments[0].tokens < RESPONSE_LIMIT
        assert trajectory.segments == ((good, RESPONSE_LIMIT),)
        assert difference(trajectory, reference(bench.models, trajectory)) < CLOSE


def test_a_killed_engine_comes_back_and_its_tokens_survive(bench: Bench, replica: VllmReplica) -> None:
    version, seen = replica.version, len(bench.events)

    async def run() -> list[int]:
        rollouts = [bench.generate(replica, prompt) for prompt in PROMPTS]
        await bench.generated(replica, 100)
        os.kill(replica.pids[0], signal.SIGKILL)
        await bench.until(lambda: any(isinstance(event, ReplicaUp) for event in bench.events[seen:]))
        return rollouts

    rollouts = bench.run(run())
    down_and_up(bench.events[seen:], rollouts, version)
    kept = sum(segment.tokens for rollout in rollouts for segment in bench.ends(rollout)[0].segments)
    assert kept >= 90
    bench.run(resumed(bench, replica, rollouts))
    for prompt, rollout in zip(PROMPTS, rollouts, strict=True):
        trajectory = bench.trajectory(rollout, prompt)
        assert trajectory.segments == ((version, RESPONSE_LIMIT),)
        assert difference(trajectory, reference(bench.models, trajectory)) < CLOSE


def test_what_is_given_to_an_engine_whose_death_is_not_yet_known_is_lost_with_it(
    bench: Bench, replica: VllmReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core learns of the death last: it may give a rollout to the replica that just lost it."""
    seen, end = len(bench.events), LiveEngine.end

    async def slow_end(engine: LiveEngine) -> None:
        await asyncio.sleep(0.5)
        await end(engine)

    monkeypatch.setattr(LiveEngine, "end", slow_end)

    async def run() -> int:
        rollout = bench.generate(replica)
        await bench.generated(replica, 20)
        os.kill(replica.pids[0], signal.SIGKILL)
        await bench.ended([rollout])
        await asyncio.sleep(0.1)
        bench.generate(replica, rollout=rollout)
        await bench.until(lambda: any(isinstance(event, ReplicaUp) for event in bench.events[seen:]))
        bench.generate(replica, rollout=rollout)
        await bench.ended([rollout], times=2)
        return rollout

    rollout = bench.run(run())
    assert [type(event) for event in bench.ends(rollout)] == [RolloutAborted, RolloutFinished]
    assert len(bench.trajectory(rollout).response_ids) == RESPONSE_LIMIT


def test_an_idle_engine_that_dies_with_a_question_open_is_noticed(bench: Bench, replica: VllmReplica) -> None:
    """Long before the deadline of that question."""
    seen = len(bench.events)

    async def run() -> None:
        os.kill(replica.pids[0], signal.SIGSTOP)
        await asyncio.sleep(2 * WATCH_PERIOD_S)
        os.kill(replica.pids[0], signal.SIGKILL)
        await bench.until(lambda: any(isinstance(event, ReplicaUp) for event in bench.events[seen:]))

    bench.run(run())
    assert [type(event) for event in bench.events[seen:]] == [ReplicaDown, ReplicaUp]


def test_an_engine_that_hangs_is_replaced_and_one_that_dies_too_often_is_given_up(bench: Bench) -> None:
    """A replica of its own: its deadlines are short."""
    replica = bench.replica(7, answer_deadline_s=2.0, max_restarts=1)
    seen = len(bench.events)

    async def run() -> list[int]:
        await replica.start(0)
        rollouts = [bench.generate(replica, prompt) for prompt in PROMPTS]
        await bench.generated(replica, 50)
        os.kill(replica.pids[0], signal.SIGSTOP)
        await bench.until(lambda: any(isinstance(event, ReplicaUp) for event in bench.events[seen:]))
        os.kill(replica.pids[0], signal.SIGKILL)
        await bench.told_of_error()
        return rollouts

    rollouts = bench.run(run())
    down_and_up(bench.events[seen:], rollouts, 0)
    downs = [event for event in bench.events[seen:] if isinstance(event, ReplicaDown)]
    assert "no answer (sign of life) for 2 s" in downs[0].reason
    (error,) = bench.errors
    bench.errors.clear()
    assert isinstance(error, EngineError)
    assert "died 2 times without finishing a rollout" in str(error)
    assert not replica.pids
    bench.run(replica.stop())


def engines() -> set[int]:
    """Living children of this process."""
    return {child.pid for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE}


def test_a_start_that_takes_too_long_leaves_nothing_behind(bench: Bench) -> None:
    before = engines()
    with pytest.raises(EngineError, match=r"replica 8: did not start within 0.3 s"):
        bench.run(bench.replica(8, start_deadline_s=0.3).start(0))
    assert engines() <= before


def test_a_start_that_is_cancelled_leaves_nothing_behind(bench: Bench) -> None:
    before = engines()

    async def run() -> None:
        start = asyncio.ensure_future(bench.replica(8).start(0))
        while not engines() - before:
            await asyncio.sleep(0.01)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start

    bench.run(run())
    assert engines() <= before


def test_a_load_under_way_when_the_engine_dies_does_not_touch_the_next_one(
    bench: Bench, replica: VllmReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of the file takes longer than the restart."""
    good, seen = replica.version, len(bench.events)
    version = bench.next_version()
    checked = Shelf.checked
    restarted = asyncio.Event()

    async def slow(shelf: Shelf, path: Path, number: int) -> Manifest:
        if number == version:
            await restarted.wait()
        return await checked(shelf, path, number)

    monkeypatch.setattr(Shelf, "checked", slow)

    async def run() -> int:
        replica.load(LoadWeights(replica.id, version, None, ()))
        await asyncio.sleep(0)
        os.kill(replica.pids[0], signal.SIGKILL)
        await bench.until(lambda: any(isinstance(event, ReplicaUp) for event in bench.events[seen:]))
        restarted.set()
        rollout = bench.generate(replica, 0)
        await bench.ended([rollout])
        return rollout

    rollout = bench.run(run())
    assert [type(event) for event in bench.events[seen:]] == [ReplicaDown, ReplicaUp, RolloutFinished]
    assert bench.trajectory(rollout).segments == ((good, RESPONSE_LIMIT),)


def test_a_model_that_is_none_is_an_error_without_traceback(bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(WeightFileError, match=r"holds no \*.safetensors"):
        bench.run(bench.replica(8, model=tmp_path).start(0))
    shutil.copy(bench.directory / "model" / "model.safetensors", tmp_path)
    with pytest.raises(EngineError, match="did not start"):
        bench.run(bench.replica(8, model=tmp_path).start(0))


CLIENT = """
import sys, time
sys.path[:0] = {paths!r}
from pathlib import Path
from engine_kit import Bench
bench = Bench(Path({directory!r}))
replica = bench.replica()
bench.run(replica.start(0))
bench.generate(replica)
print(*replica.pids, flush=True)
bench.runner.get_loop().run_forever()
"""


def test_a_killed_client_takes_its_engine_down(tmp_path: Path) -> None:
    here = Path(__file__).parent
    code = CLIENT.format(paths=[str(here), str(here.parent.parent)], directory=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        pids = [int(pid) for pid in client.stdout.readline().split()]
        assert pids
        assert all(psutil.pid_exists(pid) for pid in pids)
        client.kill()
    deadline = time.monotonic() + 30.0
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(psutil.pid_exists(pid) for pid in pids)
