"""Finished tasks on disk, one JSON line each, so that a command that was killed goes on where it was.

Lines are only ever appended. The last one may be torn by a kill: it is dropped, and its task runs again.
"""

import json
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from areal_report.run_directory import OutputError, writing
from areal_report.terminal.output import finite
from areal_sim.executor.task import Outcome


class Journal:
    """Outcomes by key; a context manager."""

    def __init__(self, path: Path, resume: bool) -> None:
        """Read what an earlier command finished, or begin anew.

        Raises:
            OutputError: the file cannot be read or written, or is something else.
        """
        self.path = path
        self._found: dict[str, Outcome] = {}
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            whole = self._read() if resume and path.exists() else 0
            self._file: BinaryIO = path.open("ab")
            self._file.truncate(whole)
        self.resumed = len(self._found)
        """Outcomes that an earlier command left."""

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def find(self, key: str) -> Outcome | None:
        """What became of a task, if it is known."""
        return self._found.get(key)

    def add(self, key: str, outcome: Outcome) -> None:
        """Remember an outcome for good; what trying again could change is not remembered."""
        if not outcome.final:
            return
        self._found[key] = outcome
        line = json.dumps({"key": key, **outcome._asdict()}, separators=(",", ":"), default=float)
        if "NaN" in line or "Infinity" in line:
            line = json.dumps(finite({"key": key, **outcome._asdict()}), separators=(",", ":"))
        with writing(self.path):
            self._file.write(line.encode() + b"\n")
            self._file.flush()

    def _read(self) -> int:
        """Take all whole lines; the number of bytes they are."""
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        try:
            for line in data[:whole].splitlines():
                row = json.loads(line)
                self._found[row["key"]] = Outcome(row["report"], row["error"], row["exit_code"])
        except (ValueError, KeyError, TypeError) as error:
            raise OutputError(
                f"{self.path}: cannot be resumed from: {error!r}; leave --resume out to begin anew"
            ) from None
        return whole
