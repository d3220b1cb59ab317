"""What a directory holds: runs with their reports and timelines, and sweeps. Nothing is simulated again."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from areal_report.timeline import LEAST_REPLICAS, MOST_REPLICAS, MOST_SPANS, Timeline
from interfaces.diagnosis import bottleneck
from interfaces.errors import TestbedError
from interfaces.events import RANK, Event, TrainingFinished
from interfaces.report import ReportBuilder
from interfaces.run_files import PLAN, REPORT, SCENARIO, SWEEP, TRACE, TRACE_PART
from interfaces.telemetry import Usage
from interfaces.trace import Header, read_trace

Data = dict[str, Any]
_DRAWN = frozenset({"Span", "RolloutFinished", "RunStarted", "TrainingFinished"})
"""Records of a trace that a timeline needs."""
Progress = Callable[[int], None]
"""Told how many steps of a trace were read."""


class SourceError(TestbedError):
    """A directory holds nothing to show."""

    exit_code = 5


class Run(NamedTuple):
    """One run as the page shows it."""

    name: str
    report: Data
    scenario: Data | None
    """Resolved: scenario, hardware, model."""
    timeline: Data | None
    """`Timeline.as_data`."""
    missing: tuple[str, ...]
    """What the page cannot show of it, and why."""


class Sweep(NamedTuple):
    """One grid of points."""

    name: str
    keys: tuple[str, ...]
    rows: tuple[dict[str, str], ...]
    """Cells as written: values of the keys, `error`, and the numbers of each report."""

    def label(self, row: dict[str, str]) -> str:
        """Of a point: its values, each with its key if there are several."""
        if len(self.keys) == 1:
            return row[self.keys[0]]
        return ", ".join(f"{short(key)} {row[key]}" for key in self.keys)


def short(key: str) -> str:
    """`max_staleness` of `policy.max_staleness`, `policy` of `policy.name`."""
    return key.removesuffix(".name").rpartition(".")[2]


def read(paths: Sequence[Path], progress: Progress = lambda _: None) -> tuple[list[Run], list[Sweep]]:
    """Everything in these directories; a directory of run directories (a comparison) gives all of them.

    Raises:
        SourceError: one of them holds nothing to show.
        TraceError: a trace is damaged.
    """
    places = [place for path in paths for place in _run_directories(path)]
    names = _names(places)
    replicas = max(LEAST_REPLICAS, MOST_REPLICAS // max(1, len(places)))
    spans = MOST_SPANS // max(1, len(places))
    runs = [
        _run(place, name, Timeline(replicas, spans), progress)
        for place, name in zip(places, names, strict=True)
    ]
    sweeps = [_sweep(path) for path in paths if (path / SWEEP).is_file()]
    for path in paths:
        if not any((path / file).is_file() for file in (SWEEP, PLAN)) and not _run_directories(path):
            raise SourceError(
                f"{path}: holds neither {REPORT}, {TRACE}, {SWEEP} nor {PLAN}; make them with "
                f"`areal-sim run SCENARIO --out {path}` (or compare, sweep, plan)"
            )
    return runs, sweeps


def plans(paths: Sequence[Path]) -> list[Data]:
    """The plans in these directories.

    Raises:
        SourceError: one of them is damaged.
    """
    found = [(path / PLAN, _json(path / PLAN)) for path in paths]
    for file, plan in found:
        if plan is not None and not plan.get("plans"):
            raise SourceError(f"{file}: is not a plan of `areal-sim plan`; make it again")
    return [plan for _, plan in found if plan is not None]


def _is_run(path: Path) -> bool:
    return any((path / name).is_file() for name in (REPORT, TRACE, TRACE_PART))


def _run_directories(path: Path) -> list[Path]:
    if not path.is_dir():
        raise SourceError(f"{path}: no such directory; make one with `areal-sim run SCENARIO --out {path}`")
    if _is_run(path):
        return [path]
    return sorted((below for below in path.iterdir() if below.is_dir() and _is_run(below)), key=_natural)


def _natural(path: Path) -> tuple[int, str]:
    """`2_b` before `10_a`."""
    number, _, rest = path.name.partition("_")
    return (int(number), rest) if number.isdecimal() else (0, path.name)


def _names(places: Sequence[Path]) -> list[str]:
    """Short names that tell the runs apart."""
    short = [place.resolve().name for place in places]
    return [str(place) if short.count(name) > 1 else name for place, name in zip(places, short, strict=True)]


def _run(path: Path, name: str, timeline: Timeline, progress: Progress) -> Run:
    missing: list[str] = []
    report, scenario = _json(path / REPORT), _json(path / SCENARIO)
    drawn: Data | None = None
    trace = next((path / file for file in (TRACE, TRACE_PART) if (path / file).is_file()), None)
    if trace is None:
        missing.append(f"no timeline: no {TRACE}; run it again with --trace full")
    else:
        builder = _Folded() if report is None else None
        only = _DRAWN if builder is None else None
        for record in _counted(read_trace(trace, only), progress):
            timeline.add(record)
            if builder is not None:
                builder.add(record)
        drawn = timeline.as_data() if timeline.end else None
        if drawn is None:
            missing.append(f"no timeline: {trace.name} holds no spans")
        if builder is not None:
            report, scenario = builder.report(), scenario or builder.scenario
            missing.append(f"no {REPORT} (the run did not end): metrics come from the trace, without a floor")
    report = report or {}
    if report.get("error"):
        missing.append(str(report["error"]))
    elif not report.get("per_step"):
        missing.append("no series over steps: report.json of an earlier version, or no step was finished")
    return Run(name, report, scenario, drawn, tuple(missing))


def _counted(records: Iterable[Any], progress: Progress) -> Iterator[Any]:
    steps = 0
    for record in records:
        if type(record) is TrainingFinished and record.last:
            steps += 1
            progress(steps)
        yield record


class _Folded:
    """The report of a trace without one."""

    def __init__(self) -> None:
        self._builder = ReportBuilder(0)
        self._header: Header | None = None

    def add(self, record: Any) -> None:
        """Take a record."""
        if type(record) is Header:
            self._header = record
            self._builder = ReportBuilder(int(record.scenario["scenario"]["run"]["warmup_steps"]))
            self._builder.resume(record)
        elif type(record) in RANK:
            event: Event = record
            self._builder.event(event)
        elif type(record) is Usage:
            self._builder.telemetry(record)
        else:
            self._builder.action(record)

    @property
    def scenario(self) -> Data | None:
        """Of the header."""
        return self._header.scenario if self._header is not None else None

    def report(self) -> Data:
        """As far as the trace goes."""
        report = self._builder.build()
        about = {} if self._header is None else {"scenario": self._header.scenario.get("where")}
        return {**about, **report, "bottleneck": bottleneck(report), "floor": None}


def _json(path: Path) -> Data | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: cannot be read: {error}; run it again") from None
    if not isinstance(found, dict):
        raise SourceError(f"{path}: is not a JSON object; run it again")
    return found


def _sweep(path: Path) -> Sweep:
    file = path / SWEEP
    with file.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        columns = list(reader.fieldnames or ())
        if "error" not in columns or columns[0] == "error":
            raise SourceError(f"{file}: is not a table of `areal-sim sweep`; make it again")
        rows = tuple(reader)
    return Sweep(path.resolve().name, tuple(columns[: columns.index("error")]), rows)
