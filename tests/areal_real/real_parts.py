"""The real backend set up for `check_backend`: one engine and one trainer, used again and again.

Each contract begins at version 0 and time 0; engine and trainer go on counting. So versions, steps and times
are moved on the way in and out.
"""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from digits_task import Digits
from small_training import model_directory

from areal_real.buffer import Question, SqliteBuffer
from areal_real.clock import Clock
from areal_real.engine.config import EngineConfig
from areal_real.engine.replica import VllmReplica
from areal_real.rewards.service import RewardPool
from areal_real.setup import CAPABILITIES as DECLARED
from areal_real.tokens import Sample
from areal_real.trainer.process import TrainerProcess
from areal_real.trainer.settings import TrainerSettings
from interfaces import actions, events
from interfaces.actions import InFlight
from interfaces.events import Event
from interfaces.rollout import Segment
from interfaces.scenario import Resolved
from interfaces.scenario_file import load
from interfaces.setup import loop_config

CAPABILITIES = replace(DECLARED, several_replicas=False, quick_runs=True)
LONGEST = 300
MOMENT_S = 0.1
SETTLE_S = 60.0
UNASKED = (
    events.RolloutAborted, events.RolloutFailed, events.RolloutFinished, events.ReplicaDown,
    events.RewardReady, events.RewardFailed,
)  # fmt: skip
"""Events that answer no call which is counted."""
SETS = (
    "run.steps=3", "run.warmup_steps=0", "run.checkpoint_every_steps=2", "workload.batch_size=2",
    "workload.group_size=2", f"workload.response_tokens.max={LONGEST}", "trainer.minibatches=1",
    "real.task=digits_task:Digits", "real.evaluation_prompts=4",
)  # fmt: skip


class Rig:
    """What all contracts share."""

    def __init__(self, directory: Path) -> None:
        self.resolved: Resolved = load("local/letter_chain", SETS)
        self.directory = directory
        self.runner = asyncio.Runner()
        self.clock = Clock()
        self.backend: RealBackend | None = None
        self.version = 0
        """Of the trainer."""
        self.published = 0
        self.runner.run(self._start())

    async def _start(self) -> None:
        model, weights = model_directory(self.directory), self.directory / "weights"
        checkpoints = self.directory / "checkpoints"
        for place in (weights, checkpoints):
            place.mkdir()
        scenario = self.resolved.scenario
        config = EngineConfig(
            model=model, weights=weights, eos_id=None, prompt_limit_tokens=34, response_limit_tokens=LONGEST,
            max_num_seqs=16, max_num_batched_tokens=512, kv_cache_bytes=16 << 20,
        )  # fmt: skip
        self.replica = VllmReplica(0, config, self, self.report, self.clock, on_error=self.fail)
        self.trainer = TrainerProcess(
            TrainerSettings(scenario, self.resolved.where, model, weights, checkpoints), clock=self.clock,
            report=self.report, samples=self.samples,
            on_stats=lambda *_: None, on_failure=self.fail,
        )  # fmt: skip
        self.rewards = RewardPool(
            Digits().reward, self.question, self.report, self.clock,
            workers=1, timeout_s=30.0, on_failure=self.fail,
        )  # fmt: skip
        await asyncio.gather(self.replica.start(0), self.trainer.start(), self.rewards.start())

    @property
    def at_rest(self) -> bool:
        """Whether a contract can begin: nothing is under way, and all have the same version."""
        return not self.replica.busy and self.replica.version == self.published == self.version

    @property
    def _now(self) -> "RealBackend":
        assert self.backend is not None
        return self.backend

    def report(self, event: Event) -> None:
        if isinstance(event, events.TrainingFinished) and event.last:
            self.version += 1
        elif isinstance(event, events.WeightsPublished):
            self.published = event.version
        if self.backend is not None:
            self.backend.take(event)

    def fail(self, error: Exception) -> None:
        raise error

    # what engine, trainer and rewards ask: the buffer of the contract under way answers
    def samples(self, action: actions.Train) -> list[Sample]:
        return self._now.buffer.samples(action)

    def question(self, rollout: int) -> Question:
        return self._now.buffer.question(rollout)

    def prompt_ids(self, prompt: int) -> tuple[int, ...]:
        return self._now.buffer.prompt_ids(prompt)

    def trajectory(self, rollout: int, prompt: int) -> Any:
        return self._now.buffer.trajectory(rollout, prompt)

    def extend(self, rollout: int, ids: Any, logprobs: Any, versions: Any, *, ended: bool) -> None:
        self._now.buffer.extend(rollout, ids, logprobs, versions, ended=ended)

    def restart(self, rollout: int) -> None:
        self._now.buffer.restart(rollout)

    def close(self) -> None:
        async def stop() -> None:
            await asyncio.gather(self.replica.stop(), self.trainer.close(), self.rewards.close())

        self.runner.run(stop())
        self.runner.close()


class RealBackend:
    """One contract's view: implements `interfaces.backend.Backend` and all its parts."""

    replicas = (0,)
    max_response_tokens = LONGEST
    moment_s = MOMENT_S

    def __init__(self, rig: Rig, number: int) -> None:
        assert rig.at_rest
        self._rig, self._base, self._origin = rig, rig.version, rig.clock.now()
        self.config = loop_config(rig.resolved.scenario)
        self.buffer = SqliteBuffer(rig.directory / f"{number}.sqlite", Digits(), None)
        self.engine = self.trainer = self.weights = self
        self._facts: asyncio.Queue[Event] = asyncio.Queue()
        self._owed = 0
        """Answers of trainer and replica that are due."""
        self._closed = False
        rig.backend = self

    def wait(self, timeout_s: float) -> Event | None:
        async def heard() -> Event | None:
            with suppress(TimeoutError):
                return await asyncio.wait_for(self._facts.get(), timeout_s)
            return None

        return self._rig.runner.run(heard())

    def take(self, event: Event) -> None:
        """An event of any part, as the contract sees it."""
        if isinstance(event, events.RewardReady):
            self.buffer.reward(event.rollout, event.reward)
        if not isinstance(event, UNASKED):
            self._owed -= 1
        if isinstance(event, events.RolloutFinished):
            self._score(event.rollout)
        self._facts.put_nowait(self._moved(event))

    def _score(self, rollout: int) -> None:
        try:
            self.buffer.question(rollout)
        except KeyError:
            return  # discarded meanwhile
        self._rig.rewards.score(rollout)

    def _moved(self, event: Event) -> Event:
        changes: dict[str, Any] = {"at": max(0.0, event.at - self._origin)}
        for name in ("version", "step"):
            if hasattr(event, name):
                changes[name] = getattr(event, name) - self._base
        if hasattr(event, "segments"):
            changes["segments"] = tuple(Segment(s.version - self._base, s.tokens) for s in event.segments)
        if isinstance(event, events.RolloutFinished):
            changes["first_token_at"] = max(0.0, event.first_token_at - self._origin)
        return event._replace(**changes)

    def _within(self, call: Any, *arguments: Any, owed: int = 1) -> None:
        async def called() -> None:
            self._owed += owed
            call(*arguments)

        self._rig.runner.run(called())

    # RolloutEngine
    def generate(self, action: actions.Generate) -> None:
        self.buffer.admit(action)
        self._within(self._rig.replica.generate, action, owed=0)

    def abort(self, action: actions.Abort) -> None:
        self._within(self._rig.replica.abort, action, owed=0)

    def load(self, action: actions.LoadWeights) -> None:
        self._within(self._rig.replica.load, action._replace(version=action.version + self._base))

    # Trainer and WeightSync
    def train(self, action: actions.Train) -> None:
        below = None if action.mask_below is None else action.mask_below + self._base
        moved = action._replace(
            version=action.version + self._base, step=action.step + self._base, mask_below=below
        )
        self._within(self._rig.trainer.train, moved)

    def publish(self, action: actions.Publish) -> None:
        self._within(self._rig.trainer.publish, actions.Publish(action.version + self._base))

    def checkpoint(self, action: actions.Checkpoint) -> None:
        self._within(self._rig.trainer.checkpoint, actions.Checkpoint(action.step + self._base))

    def evaluate(self, action: actions.Evaluate) -> None:
        self._within(self._rig.trainer.evaluate, actions.Evaluate(action.step + self._base))

    def switch(self, action: actions.SwitchRole) -> None:
        self._within(self._rig.trainer.switch, action)

    # ReplayBuffer
    def discard(self, rollouts: Sequence[int], running: Sequence[int] = ()) -> None:
        self.buffer.discard(rollouts, running)

    def break_replica(self, replica: int) -> None:
        self._owed += 1
        os.kill(self._rig.replica.pids[replica], signal.SIGKILL)

    def close(self) -> None:
        """Take everything off, and let the engine serve what the trainer has."""
        if not self._closed:
            self._closed = True
            try:
                self._rig.runner.run(asyncio.wait_for(self._settle(), SETTLE_S))
            except TimeoutError:
                raise AssertionError(f"not at rest after {SETTLE_S:g} s: {self._unsettled()}") from None
            finally:
                self._rig.backend = None
                self.buffer.close()

    def _unsettled(self) -> str:
        rig = self._rig
        return (
            f"rollouts {self.buffer_rollouts()} on the replica, {self._owed} answers due, trainer at version "
            f"{rig.version}, published {rig.published}, loaded {rig.replica.version}"
        )

    async def _settle(self) -> None:
        rig = self._rig
        for rollout in self.buffer_rollouts():
            rig.replica.abort(actions.Abort(rollout, 0))
        while rig.replica.busy or self._owed > 0:
            await asyncio.sleep(0.02)
        await rig.rewards.answered()
        if rig.published < rig.version:
            rig.trainer.publish(actions.Publish(rig.version))
        while rig.published < rig.version:
            await asyncio.sleep(0.02)
        if rig.replica.version != rig.version:
            rig.replica.load(actions.LoadWeights(0, rig.version, InFlight.ABORT_DROP, ()))
        while rig.replica.version != rig.version:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.05)  # the load ends with the resumption

    def buffer_rollouts(self) -> list[int]:
        """Rollouts that the engine may hold."""
        return list(self._rig.replica._roster.flights)
