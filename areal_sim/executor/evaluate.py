"""Tasks in, outcomes out: from the journal where they are known, from the pool otherwise."""

import sys
from collections.abc import Callable, Sequence

from areal_report.terminal.progress import Bar
from areal_sim.executor.journal import Journal
from areal_sim.executor.pools import Pool, local_pool
from areal_sim.executor.ray_pool import RayPool
from areal_sim.executor.task import Outcome, Task, key


def pool_for(jobs: int | None, ray: str | None, tasks: int) -> Pool:
    """The cores of this machine, or the Ray cluster at an address.

    Raises:
        RayError: there is no such cluster.
    """
    return local_pool(jobs, tasks) if ray is None else RayPool(ray, jobs)


def evaluate(
    tasks: Sequence[Task],
    pool: Pool,
    journal: Journal | None = None,
    done: Callable[[int], None] = lambda _: None,
    outcomes: list[Outcome | None] | None = None,
) -> list[Outcome | None]:
    """The outcome of every task, in their order; `done` is told how many there are, as they come.

    `outcomes` is filled as they come, for a caller that is interrupted. Equal tasks run once.
    """
    outcomes = outcomes if outcomes is not None else [None] * len(tasks)
    keys = [key(task.resolved) if journal is not None else str(index) for index, task in enumerate(tasks)]
    if journal is not None:
        outcomes[:] = [journal.find(one) for one in keys]
    missing = {one: index for index, one in enumerate(keys) if outcomes[index] is None}
    places = list(missing.values())
    for number, outcome in pool.results([tasks[place] for place in places]):
        outcomes[places[number]] = outcome
        if journal is not None:
            journal.add(keys[places[number]], outcome)
        done(sum(one is not None for one in outcomes))
    for index, one in enumerate(keys):
        if outcomes[index] is None and one in missing:
            outcomes[index] = outcomes[missing[one]]
    return outcomes


def attempt_all(
    tasks: Sequence[Task],
    what: str,
    *,
    jobs: int | None = None,
    ray: str | None = None,
    journal: Journal | None = None,
) -> list[Outcome | None]:
    """Simulate all, with a progress bar; in the order given, None for what Ctrl-C prevented."""
    outcomes: list[Outcome | None] = [None] * len(tasks)
    try:
        with pool_for(jobs, ray, len(tasks)) as pool, Bar(what, len(tasks)) as bar:
            evaluate(tasks, pool, journal, bar.update, outcomes)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: these are the results so far\n")
    return outcomes
