"""The trainer pool: one job at a time, in the order asked for."""

from collections import deque
from collections.abc import Callable

import simpy

from areal_sim.buffer import SizeBuffer
from areal_sim.cost.protocol import CostModel
from areal_sim.schedule import call_later, priority_of
from areal_sim.usage import TrainerUsage
from interfaces import actions
from interfaces.backend import Report
from interfaces.events import (
    CheckpointFinished,
    EvaluationFinished,
    Event,
    RoleSwitched,
    TrainingFinished,
    WeightsPublished,
)
from interfaces.scenario import Run


class TrainerPool:
    """Trains, publishes, checkpoints, evaluates; a publish asked for first is never delayed by the rest."""

    def __init__(
        self,
        env: simpy.Environment,
        cost: CostModel,
        run: Run,
        *,
        buffer: SizeBuffer,
        usage: TrainerUsage,
        report: Report,
        pause_rollout: Callable[[float], None],
    ) -> None:
        self._env = env
        self._cost = cost
        self._run = run
        self._buffer = buffer
        self._usage = usage
        self._report = report
        self._pause_rollout = pause_rollout
        self._queue: deque[tuple[str, str, float, type[Event], Callable[[], Event]]] = deque()
        self._busy = False
        self._open_step = -1
        """The step that is trained in parts (streaming), if any."""
        self.trained_tokens = 0
        self.trained_squared = 0.0
        """Sum of squared lengths: the attention part of the FLOP floor."""

    def train(self, action: actions.Train) -> None:
        """One training step (or one part of it) on rollouts of the buffer."""
        lengths = self._buffer.take(action.rollouts)
        self.trained_tokens += int(lengths.sum())
        self.trained_squared += float((lengths.astype(float) ** 2).sum())
        part = not action.last or action.step == self._open_step
        self._open_step = -1 if action.last else action.step
        if part:
            time = self._cost.training_step_s(lengths, minibatches=1, update=action.last)
        else:
            time = self._cost.training_step_s(lengths)
        self._start(
            "train", f"step {action.step}", time.total_s, TrainingFinished,
            lambda: TrainingFinished(self._env.now, action.step, action.last),
        )  # fmt: skip

    def publish(self, action: actions.Publish) -> None:
        """Gather the weights and hand them over."""
        self._start(
            "publish", f"version {action.version}", self._cost.publish_s(), WeightsPublished,
            lambda: WeightsPublished(self._env.now, action.version),
        )  # fmt: skip

    def checkpoint(self, action: actions.Checkpoint) -> None:
        """Write weights and optimizer state."""
        self._start(
            "checkpoint", f"step {action.step}", self._run.checkpoint_s, CheckpointFinished,
            lambda: CheckpointFinished(self._env.now, action.step),
        )  # fmt: skip

    def evaluate(self, action: actions.Evaluate) -> None:
        """Evaluate on the trainer, or with all replicas standing still."""
        seconds = self._run.evaluation_s

        def done() -> Event:
            return EvaluationFinished(self._env.now, action.step)

        if self._run.evaluation_on == "trainer":
            self._start("evaluation", f"step {action.step}", seconds, EvaluationFinished, done)
        else:
            self._pause_rollout(seconds)
            call_later(self._env, seconds, priority_of(EvaluationFinished), lambda _: self._report(done()))

    def switch(self, action: actions.SwitchRole) -> None:
        """Move weights, optimizer state and KV cache between device and host."""
        self._start(
            "switch", f"to {action.role}", self._cost.switch_s(), RoleSwitched,
            lambda: RoleSwitched(self._env.now, action.role),
        )  # fmt: skip

    def _start(
        self, phase: str, detail: str, seconds: float, kind: type[Event], fact: Callable[[], Event]
    ) -> None:
        self._queue.append((phase, detail, seconds, kind, fact))
        if not self._busy:
            self._next()

    def _next(self) -> None:
        phase, detail, seconds, kind, fact = self._queue.popleft()
        self._busy = True
        self._usage.enter(self._env.now, phase, detail)

        def done(_: object) -> None:
            self._busy = False
            self._usage.enter(self._env.now, None)
            if self._queue:
                self._next()
            self._report(fact())

        call_later(self._env, seconds, priority_of(kind), done)
