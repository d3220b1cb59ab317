"""Components that do nothing but take time, in every order that a seed can bring about."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seeded_loop import LoopClock

from areal_real.driver import Components, Driver
from interfaces import actions, events
from interfaces.actions import ABORTS
from interfaces.conformance.invariants import Monitor
from interfaces.loop import TrainingLoop
from interfaces.policies.registry import build_policy
from interfaces.rollout import Segment
from interfaces.snapshot import restore
from interfaces.view import LoopConfig

TICK_S = 0.01
CONFIG = LoopConfig(
    batch_size=2, group_size=2, steps=6, dataset_size=8, epochs=2, checkpoint_every_steps=1,
    evaluation_every_steps=2,
)  # fmt: skip


@dataclass
class Flight:
    action: actions.Generate
    length: int
    tokens: int = 0
    segments: list[Segment] = field(default_factory=list)
    first_token_at: float = -1.0

    def grow(self, version: int, now: float) -> None:
        if self.first_token_at < 0:
            self.first_token_at = now
        self.tokens += 1
        if self.segments and self.segments[-1].version == version:
            self.segments[-1] = Segment(version, self.segments[-1].tokens + 1)
        else:
            self.segments.append(Segment(version, 1))

    @property
    def stops_at(self) -> int:
        budget = self.action.token_budget
        rest = max(1, self.length - self.action.resume_tokens)
        return rest if budget is None else min(rest, budget)


class FakeEngine:
    """One token a tick for each rollout; aborts and loads take effect at some later tick."""

    def __init__(self, number: int, driver: Driver, numbers: random.Random, death_at: float | None) -> None:
        self.id, self.driver, self.numbers = number, driver, numbers
        self.version = driver.loop.view.version
        self.flights: dict[int, Flight] = {}
        self.aborts: set[int] = set()
        self.alive = True
        self.loading = False
        self.blamed = ""
        self.death_at = death_at
        self.task = asyncio.create_task(self._run())
        self.loads: set[asyncio.Task[None]] = set()

    def blame(self, cause: str) -> None:
        self.blamed = cause

    def generate(self, action: actions.Generate) -> None:
        assert self.alive, "work for a dead replica"
        assert action.rollout not in self.flights
        length = 1 + random.Random(f"{action.prompt} {action.member}").randrange(12)
        self.flights[action.rollout] = Flight(action, length)

    def abort(self, action: actions.Abort) -> None:
        self.aborts.add(action.rollout)

    def load(self, action: actions.LoadWeights) -> None:
        assert not self.loading, "two loads at a time"
        task = asyncio.create_task(self._load(action))
        self.loads.add(task)
        task.add_done_callback(self.loads.discard)

    async def _load(self, action: actions.LoadWeights) -> None:
        await asyncio.sleep(self.numbers.randrange(3) * TICK_S)
        self.loading = True
        chosen = dict(action.exceptions)
        for rollout in list(self.flights):
            if chosen.get(rollout, action.in_flight) in ABORTS:
                self._aborted(rollout)
        await asyncio.sleep(self.numbers.randrange(4) * TICK_S)
        if self.alive:
            self.version, self.loading = action.version, False
            self.driver.report(events.WeightsLoaded(self._now(), self.id, action.version))

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if self.death_at is not None and self._now() >= self.death_at:
                await self._die()
            for rollout in [r for r in self.aborts if r in self.flights and self.numbers.random() < 0.5]:
                self._aborted(rollout)
            if not self.loading:
                self._decode()

    def _decode(self) -> None:
        for rollout, flight in list(self.flights.items()):
            flight.grow(self.version, self._now())
            if flight.tokens < flight.stops_at:
                continue
            if flight.action.resume_tokens + flight.tokens < flight.length:
                self._aborted(rollout)
            elif self.numbers.random() < 0.05:
                del self.flights[rollout]
                self.driver.report(events.RolloutFailed(self._now(), rollout, self.id, "chance"))
            else:
                del self.flights[rollout]
                self.driver.report(
                    events.RolloutFinished(
                        self._now(), rollout, self.id, 3, tuple(flight.segments), flight.first_token_at, None
                    )
                )

    def _aborted(self, rollout: int) -> None:
        flight = self.flights.pop(rollout)
        self.aborts.discard(rollout)
        self.driver.report(events.RolloutAborted(self._now(), rollout, self.id, tuple(flight.segments)))

    async def _die(self) -> None:
        self.death_at = None
        self.alive = False
        for task in self.loads:
            task.cancel()
        self.flights.clear()
        self.aborts.clear()
        self.driver.report(events.ReplicaDown(self._now(), self.id, "test"))
        await asyncio.sleep(self.numbers.randrange(20) * TICK_S)
        self.version, self.alive, self.loading = self.driver.loop.view.published, True, False
        self.driver.report(events.ReplicaUp(self._now(), self.id, self.version))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def close(self) -> None:
        for task in (self.task, *self.loads):
            task.cancel()
        await asyncio.gather(self.task, *self.loads, return_exceptions=True)


class FakeWorker:
    """Trainer and weight sync: one thing at a time, each for some ticks."""

    def __init__(self, driver: Driver, numbers: random.Random) -> None:
        self.driver, self.numbers = driver, numbers
        self.orders: asyncio.Queue[Callable[[float], events.Event]] = asyncio.Queue()
        self.task = asyncio.create_task(self._run())
        self.trained: list[actions.Train] = []

    def train(self, action: actions.Train) -> None:
        self.trained.append(action)
        self.orders.put_nowait(lambda at: events.TrainingFinished(at, action.step, action.last))

    def publish(self, action: actions.Publish) -> None:
        self.orders.put_nowait(lambda at: events.WeightsPublished(at, action.version))

    def checkpoint(self, action: actions.Checkpoint) -> None:
        self.orders.put_nowait(lambda at: events.CheckpointFinished(at, action.step))

    def evaluate(self, action: actions.Evaluate) -> None:
        self.orders.put_nowait(lambda at: events.EvaluationFinished(at, action.step))

    def switch(self, action: actions.SwitchRole) -> None:
        self.orders.put_nowait(lambda at: events.RoleSwitched(at, action.role))

    async def _run(self) -> None:
        while True:
            order = await self.orders.get()
            await asyncio.sleep(self.numbers.randrange(8) * TICK_S)
            self.driver.report(order(asyncio.get_running_loop().time()))

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class FakeRewards:
    """Some ticks late, and sometimes not at all."""

    def __init__(self, driver: Driver, numbers: random.Random) -> None:
        self.driver, self.numbers = driver, numbers
        self.tasks: set[asyncio.Task[None]] = set()

    def score(self, rollout: int) -> None:
        task = asyncio.create_task(self._score(rollout))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _score(self, rollout: int) -> None:
        await asyncio.sleep(self.numbers.randrange(5) * TICK_S)
        now = asyncio.get_running_loop().time()
        if self.numbers.random() < 0.05:
            self.driver.report(events.RewardFailed(now, rollout, "chance"))
        else:
            self.driver.report(events.RewardReady(now, rollout, float(self.numbers.randrange(2))))

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class FakeBuffer:
    """Remembers what a durable buffer would have to."""

    def __init__(self) -> None:
        self.held: dict[int, int] = {}
        self.rewards: dict[int, float] = {}
        self.committed: dict[str, Any] | None = None

    def admit(self, action: actions.Generate) -> None:
        self.held[action.rollout] = action.prompt

    def reward(self, rollout: int, reward: float) -> None:
        self.rewards[rollout] = reward

    def discard(self, rollouts: Iterable[int], running: Iterable[int] = ()) -> None:
        assert set(running) <= set(rollouts)
        for rollout in rollouts:
            self.held.pop(rollout, None)

    def commit(self, step: int, state: Mapping[str, Any], at: float) -> None:
        assert at >= 0
        assert state["version"] == step + 1
        self.committed = dict(state)

    def __len__(self) -> int:
        return len(self.held)


@dataclass
class FakeRun:
    """What a run left."""

    driver: Driver
    worker: FakeWorker
    buffer: FakeBuffer
    ended: str | None

    @property
    def loop(self) -> TrainingLoop:
        return self.driver.loop


async def fake_run(
    seed: int,
    policy: Mapping[str, Any],
    *,
    config: LoopConfig = CONFIG,
    deaths: bool = True,
    stop_at: float | None = None,
    kill_at: float | None = None,
    resume: FakeBuffer | None = None,
) -> FakeRun:
    """One run with every law watched; `kill_at` leaves it as a kill -9 would, but for the tasks."""
    numbers = random.Random(seed)
    name, parameters = policy["name"], {k: v for k, v in policy.items() if k != "name"}
    built = build_policy(name, parameters, config, "test")
    state = resume.committed if resume else None
    loop = restore(built, config, state) if state else TrainingLoop(built, config)
    feed = Monitor(loop).feed if state is None else None  # a monitor needs to see a run from its start
    if loop.ledger.trained_prompts is None:
        loop.ledger.trained_prompts = Counter()
    driver = Driver(loop, LoopClock(), deadline_s=60.0, where="test", feed=feed)
    deaths_at = [numbers.random() * 2 if deaths and numbers.random() < 0.5 else None for _ in range(2)]
    engines = {i: FakeEngine(i, driver, numbers, deaths_at[i]) for i in range(2)}
    worker, rewards, buffer = FakeWorker(driver, numbers), FakeRewards(driver, numbers), FakeBuffer()
    run = FakeRun(driver, worker, buffer, None)
    parts = Components(engines, worker, worker, buffer, rewards)
    if stop_at is not None:
        asyncio.get_running_loop().call_later(stop_at, driver.stop)
    try:
        async with asyncio.timeout(kill_at):
            run.ended = await driver.run(parts)
    except TimeoutError:
        pass
    finally:
        for part in (*engines.values(), worker, rewards):
            await part.close()
    return run
