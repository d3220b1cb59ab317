"""The directory of a real run: everything that it leaves, and all that it needs to go on after a kill."""

import hashlib
import shutil
import tempfile
import time
from pathlib import Path

from areal_report.run_directory import DirectoryLock, OutputError, write_atomically, writing
from interfaces.run_files import PAGE, REPORT, SCENARIO, TRACE, TRACE_PART
from interfaces.scenario import Resolved
from interfaces.scenario_file import from_json

BUFFER = "buffer.sqlite"
CHECKPOINTS = "checkpoints"
STATISTICS = "training.jsonl"
"""Statistics of each training step, one JSON object a line."""
TENSORBOARD = "tensorboard"
_OURS = {SCENARIO, REPORT, TRACE, TRACE_PART, PAGE, BUFFER, CHECKPOINTS, STATISTICS, TENSORBOARD}
LOCK_PATIENCE_S = 15.0
MEMORY = Path("/dev/shm")
"""Where published weights lie, if the machine has it: they are read once and then deleted."""


class RealDirectory:
    """Holds one run; a second run into it at the same time is refused."""

    def __init__(self, path: Path) -> None:
        """Create the directory, or open it.

        Raises:
            OutputError: it cannot be written, or another run is writing to it.
        """
        self.path = path.resolve()
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _patient_lock(self.path)

    @property
    def buffer(self) -> Path:
        """The database of rollouts."""
        return self.path / BUFFER

    @property
    def checkpoints(self) -> Path:
        """Directory of checkpoints, `step-N` each."""
        return self.path / CHECKPOINTS

    @property
    def holds_run(self) -> bool:
        """Whether a run was begun here."""
        return (self.path / SCENARIO).exists()

    def begin(self, scenario: str) -> None:
        """Prepare for a new run; an earlier one of this project is replaced.

        Raises:
            OutputError: the directory holds something else, or cannot be written.
        """
        with writing(self.path):
            names = {entry.name for entry in self.path.iterdir() if not _is_ours(entry.name)}
            if names:
                raise OutputError(
                    f"{self.path}: is not empty and not a run directory (it holds {min(names)!r}); "
                    "choose another --out, nothing was changed"
                )
            for entry in self.path.iterdir():
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            self.checkpoints.mkdir()
        write_atomically(self.path / SCENARIO, scenario)

    def keep_earlier_trace(self) -> None:
        """Number the trace of what was killed, so that the next part has its place."""
        with writing(self.path):
            for name in (TRACE, TRACE_PART):
                if (self.path / name).exists():
                    number = sum(1 for _ in self.path.glob("trace.[0-9]*.jsonl.gz"))
                    (self.path / name).replace(self.path / f"trace.{number}.jsonl.gz")

    def weights(self) -> Path:
        """An empty directory for published weights, the same one for this run directory every time."""
        place = MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir())
        name = hashlib.blake2b(str(self.path).encode(), digest_size=8).hexdigest()
        weights = place / f"areal-weights-{name}"
        with writing(weights):
            shutil.rmtree(weights, ignore_errors=True)
            weights.mkdir(mode=0o700)
        return weights

    def close(self) -> None:
        """Let others write here."""
        self._lock.close()


def scenario_of(path: Path) -> Resolved:
    """The scenario of the run that a directory holds.

    Raises:
        OutputError: it holds none.
    """
    file = path / SCENARIO
    if not file.is_file():
        raise OutputError(f"{path}: holds no run; begin one with `areal-real run SCENARIO --out DIR`")
    return from_json(file.read_text(encoding="utf-8"), str(file))


def _patient_lock(path: Path) -> DirectoryLock:
    """Lock; the processes of a run that was just killed may hold it some seconds longer than the run."""
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while True:
        try:
            return DirectoryLock(path)
        except OutputError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _is_ours(name: str) -> bool:
    return name in _OURS or name.endswith(".part") or name.startswith((f"{BUFFER}-", "trace."))
