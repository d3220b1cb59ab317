"""Runs a real run under an event loop of its own, with progress on stderr and Ctrl-C as a request to stop."""

import asyncio
import os
import signal
from collections.abc import Mapping
from typing import Any

from areal_real.directory import RealDirectory
from areal_real.engine.cpu import set_environment
from areal_real.run import RealRun
from areal_real.setup import prepare
from areal_report.numbers import seconds
from areal_report.terminal.progress import Bar
from interfaces.scenario import Resolved


def drive(resolved: Resolved, directory: RealDirectory) -> dict[str, Any]:
    """Run to the end; the report.

    Raises:
        TestbedError: what the user can act on.
    """
    set_environment()
    ground = prepare(resolved)
    with Bar("steps", resolved.scenario.run.steps) as bar:

        def on_step(done: int, at: float, numbers: Mapping[str, float]) -> None:
            reward = numbers.get("reward")
            bar.update(done, f"{seconds(at)}" + ("" if reward is None else f", reward {reward:.2f}"))

        return asyncio.run(_run(resolved, RealRun(resolved, ground, directory, on_step)))


async def _run(resolved: Resolved, run: RealRun) -> dict[str, Any]:
    task = asyncio.create_task(run.run(), name=resolved.where)
    asked = False

    def stop() -> None:
        nonlocal asked
        if asked:
            task.cancel()
            return
        asked = True
        os.write(2, b"\ninterrupted: ending what is under way; press again to end at once\n")
        run.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    return await task
