"""The trainer in its own process: actions in, events out, and no process left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file
from small_training import model_directory, random_samples, scenario

from areal_real.clock import Clock
from areal_real.trainer import commands
from areal_real.trainer.busy import BusyTime
from areal_real.trainer.channel import cores_of
from areal_real.trainer.checkpoint import check_whole
from areal_real.trainer.commands import Command, CommandQueue
from areal_real.trainer.errors import CheckpointError, TrainerDied, TrainingError
from areal_real.trainer.frames import LENGTH, decode, encode
from areal_real.trainer.process import TrainerProcess
from areal_real.trainer.sample_arrays import from_arrays, to_arrays
from areal_real.trainer.settings import TrainerSettings
from areal_real.weight_file import read_manifest
from interfaces import actions, events
from interfaces.scenario import Real

LIMIT_S = 120.0


class Run:
    """A trainer process with everything it reports."""

    def __init__(self, directory: Path, resume_from: Path | None = None, **changes) -> None:
        self.events: list[events.Event] = []
        self.stats: list[tuple[int, dict]] = []
        self.failures: list[Exception] = []
        self.arrived = asyncio.Event()
        self.clock = Clock()
        self.process = TrainerProcess(
            TrainerSettings(
                scenario=scenario(**changes), where="tiny.toml", model_dir=model_directory(directory),
                weights_dir=directory / "weights", checkpoints_dir=directory / "checkpoints",
                resume_from=resume_from,
            ),
            clock=self.clock, report=self._report,
            samples=lambda action: random_samples(version=action.version),
            on_stats=lambda step, stats: self.stats.append((step, dict(stats))), on_failure=self._fail,
        )  # fmt: skip

    def _report(self, event: events.Event) -> None:
        self.events.append(event)
        self.arrived.set()

    def _fail(self, error: Exception) -> None:
        self.failures.append(error)
        self.arrived.set()

    async def until(self, condition) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                self.arrived.clear()
                await self.arrived.wait()

    async def reported(self, count: int) -> None:
        await self.until(lambda: len(self.events) >= count or self.failures)
        assert not self.failures


def train(step: int, version: int | None = None, *, last: bool = True) -> actions.Train:
    return actions.Train(step, step if version is None else version, (0, 1), tuple(range(8)), None, last)


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0]
    except FileNotFoundError:
        return False


def test_a_step_its_publish_checkpoint_and_evaluation(tmp_path):
    async def run():
        first = Run(tmp_path)
        assert await first.process.start() == 0
        first.process.train(train(0))
        first.process.checkpoint(actions.Checkpoint(0))
        first.process.evaluate(actions.Evaluate(0))
        first.process.publish(actions.Publish(1))  # asked for last, but replicas wait for it
        first.process.train(train(1, last=False))
        first.process.train(train(1))
        await first.reported(6)
        await first.process.close()
        await first.process.close()
        assert not is_alive(first.process.pid or -1)
        again = Run(tmp_path, resume_from=first.process.checkpoint_path(0))
        assert await again.process.start() == 1
        again.process.publish(actions.Publish(1))
        await again.reported(1)
        await again.process.close()
        return first

    first = asyncio.run(run())
    kinds = [type(event).__name__ for event in first.events]
    assert kinds == ["TrainingFinished", "WeightsPublished", "CheckpointFinished", "EvaluationFinished",
                     "TrainingFinished", "TrainingFinished"]  # fmt: skip
    assert [event.at for event in first.events] == sorted(event.at for event in first.events)
    assert [event.last for event in first.events if isinstance(event, events.TrainingFinished)] == [
        True,
        False,
        True,
    ]
    assert [step for step, _ in first.stats] == [0, 0, 1]
    assert first.stats[0][1]["rollouts"] == 8
    assert 0 <= first.stats[1][1]["evaluation_reward"] <= 1
    assert first.stats[2][1]["rollouts"] == 16
    assert check_whole(tmp_path / "checkpoints/step-0").version == 1
    assert read_manifest(first.process.weights_path(1)).version == 1
    seconds = first.process.seconds(first.clock.now())
    assert set(seconds) == {"train", "publish", "checkpoint", "evaluation", "idle:rollouts"}
    assert sum(seconds.values()) == pytest.approx(first.clock.now(), abs=0.5)
    lengths = [len(s.trajectory.prompt_ids) + len(s.trajectory.response_ids) for s in random_samples()]
    assert first.process.trained_tokens > sum(lengths)
    assert first.process.trained_squared_tokens > sum(length**2 for length in lengths)
    weights = load_file(first.process.weights_path(1))
    assert weights.keys() <= load_file(tmp_path / "checkpoints/step-0/model.safetensors").keys()
    first.process.retire_weights(below=1)
    assert first.process.weights_path(1).exists()
    first.process.retire_weights(below=2)
    assert not first.process.weights_path(1).exists()


def test_failures_are_reported_once_and_say_what_to_do(tmp_path):
    async def run():
        wrong = Run(tmp_path)
        await wrong.process.start()
        wrong.process.train(train(0, version=3))
        await wrong.until(lambda: wrong.failures)
        wrong.process.train(train(0))
        pid = wrong.process.pid
        await wrong.process.close()
        assert not is_alive(pid)
        assert not wrong.events
        (error,) = wrong.failures
        assert isinstance(error, TrainingError)
        assert "asked to train from version 3" in str(error)

        killed = Run(tmp_path)
        await killed.process.start()
        os.kill(killed.process.pid, signal.SIGKILL)
        await killed.until(lambda: killed.failures)
        await killed.process.close()
        (error,) = killed.failures
        assert isinstance(error, TrainerDied)
        assert "killed by signal 9" in str(error)
        assert "resume from the last checkpoint" in str(error)

        lost = Run(tmp_path, resume_from=tmp_path / "checkpoints" / "step-5")
        with pytest.raises(CheckpointError, match="no whole checkpoint"):
            await lost.process.start()
        await lost.process.close()

    asyncio.run(run())


def test_hanging_process_is_killed_at_its_deadline(tmp_path):
    async def run():
        run = Run(tmp_path)
        await run.process.start()
        run.process._channel._deadline_s = 0.5
        pid = run.process.pid
        os.kill(pid, signal.SIGSTOP)
        run.process.train(train(0))
        await run.until(lambda: run.failures)
        await run.process.close()
        assert not is_alive(pid)
        (error,) = run.failures
        assert isinstance(error, TrainerDied)
        assert "train showed no progress for 0.5 s" in str(error)

    asyncio.run(run())


def test_last_words_of_a_crash_are_kept_however_long(tmp_path, monkeypatch):
    # more than the pipe of stderr holds, in one line: nobody may block, the end is what counts
    script = tmp_path / "areal_real" / "trainer" / "child.py"
    script.parent.mkdir(parents=True)
    script.write_text("import sys\nsys.stderr.write('x' * 1_000_000 + ' the end')\nsys.exit(7)\n")
    for folder in (script.parent, script.parents[1]):
        (folder / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)

    async def run():
        broken = Run(tmp_path)
        with pytest.raises(TrainerDied, match=r"ended with status 7 \(open\)(.|\n)*x the end"):
            await broken.process.start()
        await broken.process.close()

    asyncio.run(run())


def test_trainer_goes_with_its_parent():
    # the parent is killed: nobody closes the process, and it must not stay
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent("""
            import os, subprocess, sys, time
            command = [sys.executable, "-m", "areal_real.trainer.child", str(os.getpid()), "0"]
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            print(child.pid, flush=True)
            time.sleep(60)
        """)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    pid = int(parent.stdout.readline())
    os.kill(pid, signal.SIGSTOP)  # not the end of its input: only the watch may notice
    parent.kill()
    parent.wait()
    parent.stdout.close()
    os.kill(pid, signal.SIGCONT)
    deadline = time.monotonic() + LIMIT_S
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not is_alive(pid)


def command(kind: str) -> Command:
    return Command(kind, {}, {}, lambda at, answer: events.TimerFired(at))


def test_publish_overtakes_only_checkpoints_and_evaluations():
    queue = CommandQueue()
    for kind in (commands.EVALUATE, commands.TRAIN, commands.CHECKPOINT, commands.EVALUATE, commands.PUBLISH):
        queue.put(command(kind))
    order = []
    while (next_one := queue.pop()) is not None:
        order.append(next_one.kind)
    assert order == ["evaluation", "train", "publish", "checkpoint", "evaluation"]


def test_samples_survive_the_way_between_processes():
    samples = random_samples(version=3)
    frame = decode(encode({"kind": "train", "mask_below": None}, to_arrays(samples))[LENGTH.size :])
    assert from_arrays(frame.arrays) == samples
    assert frame.head == {"kind": "train", "mask_below": None}
    assert from_arrays(decode(encode({}, to_arrays([]))[LENGTH.size :]).arrays) == []


def test_trainer_takes_the_cores_that_replicas_leave(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    assert cores_of(Real()) == (2, 3)
    assert cores_of(Real(engine_cores=(0,))) == (1, 2, 3)
    assert cores_of(Real(trainer_cores=(3,))) == (3,)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert cores_of(Real()) == (0,)


def test_busy_time_adds_up():
    spans = []
    busy = BusyTime(1.0, spans.append)
    busy.enter(3.0, "train", "step 0")
    busy.enter(3.0, "publish", "version 1")
    busy.enter(4.0)
    assert busy.seconds(6.0) == {"idle:rollouts": 4.0, "publish": 1.0}
    assert [(span.start, span.end, span.kind, span.detail) for span in spans] == [
        (1.0, 3.0, "idle", "rollouts"), (3.0, 4.0, "publish", "version 1"),
    ]  # fmt: skip
