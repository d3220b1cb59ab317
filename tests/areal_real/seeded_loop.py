"""An asyncio event loop whose time is simulated and whose order of ready callbacks comes from a seed.

Every await that is due at the same moment may be served in any order, so a seed is a schedule: a race that
one seed shows is shown again by the same seed, on every machine.
"""

import asyncio
import heapq
import random
import selectors
from collections.abc import Coroutine
from typing import Any


class _NoWait(selectors.DefaultSelector):
    """Never sleeps: the loop's clock jumps instead."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:  # noqa: ARG002
        return super().select(0)


class SeededLoop(asyncio.SelectorEventLoop):
    """Deterministic: nothing depends on the machine but what callbacks themselves do."""

    def __init__(self, seed: int) -> None:
        super().__init__(_NoWait())
        self._random = random.Random(seed)
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        scheduled = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        ready = self._ready  # type: ignore[attr-defined]
        if not ready:
            if not scheduled and not self._stopping:  # type: ignore[attr-defined]
                raise RuntimeError("deadlock: every task waits and no timer is set")
            if scheduled:
                self._now = max(self._now, scheduled[0]._when)
        self._random.shuffle(ready)
        super()._run_once()  # type: ignore[misc]


class LoopClock:
    """Stands in for `areal_real.clock.Clock`."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()


def run_seeded(seed: int, main: Coroutine[Any, Any, Any]) -> Any:
    """Run to the end; no task may be left."""
    loop = SeededLoop(seed)
    try:
        result = loop.run_until_complete(main)
        left = asyncio.all_tasks(loop)
        assert not left, f"tasks left: {left}"
        return result
    finally:
        loop.close()
