"""What a real run writes while it goes on: trace, report, statistics of each training step, TensorBoard."""

import json
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from areal_real.directory import STATISTICS, TENSORBOARD, RealDirectory
from areal_report.run_directory import writing
from interfaces import events
from interfaces.actions import Action
from interfaces.events import Event
from interfaces.report import ReportBuilder
from interfaces.run_files import TRACE, TRACE_PART
from interfaces.scenario import Resolved
from interfaces.scenario_file import to_json
from interfaces.telemetry import Telemetry
from interfaces.trace import SCHEMA, Header, TraceWriter

OnStep = Callable[[int, float, Mapping[str, float]], None]
"""Called with the steps finished, the time of the run and the statistics of the last step."""


Held = tuple[tuple[int, int, tuple[tuple[int, int], ...]], ...] | None
"""As `interfaces.trace.Header.held`."""


class Recording:
    """An observer of the driver."""

    def __init__(
        self, resolved: Resolved, directory: RealDirectory, on_step: OnStep | None, held: Held
    ) -> None:
        """Open the files of a run, or of a part of it after a resume with these rollouts ready.

        Raises:
            OutputError: they cannot be written.
        """
        self._directory, self._on_step = directory, on_step
        self.builder = ReportBuilder(resolved.scenario.run.warmup_steps)
        self.statistics: dict[int, dict[str, float]] = {}
        """Of the training of each step, by step."""
        self._steps = 0
        scenario = json.loads(to_json(resolved))
        seed = resolved.scenario.run.seed
        header = Header(SCHEMA, "real", seed, scenario, version("areal-testbed"), held)
        self.builder.resume(header)
        with writing(directory.path):
            self._trace = TraceWriter(directory.path / TRACE_PART, header)
            self._trace.flush()
            self._file = (directory.path / STATISTICS).open("a", encoding="utf-8")
        self._board = _board(directory.path / TENSORBOARD)

    def fed(self, event: Event, answer: list[Action]) -> None:
        """Take an event and what the core answered."""
        self.builder.fed(event, answer)
        with writing(self._directory.path):
            self._trace.fed(event, answer)
            if isinstance(event, events.TrainingFinished) and event.last:
                self._trace.flush()
        if isinstance(event, events.TrainingFinished) and event.last:
            self._steps = event.step + 1
            if self._on_step is not None:
                self._on_step(self._steps, event.at, self.statistics.get(event.step, {}))

    def telemetry(self, record: Telemetry) -> None:
        """Take a measurement."""
        self.builder.telemetry(record)
        with writing(self._directory.path):
            self._trace.telemetry(record)

    def training(self, step: int, numbers: Mapping[str, float]) -> None:
        """Take the statistics of a training step, or of its evaluation."""
        self.statistics.setdefault(step, {}).update(numbers)
        with writing(self._directory.path):
            self._file.write(json.dumps({"step": step, **numbers}) + "\n")
            self._file.flush()
        for name, value in numbers.items():
            self._board.add_scalar(f"training/{name}", value, step)

    def close(self) -> None:
        """Finish all files; the trace takes its final name."""
        with writing(self._directory.path):
            self._trace.close()
            self._file.close()
            (self._directory.path / TRACE_PART).replace(self._directory.path / TRACE)
        self._board.close()


def _board(directory: Path) -> Any:
    from tensorboard.summary import Writer  # noqa: PLC0415 (loads slowly)

    return Writer(str(directory))
