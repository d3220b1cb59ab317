"""`areal-real` in a process that a test may kill, and everything that such a run leaves behind."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

DEADLINE_S = 180.0
"""Of anything that must happen: far beyond what it takes on a busy machine, so only a hang gets there."""
ROLES = {"engine": "EngineCore", "reward": "areal_real.rewards.child", "trainer": "areal_real.trainer.child"}

SERVER = multiprocessing.get_context("forkserver")
"""Starts every run as a fork of a process that has imported vLLM once."""
SERVER.set_forkserver_preload(["preload_run"])


def command_line(arguments: list[str], log: str) -> None:
    """What the console script does, with its output in a file."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    sys.argv = ["areal-real", *arguments]
    from areal_real.__main__ import main  # noqa: PLC0415

    main()


def wait_for(what: str, true: Callable[[], bool], within_s: float = DEADLINE_S) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, f"waited {within_s:g} s for {what}"
        time.sleep(0.02)


class KillableRun:
    """One `areal-real run` or `resume`."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self.log = log
        self._process = SERVER.Process(target=command_line, args=(arguments, str(log)))
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid
        self._seen: dict[int, psutil.Process] = {}

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def processes(self) -> dict[str, list[psutil.Process]]:
        """What runs for it now, by role."""
        found: dict[str, list[psutil.Process]] = {role: [] for role in ROLES}
        try:
            children = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return found
        for child in children:
            self._seen[child.pid] = child
            try:
                said = " ".join([child.name(), *child.cmdline()])
            except psutil.Error:
                continue
            if "resource_tracker" not in said:
                found[next((role for role, word in ROLES.items() if word in said), "engine")].append(child)
        return found

    def kill(self, role: str) -> None:
        """`kill -9` of one of its processes, or of itself (`run`)."""
        victims = self.processes()
        pid = self.pid if role == "run" else victims[role][0].pid
        os.kill(pid, signal.SIGKILL)

    def exit_code(self) -> int:
        """Once it has ended, and nothing that it had started is left."""
        self._process.join(DEADLINE_S)
        assert not self._process.is_alive(), f"the run hangs: {self.log.read_text()}"
        code = self._process.exitcode
        assert code is not None
        left = list(self._seen.values())
        wait_for(f"the end of {left}", lambda: not any(process.is_running() for process in left), 30.0)
        return code
