"""One real run: its components brought up in order, driven to the end, and all of them gone afterwards."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from areal_real.buffer import Resume, SqliteBuffer
from areal_real.clock import Clock
from areal_real.directory import RealDirectory
from areal_real.driver import Components, Driver, close_all
from areal_real.engine.replica import VllmReplica
from areal_real.recording import Held, OnStep, Recording
from areal_real.rewards.service import RewardPool
from areal_real.setup import CAPABILITIES, Ground, engine_config, replica_count
from areal_real.trainer.process import TrainerProcess
from areal_real.trainer.settings import TrainerSettings, checkpoint_path
from areal_real.usage import usage_record
from areal_report.identity import complete
from interfaces import actions, events
from interfaces.actions import Action
from interfaces.backend import refuse_unless_able
from interfaces.diagnosis import bottleneck
from interfaces.events import Event
from interfaces.loop import TrainingLoop
from interfaces.scenario import Resolved
from interfaces.setup import build_loop, loop_config, policy_of
from interfaces.snapshot import restore
from interfaces.telemetry import Telemetry

CLOSE_S = 15.0
"""Longest time that a component may take to end."""


class RealRun:
    """A scenario on real engines and a real trainer, begun or gone on with."""

    def __init__(
        self, resolved: Resolved, ground: Ground, directory: RealDirectory, on_step: OnStep | None = None
    ) -> None:
        """Prepare; `run` does everything else.

        Args:
            resolved: the scenario.
            ground: its task and model.
            directory: takes everything that is written; a run it holds is gone on with.
            on_step: called after each training step.

        Raises:
            TestbedError: the buffer is damaged, or the policy asks for what this backend cannot do.
        """
        scenario = resolved.scenario
        self.resolved, self.ground, self.directory = resolved, ground, directory
        self._on_step = on_step
        self.buffer = SqliteBuffer(directory.buffer, ground.task, scenario.workload.dataset_size)
        resume = self.buffer.recover()
        self.resumed_from = None if resume is None else resume.step
        self._held = None if resume is None else _held(resume, self.buffer)
        self.loop = _loop(resolved, resume)
        self.clock = Clock(0.0 if resume is None else resume.at)
        self._weights = directory.weights()
        self._started = time.monotonic()
        self.driver: Driver | None = None

    def stop(self) -> None:
        """End the run as soon as what is under way allows."""
        if self.driver is not None:
            self.driver.stop()

    async def run(self) -> dict[str, Any]:
        """Run to the end and return the report.

        Raises:
            TestbedError: what the run cannot survive; its last checkpoint is whole.
        """
        recording = Recording(self.resolved, self.directory, self._on_step, self._held)
        driver = self.driver = Driver(
            self.loop,
            self.clock,
            deadline_s=self.resolved.scenario.real.deadline_s,
            where=self.resolved.where,
            observers=(recording, _Retirement(self)),
            measure=self._measure,
        )
        self._make(driver, recording)
        try:
            await self._start(driver)
            await driver.run(Components(self.engines, self.trainer, self.trainer, self.buffer, self.rewards))
        finally:
            closing = [engine.stop() for engine in self.engines.values()]
            await close_all(*closing, self.trainer.close(), self.rewards.close(), within_s=CLOSE_S)
            self.buffer.close()
            recording.close()
        return self._result(recording)

    # ---- components -----------------------------------------------------------------------------------

    def _make(self, driver: Driver, recording: Recording) -> None:
        resolved, real = self.resolved, self.resolved.scenario.real
        self._early: asyncio.Queue[Event] = asyncio.Queue()
        self._running = False
        self.trainer = TrainerProcess(
            TrainerSettings(
                resolved.scenario, resolved.where, self.ground.model, self._weights,
                self.directory.checkpoints, self._checkpoint(),
            ),
            clock=self.clock,
            report=lambda event: driver.report(event) if self._running else self._early.put_nowait(event),
            samples=self.buffer.samples,
            on_stats=recording.training,
            on_failure=driver.fail,
            span=recording.telemetry,
        )  # fmt: skip
        self.engines = {
            number: VllmReplica(
                number, engine_config(resolved, self.ground, self._weights, number), self.buffer,
                driver.report, self.clock, on_error=driver.fail, span=recording.telemetry,
            )
            for number in range(replica_count(resolved))
        }  # fmt: skip
        self.rewards = RewardPool(
            self.ground.task.reward, self.buffer.question, driver.report, self.clock,
            workers=real.reward_workers, timeout_s=real.reward_timeout_s, on_failure=driver.fail,
        )  # fmt: skip

    def _checkpoint(self) -> Any:
        if self.resumed_from is None:
            return None
        return checkpoint_path(self.directory.checkpoints, self.resumed_from)

    async def _start(self, driver: Driver) -> None:
        """Bring everything up; a resumed run's weights are published before its engines load them."""
        trainer = asyncio.create_task(self.trainer.start())
        rewards = asyncio.create_task(self.rewards.start())
        try:
            path, version = None, self.loop.view.version
            if version:
                await trainer
                self.trainer.publish(actions.Publish(version))
                published = asyncio.create_task(self._early.get())
                await self._first(published, driver)
                path = self.trainer.weights_path(version)
            for engine in self.engines.values():
                await engine.start(version, path)
            await trainer
            await rewards
        except BaseException:
            for task in (trainer, rewards):
                task.cancel()
            await asyncio.gather(trainer, rewards, return_exceptions=True)
            raise
        self._running = True

    async def _first(self, published: asyncio.Task[Event], driver: Driver) -> None:
        while not published.done():
            driver.raise_failure()
            await asyncio.wait({published}, timeout=0.5)

    # ---- measurements ---------------------------------------------------------------------------------

    def _measure(self) -> Telemetry:
        now = self.clock.now()
        return usage_record(now, [engine.usage() for engine in self.engines.values()], self.trainer)

    def _result(self, recording: Recording) -> dict[str, Any]:
        report = recording.builder.build()
        report["bottleneck"] = bottleneck(report)
        report["floor"] = None
        report["wall_s"] = time.monotonic() - self._started
        report["policy"] = self.loop.policy.name
        report["cost_model"], report["outside_calibration"] = "measured", []
        report["resumed_from_step"] = self.resumed_from
        steps = [{"step": step, **numbers} for step, numbers in sorted(recording.statistics.items())]
        report["training"] = steps
        return complete(report, self.resolved)


class _Retirement:
    """Deletes published weights that no replica serves any more."""

    def __init__(self, run: RealRun) -> None:
        self._run = run

    def fed(self, event: Event, answer: list[Action]) -> None:  # noqa: ARG002
        """Look after each load."""
        if isinstance(event, (events.WeightsLoaded, events.ReplicaUp)):
            self._run.trainer.retire_weights(min(e.version for e in self._run.engines.values()))

    def telemetry(self, record: Telemetry) -> None:
        """Not of interest."""


def _held(resume: Resume, buffer: SqliteBuffer) -> Held:
    """Finished rollouts that a resumed run begins with."""
    return tuple(
        (
            rollout["id"],
            len(buffer.prompt_ids(group["prompt"])),
            tuple((version, tokens) for version, tokens in rollout["segments"]),
        )
        for group in resume.state["ready"]
        for rollout in group["rollouts"]
    )


def _loop(resolved: Resolved, resume: Resume | None) -> TrainingLoop:
    if resume is None:
        return build_loop(resolved, CAPABILITIES)
    policy, config = policy_of(resolved), loop_config(resolved.scenario)
    refuse_unless_able(policy, CAPABILITIES, config, resolved.where)
    state: Mapping[str, Any] = resume.state
    return restore(policy, config, dict(state))
