"""Progress on stderr: only on a terminal, and only for work that takes longer than two seconds."""

# ruff: noqa: PLC0415 - imports in functions: --help and bad input must answer at once

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE_S = 2.0


class Bar:
    """A progress bar with the time left, if the total is known; use it as a context manager."""

    def __init__(self, what: str, total: int | None) -> None:
        self._what, self._total = what, total
        self._started = time.monotonic()
        self._shown = sys.stderr.isatty()
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> "Bar":
        return self

    def update(self, done: int, note: str = "") -> None:
        """So much of the total is done."""
        if not self._shown:
            return
        if self._progress is None:
            if time.monotonic() - self._started < PATIENCE_S:
                return
            self._start()
        assert self._progress is not None
        assert self._task is not None
        self._progress.update(self._task, completed=done, note=note)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"), TextColumn("left"), TimeRemainingColumn(),
        )  # fmt: skip
        self._progress = Progress(*columns, console=Console(file=sys.stderr), transient=True)
        self._progress.start()
        self._task = self._progress.add_task(self._what, total=self._total, note="")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
