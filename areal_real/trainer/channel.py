"""The pipe to the trainer process: started, asked, watched and ended, every wait with a deadline."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from areal_real.trainer import commands
from areal_real.trainer.errors import CheckpointError, TrainerDied, TrainingError
from areal_real.trainer.frames import LENGTH, Frame, decode, encode
from areal_real.trainer.settings import TrainerSettings
from interfaces.errors import TestbedError
from interfaces.scenario import Real

ERRORS: dict[str, type[TestbedError]] = {
    error.__name__: error for error in (TrainingError, CheckpointError, TrainerDied)
}
"""Errors of the process that are raised here as they are; all others as `TestbedError`."""
CLOSE_S = 5.0
"""How long a process that was asked to end may take before it is killed."""
KEPT_BYTES = 4096
"""Of stderr, for the message about its end."""


def cores_of(real: Real) -> tuple[int, ...]:
    """Cores of the trainer: as the scenario says, else those that the replicas leave, else all."""
    if real.trainer_cores:
        return real.trainer_cores
    available = sorted(os.sched_getaffinity(0))
    taken = real.engine_cores or available[: max(1, len(available) // 2)]
    return tuple(core for core in available if core not in taken) or tuple(available)


class Channel:
    """One child process that answers one request at a time."""

    def __init__(self, settings: TrainerSettings) -> None:
        self._cores = cores_of(settings.scenario.real)
        self._deadline_s = settings.scenario.real.deadline_s
        self._process: asyncio.subprocess.Process | None = None
        self._stderr: asyncio.Task[None] | None = None
        self._said = b""

    @property
    def pid(self) -> int | None:
        """Of the process; None before it started."""
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Start the process; it loads nothing before it is asked to."""
        environment = dict(os.environ)
        environment["OMP_NUM_THREADS"] = str(len(self._cores))
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        cores = ",".join(map(str, self._cores))
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "areal_real.trainer.child", str(os.getpid()), cores,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env=environment,
        )  # fmt: skip
        self._stderr = asyncio.create_task(self._listen(), name="trainer stderr")

    async def ask(
        self, kind: str, arguments: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Send a request and wait for its answer; signs of progress extend the deadline.

        Raises:
            TrainerDied: the process ended, or showed no progress for `real.deadline_s`.
            TestbedError: the process says that the request cannot be carried out.
        """
        process = self._running()
        assert process.stdin is not None
        try:
            async with asyncio.timeout(self._deadline_s):
                process.stdin.write(encode({"kind": kind, **arguments}, arrays))
                await process.stdin.drain()
            while True:
                async with asyncio.timeout(self._deadline_s):
                    head = (await self._receive()).head
                if "error" in head:
                    raise ERRORS.get(head["error"], TestbedError)(head["message"])
                if "answer" in head:
                    answer: Mapping[str, Any] = head["answer"]
                    return answer
        except TimeoutError:
            self._kill()
            raise TrainerDied(
                f"trainer process {process.pid}: {kind} showed no progress for {self._deadline_s:g} s, and "
                "was killed; raise real.deadline_s if a step may take longer, or resume from a checkpoint"
            ) from None
        except (ConnectionError, asyncio.IncompleteReadError):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), CLOSE_S)
            self._kill()
            raise await self.died(kind) from None

    async def died(self, during: str = "idle") -> TrainerDied:
        """Wait for the end of the process; what to say about it."""
        process = self._running()
        code = await process.wait()
        if self._stderr is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._stderr), 1.0)
        said = self._said.decode(errors="replace").strip()
        last = f"; its last words:\n{said}" if said else ""
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        return TrainerDied(
            f"trainer process {process.pid} {how} ({during}); resume from the last checkpoint{last}"
        )

    async def close(self) -> None:
        """End the process: asked first, killed if it does not go."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            assert process.stdin is not None
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    process.stdin.write(encode({"kind": commands.CLOSE}))
                    process.stdin.close()
                    await process.wait()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if self._stderr is not None:
            self._stderr.cancel()

    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise TrainerDied("the trainer process was not started or is closed; start another")
        return self._process

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._running().kill()

    async def _receive(self) -> Frame:
        reader = self._running().stdout
        assert reader is not None
        (size,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        return decode(await reader.readexactly(size))

    async def _listen(self) -> None:
        """Keep the end of what the process writes to stderr."""
        reader = self._running().stderr
        assert reader is not None
        while said := await reader.read(KEPT_BYTES):
            self._said = (self._said + said)[-KEPT_BYTES:]
