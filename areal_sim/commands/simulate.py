"""Running simulations for the commands: one here, or many over all cores."""

import contextlib
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from areal_report.identity import complete
from areal_report.run_directory import writing
from areal_report.terminal.progress import Bar
from areal_sim.commands.recording import header
from areal_sim.simulation import Simulation
from interfaces.errors import TestbedError
from interfaces.scenario import Resolved
from interfaces.trace import TraceWriter

INTERRUPTED = 130
"""Exit code after Ctrl-C, as a shell reports it."""


class Outcome(NamedTuple):
    """What became of one simulation: a report or the message of what went wrong."""

    report: dict[str, Any] | None
    error: str | None = None
    exit_code: int = 0


def validate(resolved: Resolved) -> None:
    """Refuse what `Simulation` would refuse, without simulating.

    Raises:
        ScenarioError: what is wrong, and what to do.
    """
    Simulation(resolved)


@contextlib.contextmanager
def stop_on_interrupt(simulation: Simulation) -> Iterator[None]:
    """Ctrl-C ends the simulation between two events; a second one ends the program at once."""

    def handle(_signal: int, _frame: object) -> None:
        if simulation.interrupted:
            raise KeyboardInterrupt
        simulation.interrupted = True
        os.write(2, b"\ninterrupted: writing what there is; press again to end at once\n")

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def attempt(resolved: Resolved, trace: Path | None = None) -> Outcome:
    """Simulate, and record it if there is a place; an error becomes its message, so that others go on."""
    try:
        if trace is None:
            return Outcome(complete(Simulation(resolved).run(), resolved))
        with writing(trace), contextlib.closing(TraceWriter(trace, header(resolved))) as writer:
            return Outcome(complete(Simulation(resolved, writer).run(), resolved))
    except TestbedError as error:
        return Outcome(None, str(error), error.exit_code)
    except Exception as error:  # a bug in one point of a sweep must not lose the others
        traceback.print_exc()
        return Outcome(None, f"{type(error).__name__}: {error}", 1)


def attempt_all(
    points: Sequence[Resolved], jobs: int | None, what: str, traces: Sequence[Path | None] = ()
) -> list[Outcome | None]:
    """Simulate all, at most `jobs` at a time; in the order given, None for what Ctrl-C prevented.

    `traces` has a file for each point that is to be recorded.
    """
    tasks = list(zip_longest(points, traces))
    outcomes: list[Outcome | None] = [None] * len(points)
    workers = min(jobs or _cores(), len(points))
    with Bar(what, len(points)) as bar:
        try:
            if workers <= 1:
                for index, (point, trace) in enumerate(tasks):
                    outcomes[index] = attempt(point, trace)
                    bar.update(index + 1)
            else:
                _in_processes(tasks, workers, outcomes, bar.update)
        except KeyboardInterrupt:
            sys.stderr.write("interrupted: these are the results so far\n")
    return outcomes


def _cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_processes(
    tasks: Sequence[tuple[Resolved, Path | None]],
    workers: int,
    outcomes: list[Outcome | None],
    done: Callable[[int], None],
) -> None:
    """Fill `outcomes` as they come. Workers leave Ctrl-C to this process, which then ends them."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    try:
        index_of = {pool.submit(attempt, *task): index for index, task in enumerate(tasks)}
        pending = set(index_of)
        while pending:
            finished, pending = wait(pending, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in finished:
                outcomes[index_of[future]] = _result(future)
            done(len(tasks) - len(pending))
    except KeyboardInterrupt:
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _result(future: Future[Outcome]) -> Outcome:
    try:
        return future.result()
    except BrokenProcessPool:
        return Outcome(None, "its process was killed, perhaps for memory; try fewer --jobs", 1)
