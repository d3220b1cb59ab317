"""The reward service: finished rollouts are scored by a pool of processes, each within a time limit."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from areal_real.clock import Clock
from interfaces import events
from interfaces.backend import Report
from interfaces.errors import TestbedError

START_S = 120.0
"""How long a worker may take to import its function."""


class Question(Protocol):
    """What a reward function is asked; see `areal_real.buffer.Question`."""

    @property
    def prompt(self) -> str: ...  # noqa: D102
    @property
    def response(self) -> str: ...  # noqa: D102
    @property
    def ended(self) -> bool: ...  # noqa: D102
    @property
    def answer(self) -> Mapping[str, Any]: ...  # noqa: D102


class RewardError(TestbedError):
    """The reward function cannot be used at all."""

    exit_code = 6


class RewardPool:
    """Implements `interfaces.backend.RewardService`.

    A reward that takes too long, raises, kills its process or is not finite fails that rollout
    (RewardFailed); the worker is replaced and the run goes on.
    """

    def __init__(
        self,
        function: str,
        question: Callable[[int], Question],
        report: Report,
        clock: Clock,
        *,
        workers: int,
        timeout_s: float,
        on_failure: Callable[[TestbedError], None],
    ) -> None:
        """Prepare; nothing starts before `start`.

        Args:
            function: `module:function`, as `areal_real.tasks.task.Task.reward`.
            question: what to ask about a finished rollout.
            report: takes RewardReady and RewardFailed.
            clock: of the run.
            workers: processes, so rewards computed at once.
            timeout_s: longest time of one reward.
            on_failure: told when no worker can be started any more.
        """
        self._function, self._timeout_s = function, timeout_s
        self._question, self._report, self._clock, self._on_failure = question, report, clock, on_failure
        self._asked: asyncio.Queue[int] = asyncio.Queue()
        self._workers = [_Worker(function) for _ in range(workers)]
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def pids(self) -> list[int]:
        """Of the worker processes that run."""
        return [worker.process.pid for worker in self._workers if worker.process is not None]

    async def start(self) -> None:
        """Start all workers.

        Raises:
            RewardError: the function cannot be imported.
        """
        await asyncio.gather(*(worker.start() for worker in self._workers))
        self._tasks = [asyncio.create_task(self._serve(worker), name="reward") for worker in self._workers]

    def score(self, rollout: int) -> None:
        """Compute a reward; RewardReady or RewardFailed follows, unless its group is discarded before."""
        self._asked.put_nowait(rollout)

    async def answered(self) -> None:
        """Return once nothing that was asked for is still to be answered."""
        await self._asked.join()

    async def close(self) -> None:
        """End all workers, whatever they do."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(worker.kill() for worker in self._workers))

    async def _serve(self, worker: "_Worker") -> None:
        try:
            while True:
                rollout = await self._asked.get()
                try:
                    if worker.process is None:
                        await worker.start()
                    await self._score(worker, rollout)
                finally:
                    self._asked.task_done()
        except TestbedError as error:
            self._on_failure(error)

    async def _score(self, worker: "_Worker", rollout: int) -> None:
        try:
            question = self._question(rollout)
        except KeyError:
            return  # its group was discarded while it waited
        try:
            answer = await asyncio.wait_for(worker.ask(question), self._timeout_s)
        except TimeoutError:
            await worker.kill()
            answer = {"error": f"no reward within {self._timeout_s:g} s (real.reward_timeout_s)"}
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            await worker.kill()
            answer = {"error": "the reward process died"}
        now = self._clock.now()
        if "reward" in answer:
            self._report(events.RewardReady(now, rollout, float(answer["reward"])))
        else:
            self._report(events.RewardFailed(now, rollout, str(answer["error"])))


class _Worker:
    """One process at a time that computes one reward at a time."""

    def __init__(self, function: str) -> None:
        self._function = function
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "areal_real.rewards.child", str(os.getpid()), self._function,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, env=environment,
        )  # fmt: skip
        try:
            answer = await asyncio.wait_for(self._receive(), START_S)
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, ValueError):
            answer = {"error": "its process does not start"}
        if "error" in answer:
            await self.kill()
            raise RewardError(
                f"reward {self._function}: {answer['error']}; name a `module:function` on the Python path"
            )

    async def ask(self, question: Question) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.stdin is not None
        data = {
            "prompt": question.prompt, "response": question.response, "ended": question.ended,
            "answer": dict(question.answer),
        }  # fmt: skip
        self.process.stdin.write(json.dumps(data).encode() + b"\n")
        await self.process.stdin.drain()
        return await self._receive()

    async def _receive(self) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(await self.process.stdout.readuntil(b"\n"))
        return answer

    async def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
