"""A directory that holds one run: `scenario.json`, `report.json`, and `trace.jsonl.gz` if it was traced.

Everything is written beside its place (`*.part`) and moved there at the end, so that an earlier run is whole
until the new one is.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from interfaces.errors import TestbedError, TraceError
from interfaces.run_files import PAGE, REPORT, SCENARIO, TRACE, TRACE_PART
from interfaces.trace import Header, TraceWriter

_PARTS = {
    SCENARIO: "scenario.json.part", REPORT: "report.json.part", TRACE: TRACE_PART, PAGE: "report.html.part"
}  # fmt: skip
_KNOWN = {*_PARTS, *_PARTS.values()}


class OutputError(TestbedError):
    """Results cannot be written where the user wants them."""

    exit_code = 6


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the file system refuses (rights, no space, not a directory) into one message."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(
            f"{path}: cannot be written: {reason}; free space, or choose another place"
        ) from None


def write_atomically(path: Path, text: str) -> None:
    """Write a file beside its place, then move it there.

    Raises:
        OutputError: the file system refuses.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # /dev/stdout, a pipe: nothing to replace
            path.write_text(text, encoding="utf-8")
            return
        part = path.with_name(path.name + ".part")
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(path)
        except OSError:
            part.unlink(missing_ok=True)
            raise


class RunDirectory:
    """Takes the files of one run, then shows them all at once (`commit`)."""

    def __init__(self, path: Path) -> None:
        """Create the directory, or make sure that it may be replaced.

        Raises:
            OutputError: it holds something else, or cannot be written.
        """
        self.path = path
        self._writer: TraceWriter | None = None
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            names = {entry.name for entry in path.iterdir()}
            foreign = names - _KNOWN
            if foreign and not {SCENARIO, REPORT} <= names:
                raise OutputError(
                    f"{path}: is not empty and not a run directory (it holds {min(foreign)!r}); "
                    "choose another --out, nothing was changed"
                )
            self._lock = DirectoryLock(path)
            self._discard_parts()
            self.write(REPORT, "")  # fails now rather than after the run

    def write(self, name: str, text: str) -> None:
        """Set a file's new content; `commit` moves it into place."""
        with writing(self.path / name):
            (self.path / _PARTS[name]).write_text(text, encoding="utf-8")

    def trace(self, header: Header) -> TraceWriter:
        """Begin the trace of this run."""
        with writing(self.path / TRACE):
            self._writer = TraceWriter(self.path / _PARTS[TRACE], header)
        return self._writer

    @property
    def trace_part(self) -> Path:
        """Where another process may write the trace; `commit` takes it."""
        return self.path / TRACE_PART

    def commit(self) -> None:
        """Close the trace and replace the earlier run; a file this run does not have goes away."""
        with writing(self.path):
            if self._writer is not None:
                self._writer.close()
            for name, part in _PARTS.items():
                if (self.path / part).exists():
                    (self.path / part).replace(self.path / name)
                else:
                    (self.path / name).unlink(missing_ok=True)
            self._lock.close()

    def abandon(self) -> None:
        """Leave the earlier run as it is and remove what was written so far; nothing after `commit`."""
        if self._lock.closed:
            return
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()
        with contextlib.suppress(OSError):
            self._discard_parts()
        self._lock.close()

    def _discard_parts(self) -> None:
        for part in _PARTS.values():
            (self.path / part).unlink(missing_ok=True)


class DirectoryLock:
    """Holds a directory against a second run into it, until closed or this process ends."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDONLY)
        if sys.platform != "win32":
            import fcntl  # noqa: PLC0415

            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OutputError(f"{path}: another run is writing to it; choose another --out") from None

    @property
    def closed(self) -> bool:
        """Whether others may write there again."""
        return self._handle < 0

    def close(self) -> None:
        """Let others write there."""
        os.close(self._handle)
        self._handle = -1


def find_trace(path: Path) -> Path:
    """The trace of a run directory (or `path` itself if it is a file), unfinished ones included.

    Raises:
        TraceError: there is none.
    """
    if not path.is_dir():
        if path.exists():
            return path
        raise TraceError(
            f"{path}: no such run directory; make one with `areal-sim run SCENARIO --out {path}`"
        )
    for name in (TRACE, _PARTS[TRACE]):
        if (path / name).exists():
            return path / name
    raise TraceError(f"{path}: holds no {TRACE}; run it again with --trace full")


def trace_parts(path: Path) -> list[Path]:
    """All traces of a run in order: one for each time that it was killed, then that of `find_trace`.

    Raises:
        TraceError: there is none.
    """
    last = find_trace(path)
    if not path.is_dir():
        return [last]
    earlier = path.glob("trace.[0-9]*.jsonl.gz")
    return [*sorted(earlier, key=lambda part: int(part.name.split(".")[1])), last]
