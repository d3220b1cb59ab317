"""The asyncio driver: facts of real components go to the core one by one, its intents go back to them."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from areal_real.clock import Clock
from interfaces import actions, events
from interfaces.actions import Action
from interfaces.backend import ReplayBuffer, RewardService, RolloutEngine, Trainer, WeightSync
from interfaces.diagnosis import explain_stall
from interfaces.errors import StallError
from interfaces.events import Event
from interfaces.loop import TrainingLoop
from interfaces.rollout import RolloutState
from interfaces.snapshot import snapshot
from interfaces.telemetry import Telemetry


class Engine(RolloutEngine, Protocol):
    """A replica that can also be told why it has nothing to do."""

    def blame(self, cause: str) -> None:
        """From now on, idle time has this cause."""


class DurableBuffer(ReplayBuffer, Protocol):
    """A buffer that outlives the run."""

    def admit(self, action: actions.Generate) -> None:
        """A rollout starts, again or for the first time."""

    def reward(self, rollout: int, reward: float) -> None:
        """The reward of a finished rollout is known."""

    def commit(self, step: int, state: Mapping[str, Any], at: float) -> None:
        """Make a step's checkpoint and all that it consumed the state to resume from, as one."""


@dataclass(frozen=True, slots=True)
class Components:
    """What a run is made of; each reports its outcomes to `Driver.report`."""

    engines: Mapping[int, Engine]
    trainer: Trainer
    weight_sync: WeightSync
    buffer: DurableBuffer
    rewards: RewardService


class Observer(Protocol):
    """Sees everything that happens, in order; changes nothing."""

    def fed(self, event: Event, answer: list[Action]) -> None:
        """An event was fed, and this is what the core answered."""

    def telemetry(self, record: Telemetry) -> None:
        """Something was measured."""


class Driver:
    """Runs one policy on real components until its core says that the run is over.

    All components live in one asyncio event loop (or hand their events over to it), so events reach the core
    one at a time, in the order in which they were reported.
    """

    def __init__(
        self,
        loop: TrainingLoop,
        clock: Clock,
        *,
        deadline_s: float,
        where: str,
        observers: tuple[Observer, ...] = (),
        measure: Callable[[], Telemetry] | None = None,
        feed: Callable[[Event], list[Action]] | None = None,
    ) -> None:
        """Prepare a run; `run` takes the components, which are made with `report`.

        Args:
            loop: a fresh core, or one restored from a snapshot.
            clock: time of the run.
            deadline_s: longest time in which nothing may be reported.
            where: scenario file, for messages.
            observers: trace, report, progress.
            measure: totals of all components, asked for before each step ends and at the end.
            feed: stands between driver and core, such as a monitor's; default: `loop.feed`.
        """
        self.loop = loop
        self.clock = clock
        self._deadline_s = deadline_s
        self._where = where
        self._observers = observers
        self._measure = measure
        self._feed = feed or loop.feed
        self._queue: deque[Event] = deque()
        self._wake = asyncio.Event()
        self._dying: set[int] = set()
        """Replicas whose death was reported and is still to be fed."""
        self._failure: BaseException | None = None
        self._snapshots: dict[int, dict[str, Any]] = {}
        """State of the core at each checkpoint asked for and not yet whole."""

    # ---- what components call -------------------------------------------------------------------------

    def report(self, event: Event) -> None:
        """Take a fact; it is fed in its turn, never while another one is being handled."""
        if isinstance(event, events.ReplicaDown):
            self._dying.add(event.replica)
        self._queue.append(event)
        self._wake.set()

    def fail(self, error: BaseException) -> None:
        """Take an error that no event can express; it ends the run."""
        if self._failure is None:
            self._failure = error
        self._wake.set()

    def raise_failure(self) -> None:
        """Raise what a component could not survive, if there is such a thing."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End the run as soon as what is under way allows (Ctrl-C)."""
        self.report(events.StopRequested(self.clock.now()))

    # ---- the run --------------------------------------------------------------------------------------

    async def run(self, components: Components) -> str:
        """Feed and carry out until the core ends the run; returns why it ended.

        Raises:
            StallError: nothing was reported for `deadline_s`; the message names what is missing.
            TestbedError: what a component could not survive (given to `fail`).
        """
        self.components = components
        self._carry_out = self._verbs(components)
        version = self.loop.view.version
        self._observe_usage()
        self._queue.appendleft(events.RunStarted(self.clock.now(), tuple(components.engines), version))
        try:
            while self.loop.ended is None:
                self.raise_failure()
                if self._queue:
                    self._take(self._queue.popleft())
                    await asyncio.sleep(0)
                else:
                    await self._next_report()
        finally:
            self._observe_usage()
        assert self.loop.ended is not None, "the loop above ends with it"
        return self.loop.ended

    async def _next_report(self) -> None:
        self._wake.clear()
        if self._queue or self._failure is not None:
            return
        try:
            await asyncio.wait_for(self._wake.wait(), self._deadline_s)
        except TimeoutError:
            state = f"nothing was reported for {self._deadline_s:g} s (real.deadline_s)"
            raise StallError(f"{self._where}: {explain_stall(self.loop, state)}") from None

    def _take(self, event: Event) -> None:
        """Feed one event and carry out the answer."""
        self._before(event)
        answer = self._feed(event)
        for observer in self._observers:
            observer.fed(event, answer)
        for action in answer:
            self._carry_out[type(action)](action)
        self._after(event)

    def _before(self, event: Event) -> None:
        """What must be durable, or measured, before the core knows."""
        if isinstance(event, events.CheckpointFinished):
            state = self._snapshots.pop(event.step)
            self.components.buffer.commit(event.step, state, event.at)
        elif isinstance(event, (events.RolloutFinished, events.RewardReady)) and event.reward is not None:
            self.components.buffer.reward(event.rollout, event.reward)
        elif isinstance(event, events.TrainingFinished):
            self._observe_usage()
        elif isinstance(event, events.ReplicaDown):
            self._dying.discard(event.replica)

    def _after(self, event: Event) -> None:
        """What this backend itself does about a fact, once the core has answered."""
        if isinstance(event, events.RolloutFinished) and event.reward is None:
            rollout = self.loop.ledger.rollouts.get(event.rollout)
            if rollout is not None and rollout.state is RolloutState.REWARDING:
                self.components.rewards.score(event.rollout)

    def _observe_usage(self) -> None:
        if self._measure is not None:
            record = self._measure()
            for observer in self._observers:
                observer.telemetry(record)

    # ---- intents --------------------------------------------------------------------------------------

    def _verbs(self, parts: Components) -> dict[type[Action], Callable[[Any], None]]:
        return {
            actions.Generate: self._generate,
            actions.Abort: lambda a: self._to_replica(a, parts.engines[a.replica].abort),
            actions.LoadWeights: lambda a: self._to_replica(a, parts.engines[a.replica].load),
            actions.Publish: parts.weight_sync.publish,
            actions.Train: parts.trainer.train,
            actions.Discard: lambda a: parts.buffer.discard(a.rollouts, a.running),
            actions.Dismiss: lambda a: parts.buffer.discard(a.rollouts, a.running),
            actions.Checkpoint: self._checkpoint,
            actions.Evaluate: parts.trainer.evaluate,
            actions.SwitchRole: parts.trainer.switch,
            actions.AdmissionBlocked: self._blame,
            actions.SetTimer: self._set_timer,
            actions.EndRun: lambda _: None,
        }

    def _generate(self, action: actions.Generate) -> None:
        self.components.buffer.admit(action)
        self._to_replica(action, self.components.engines[action.replica].generate)

    def _to_replica(self, action: Any, carry_out: Callable[[Any], None]) -> None:
        """Nothing for a replica that died without the core knowing yet: the core will ask again."""
        if action.replica not in self._dying:
            carry_out(action)

    def _checkpoint(self, action: actions.Checkpoint) -> None:
        self._snapshots[action.step] = snapshot(self.loop)
        self.components.trainer.checkpoint(action)

    def _blame(self, action: actions.AdmissionBlocked) -> None:
        for engine in self.components.engines.values():
            engine.blame(action.by or "starting")

    def _set_timer(self, action: actions.SetTimer) -> None:
        delay = max(0.0, action.at - self.clock.now())
        asyncio.get_running_loop().call_later(delay, lambda: self.report(events.TimerFired(self.clock.now())))


async def close_all(*closing: Coroutine[Any, Any, None], within_s: float) -> None:
    """Close components side by side, each bounded in time; one that fails does not keep the others."""
    bounded = [asyncio.create_task(_bounded(close, within_s)) for close in closing]
    await asyncio.gather(*bounded)


async def _bounded(close: Coroutine[Any, Any, None], within_s: float) -> None:
    with contextlib.suppress(Exception):
        await asyncio.wait_for(close, within_s)
