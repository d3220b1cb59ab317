"""Reward workers: latency, and a queue when they are few."""

from heapq import heapify, heapreplace

import simpy

from areal_sim.schedule import call_later, priority_of
from interfaces.backend import Report
from interfaces.events import RewardReady

READY = priority_of(RewardReady)


class RewardWorkers:
    """Scores rollouts, in the order asked, `workers` at a time (None: all at once)."""

    def __init__(self, env: simpy.Environment, workers: int | None, report: Report) -> None:
        self._env = env
        self._report = report
        self._free_at: list[float] | None = None if workers is None else [0.0] * workers
        if self._free_at:
            heapify(self._free_at)

    def score(self, rollout: int, reward: float, latency_s: float) -> None:
        """Report the reward after its latency, once a worker is free."""
        now = self._env.now
        delay = latency_s
        if self._free_at is not None:
            done = max(now, self._free_at[0]) + latency_s
            heapreplace(self._free_at, done)
            delay = done - now
        call_later(
            self._env, delay, READY, lambda _: self._report(RewardReady(self._env.now, rollout, reward))
        )  # fmt: skip
