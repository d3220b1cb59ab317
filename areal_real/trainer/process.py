"""The trainer as the run sees it: a process of its own, asked in actions, answering in events."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from areal_real.clock import Clock
from areal_real.tokens import Sample
from areal_real.trainer import commands
from areal_real.trainer.busy import BusyTime, SpanSink
from areal_real.trainer.channel import Channel
from areal_real.trainer.commands import Command, CommandQueue
from areal_real.trainer.sample_arrays import to_arrays
from areal_real.trainer.settings import TrainerSettings, checkpoint_path
from areal_real.weight_file import weights_path
from interfaces import actions, events
from interfaces.backend import Report
from interfaces.errors import TestbedError
from interfaces.rollout import PolicyVersion

SamplesOf = Callable[[actions.Train], Sequence[Sample]]
"""The rollouts of a `Train` action, with their tokens and rewards."""
OnStats = Callable[[int, Mapping[str, float]], None]
"""Called with a step and its statistics, before the event that ends it is reported."""
OnFailure = Callable[[TestbedError], None]


class TrainerProcess:
    """Implements `Trainer` and `WeightSync`: every method returns at once, an event follows.

    One command runs at a time, in the order asked for, but that a publish overtakes checkpoints and
    evaluations that wait. The process is pinned to `real.trainer_cores` and ends when its parent does.

    After a failure (`on_failure`: `TrainerDied` for a process that is gone or shows no progress for
    `real.deadline_s`, `TrainingError` or `CheckpointError` for work that cannot be done) nothing more is
    reported and further commands are ignored. To go on, close this one and start another that resumes
    from the last checkpoint.
    """

    def __init__(
        self,
        settings: TrainerSettings,
        *,
        clock: Clock,
        report: Report,
        samples: SamplesOf,
        on_stats: OnStats,
        on_failure: OnFailure,
        span: SpanSink | None = None,
    ) -> None:
        self.settings = settings
        self.trained_tokens = 0
        """Prompt + response tokens given to the trainer, masked ones included."""
        self.trained_squared_tokens = 0.0
        """Sum of the squared lengths of the sequences given to the trainer."""
        self._clock, self._report = clock, report
        self._samples, self._on_stats, self._on_failure = samples, on_stats, on_failure
        self._queue = CommandQueue()
        self._wake = asyncio.Event()
        self._busy = BusyTime(clock.now(), span)
        self._channel = Channel(settings)
        self._worker: asyncio.Task[None] | None = None
        self._failed = False

    async def start(self) -> PolicyVersion:
        """Start the process and load the model or the checkpoint.

        Returns:
            The version that the weights have: 0, or that of the checkpoint.

        Raises:
            TrainerDied: the process ended or was not ready within `real.deadline_s`.
            CheckpointError: the checkpoint to resume from is missing or not whole.
            TestbedError: the scenario asks for what this trainer or this model cannot do.
        """
        await self._channel.start()
        answer = await self._channel.ask(commands.OPEN, {"settings": self.settings.to_json()}, {})
        self._busy.enter(self._clock.now())
        self._worker = asyncio.create_task(self._work(), name="trainer")
        return int(answer["version"])

    @property
    def pid(self) -> int | None:
        """Of the trainer process; None before it started."""
        return self._channel.pid

    def seconds(self, now: float) -> dict[str, float]:
        """Trainer-seconds up to now by kind, as `interfaces.telemetry.Usage.trainer_s` names them."""
        return self._busy.seconds(now)

    def weights_path(self, version: PolicyVersion) -> Path:
        """Where a published version lies (written by `areal_real.weight_file.write_weights`)."""
        return weights_path(self.settings.weights_dir, version)

    def checkpoint_path(self, step: int) -> Path:
        """Where the checkpoint after a step lies, once `CheckpointFinished` was reported."""
        return checkpoint_path(self.settings.checkpoints_dir, step)

    def retire_weights(self, below: PolicyVersion) -> None:
        """Delete published versions older than `below`: no replica will load them."""
        for path in self.settings.weights_dir.glob("v*.safetensors"):
            version = path.stem.removeprefix("v")
            if version.isdigit() and int(version) < below:
                path.unlink(missing_ok=True)

    def train(self, action: actions.Train) -> None:
        """Train; TrainingFinished follows. The samples are asked for before this returns."""
        samples = self._samples(action)
        lengths = [len(s.trajectory.prompt_ids) + len(s.trajectory.response_ids) for s in samples]
        self.trained_tokens += sum(lengths)
        self.trained_squared_tokens += float(sum(length * length for length in lengths))
        arguments = action._asdict()
        del arguments["groups"], arguments["rollouts"]
        self._put(commands.TRAIN, arguments, partial(self._trained, action), to_arrays(samples))

    def publish(self, action: actions.Publish) -> None:
        """Write a version to `weights_path`; WeightsPublished follows."""
        self._put(commands.PUBLISH, {"version": action.version},
                  lambda at, _: events.WeightsPublished(at, action.version))  # fmt: skip

    def checkpoint(self, action: actions.Checkpoint) -> None:
        """Write a checkpoint to `checkpoint_path`; CheckpointFinished follows once it is whole on disk."""
        self._put(commands.CHECKPOINT, {"step": action.step},
                  lambda at, _: events.CheckpointFinished(at, action.step))  # fmt: skip

    def evaluate(self, action: actions.Evaluate) -> None:
        """Sample answers to held-out prompts; EvaluationFinished follows."""
        self._put(commands.EVALUATE, {"step": action.step}, partial(self._evaluated, action.step))

    def switch(self, action: actions.SwitchRole) -> None:
        """Take or give the shared device; RoleSwitched follows at once, since both keep their memory."""
        if not self._failed:
            self._report(events.RoleSwitched(self._clock.now(), action.role))

    async def close(self) -> None:
        """End the process, whatever it does; harmless when repeated, bounded in time."""
        self._failed = True
        if self._worker is not None:
            self._worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._worker
            self._worker = None
        await self._channel.close()

    def _put(
        self,
        kind: str,
        arguments: Mapping[str, Any],
        finished: Callable[[float, Mapping[str, Any]], events.Event],
        arrays: Mapping[str, Any] | None = None,
    ) -> None:
        if not self._failed:
            self._queue.put(Command(kind, arguments, arrays or {}, finished))
            self._wake.set()

    async def _work(self) -> None:
        """Carry out commands one after the other until closed or failed."""
        try:
            while True:
                command = self._queue.pop()
                if command is None:
                    self._wake.clear()
                    await self._idle()
                    continue
                self._busy.enter(self._clock.now(), command.kind, _detail(command))
                answer = await self._channel.ask(command.kind, command.arguments, command.arrays)
                now = self._clock.now()
                self._busy.enter(now)
                self._report(command.finished(now, answer))
        except TestbedError as error:
            self._busy.enter(self._clock.now())
            self._failed = True
            self._on_failure(error)

    async def _idle(self) -> None:
        """Wait for a command, and notice if the process dies meanwhile."""
        woken, died = asyncio.create_task(self._wake.wait()), asyncio.create_task(self._channel.died())
        try:
            await asyncio.wait({woken, died}, return_when=asyncio.FIRST_COMPLETED)
            if died.done():
                raise died.result()
        finally:
            woken.cancel()
            died.cancel()

    def _trained(self, action: actions.Train, at: float, answer: Mapping[str, Any]) -> events.Event:
        if action.last:
            self._on_stats(action.step, answer["stats"])
        return events.TrainingFinished(at, action.step, action.last)

    def _evaluated(self, step: int, at: float, answer: Mapping[str, Any]) -> events.Event:
        self._on_stats(step, answer["stats"])
        return events.EvaluationFinished(at, step)


def _detail(command: Command) -> str:
    """What the timeline writes on a span."""
    key = "version" if command.kind == commands.PUBLISH else "step"
    return f"{key} {command.arguments[key]}"
