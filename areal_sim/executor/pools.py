"""Where tasks run on this machine: in this process, or in one process for each core."""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Protocol

from areal_report.parent_watch import die_with
from areal_sim.executor.task import LOST, Outcome, Task, attempt

_LOOK_S = 0.5
"""How often a wait lets Ctrl-C through."""


class Pool(Protocol):
    """Runs tasks; a context manager, so that its workers end with it."""

    def __enter__(self) -> "Pool": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def results(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Outcome]]:
        """Each outcome with the place of its task, as they come."""


class Here:
    """One after the other in this process."""

    def __enter__(self) -> "Here":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def results(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Outcome]]:
        """See `Pool`."""
        for index, task in enumerate(tasks):
            yield index, attempt(*task)


class Processes:
    """At most `workers` at a time, each in its own process; they live as long as this pool.

    When a worker dies, the tasks that were running are tried once more, each alone, so that the one that
    kills its process is found and the others are not lost with it.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Processes":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(at_once=kind is not None)

    def results(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Outcome]]:
        """See `Pool`."""
        waiting = list(enumerate(tasks))[::-1]
        running: dict[Future[Outcome], tuple[int, Task]] = {}
        while waiting or running:
            while waiting and len(running) < self._workers:
                running[self._submit(waiting[-1][1])] = waiting[-1]
                waiting.pop()
            finished, _ = wait(running, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
            dead: list[tuple[int, Task]] = []
            for future in finished:
                index, task = running.pop(future)
                try:
                    yield index, future.result()
                except BrokenProcessPool:
                    dead.append((index, task))
            if dead:
                dead += running.values()
                running.clear()
                self._close()
                yield from map(self._once_more, dead)

    def _submit(self, task: Task) -> Future[Outcome]:
        try:
            return self._started().submit(attempt, *task)
        except BrokenProcessPool:  # it died between two tasks
            self._close()
            return self._started().submit(attempt, *task)

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = _executor(self._workers)
        return self._pool

    def _once_more(self, entry: tuple[int, Task]) -> tuple[int, Outcome]:
        index, task = entry
        with _executor(1) as alone:
            try:
                return index, alone.submit(attempt, *task).result()
            except BrokenProcessPool:
                return index, LOST

    def _close(self, at_once: bool = False) -> None:
        if self._pool is None:
            return
        if at_once:
            for process in multiprocessing.active_children():
                process.terminate()
        self._pool.shutdown(cancel_futures=True)
        self._pool = None


def _executor(workers: int) -> ProcessPoolExecutor:
    """Workers that leave Ctrl-C to this process, which then ends them; if it is killed, they end too."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, context, _settle, (os.getpid(),))


def _settle(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with(parent)


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def local_pool(jobs: int | None, tasks: int) -> Pool:
    """For so many tasks: processes, unless one at a time is asked for or enough."""
    workers = min(jobs or cores(), tasks)
    return Processes(workers) if workers > 1 else Here()
