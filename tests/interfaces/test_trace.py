"""Traces: every record survives the disk, broken files are refused or read as far as they go."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interfaces import actions, events
from interfaces.actions import InFlight
from interfaces.backend import Capabilities
from interfaces.errors import TraceError
from interfaces.events import ORDER
from interfaces.loop import TrainingLoop
from interfaces.rollout import Segment
from interfaces.scenario_file import load
from interfaces.setup import build_loop
from interfaces.telemetry import Span, Usage
from interfaces.trace import SCHEMA, Header, Record, TraceWriter, decode, encode, read_trace, replay

SEGMENTS = (Segment(0, 12), Segment(2, 900))
HEADER = Header(SCHEMA, "sim", 3, {"where": "x.toml"}, "0.1.0")
EVENTS: list[events.Event] = [
    events.RunStarted(0.0, (0, 1), 0),
    events.RolloutFinished(1.5, 7, 1, 106, SEGMENTS, 0.25, 1.0),
    events.RolloutFinished(1.5, 7, 1, 106, SEGMENTS, 0.25, None),
    events.RolloutAborted(1.5, 8, 0, SEGMENTS),
    events.RolloutAborted(1.5, 8, 0, ()),
    events.RolloutFailed(2.0, 9, 0, 'lost "connection"\n'),
    events.RewardReady(2.0, 7, 0.1 + 0.2),
    events.RewardFailed(2.0, 7, "timeout"),
    events.TrainingFinished(3.0, 0, True),
    events.WeightsPublished(3.0, 1),
    events.WeightsLoaded(3.0, 1, 1),
    events.ReplicaDown(4.0, 1, "fault", 120),
    events.EngineLoad(4.5, 0, 900, 1000, 2),
    events.ReplicaUp(5.0, 1, 1),
    events.RoleSwitched(5.0, "train"),
    events.CheckpointFinished(6.0, 0),
    events.EvaluationFinished(6.0, 0),
    events.TimerFired(7.0),
    events.StopRequested(8.0),
]
ACTIONS: list[actions.Action] = [
    actions.Generate(7, 1, 0, 0, 1, 12, None),
    actions.Generate(7, 1, 0, 2, 1, 0, 512, kv_kept=True),
    actions.Abort(7, 1),
    actions.Publish(1),
    actions.LoadWeights(1, 1, None, ()),
    actions.LoadWeights(1, 1, InFlight.KEEP_RECOMPUTE, ((7, InFlight.ABORT_DROP), (8, InFlight.KEEP_STALE))),
    actions.Train(0, 0, (0, 1), (0, 1, 2, 3), None, True),
    actions.Train(0, 2, (0,), (0, 1), 1, False),
    actions.Discard(1, (2, 3), (3,), "filtered"),
    actions.Dismiss((2, 3), (3,)),
    actions.SwitchRole("train"),
    actions.Checkpoint(0),
    actions.Evaluate(0),
    actions.SetTimer(9.5),
    actions.AdmissionBlocked("staleness_gate"),
    actions.AdmissionBlocked(None),
    actions.EndRun("steps"),
]
TELEMETRY: list[Span | Usage] = [
    Span(0.5, 1.5, "replica 3", "idle", "staleness_gate"),
    Usage(1.5, {"decode": 1.0, "idle:data": 0.25}, {"train": 0.5}, 100, 10, 5, 20, 1e12, 90, 4e3, 0.125, 2),
]
RECORDS: list[tuple[str, Any]] = [
    *(("event", event) for event in EVENTS),
    *(("action", action) for action in ACTIONS),
    *(("telemetry", record) for record in TELEMETRY),
]


def test_the_lists_above_hold_every_kind() -> None:
    assert {type(event) for event in EVENTS} == set(ORDER)
    assert {type(action) for action in ACTIONS} == set(actions.Action.__args__)


@pytest.mark.parametrize(("what", "record"), RECORDS, ids=lambda value: type(value).__name__)
def test_round_trip(what: str, record: Any) -> None:
    again: Any = decode(encode(what, record), "t")
    assert again == record
    assert type(again) is type(record)
    assert [type(value) for value in again] == [type(value) for value in record]


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
def test_file_round_trip(tmp_path: Path, name: str) -> None:
    writer = TraceWriter(tmp_path / name, HEADER)
    for event in EVENTS:
        writer.fed(event, ACTIONS)
    for record in TELEMETRY:
        writer.telemetry(record)
    writer.close()
    expected = [HEADER, *(record for event in EVENTS for record in (event, *ACTIONS)), *TELEMETRY]
    assert list(read_trace(tmp_path / name)) == expected


@pytest.mark.parametrize(
    "line",
    [
        "", "{}", "[]", "null", "7", "not json", '{"event":"Nonsense","at":1}', '{"event":"TimerFired"}',
        '{"event":"TimerFired","at":1,"more":2}', '{"action":"TimerFired","at":1}', '{"schema":99}',
        '{"schema":1}', '{"event":"RolloutAborted","at":1,"rollout":1,"replica":1,"segments":7}',
        '{"action":"LoadWeights","replica":1,"version":1,"in_flight":"bogus","exceptions":[]}',
    ],
)  # fmt: skip
def test_what_is_not_a_record_is_refused(line: str) -> None:
    with pytest.raises(TraceError, match=r"^t\.jsonl:5: "):
        decode(line, "t.jsonl:5")


# ---- broken files -----------------------------------------------------------------------------------------


def write(path: Path, count: int) -> list[Record]:
    writer = TraceWriter(path, HEADER)
    for number in range(count):
        writer.fed(events.TimerFired(float(number)), [actions.SetTimer(number + 0.123456789)])
    writer.close()
    return list(read_trace(path))


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
def test_a_trace_cut_short_gives_what_is_whole(tmp_path: Path, name: str, share: float) -> None:
    whole = write(tmp_path / name, 5000)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: int(len(data) * share)])
    read = list(read_trace(tmp_path / name))
    assert read == whole[: len(read)]
    assert 0 < len(read) < len(whole)


def test_a_flushed_trace_can_be_read_while_it_grows(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "t.jsonl.gz", HEADER)
    writer.fed(EVENTS[0], ACTIONS)
    writer.flush()
    assert list(read_trace(tmp_path / "t.jsonl.gz")) == [HEADER, EVENTS[0], *ACTIONS]
    writer.close()


@pytest.mark.parametrize(
    "data", [b"\x00\xff\xfe\n", b"PK\x03\x04\n", b"hello\n", gzip.compress(b"\xff\xff\n", mtime=0)]
)
@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
def test_a_file_that_is_no_trace(tmp_path: Path, data: bytes, name: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TraceError, match=r"t\.jsonl"):
        list(read_trace(tmp_path / name))


def test_a_corrupt_gzip_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "t.jsonl.gz", 5000)
    data = bytearray((tmp_path / "t.jsonl.gz").read_bytes())
    data[len(data) // 2 : len(data) // 2 + 40] = b"\x00" * 40
    (tmp_path / "t.jsonl.gz").write_bytes(data)
    with pytest.raises(TraceError):
        list(read_trace(tmp_path / "t.jsonl.gz"))


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        list(read_trace(tmp_path / "t.jsonl"))


# ---- replay -----------------------------------------------------------------------------------------------


@pytest.fixture
def loop() -> TrainingLoop:
    return fresh()


def fresh() -> TrainingLoop:
    sizes = ["workload.batch_size=4", "workload.group_size=4", "policy.max_concurrent_groups=4"]
    return build_loop(load("areal/table7", sizes), Capabilities())


def recorded() -> list[Record]:
    """A short run, made by hand: two rollouts finish, one fails."""
    loop = fresh()
    run: list[Record] = [HEADER]
    for event in (
        events.RunStarted(0.0, (0, 1), 0),
        events.RolloutFinished(2.0, 0, 0, 106, (Segment(0, 5),), 0.1, 1.0),
        events.RolloutFailed(3.0, 1, 0, "lost"),
    ):
        run += [event, *loop.feed(event)]
        run.append(TELEMETRY[0])
    return run


def test_replay_counts_the_events(loop: TrainingLoop) -> None:
    assert replay(iter(recorded()), loop, "t") == 3


def changes() -> Iterator[tuple[str, list[Record]]]:
    run = recorded()
    place = next(i for i, record in enumerate(run) if isinstance(record, actions.Generate))
    action = run[place]
    assert isinstance(action, actions.Generate)
    yield "changed", [*run[:place], action._replace(replica=1 - action.replica), *run[place + 1 :]]
    yield "missing", [*run[:place], *run[place + 1 :]]
    yield "added", [*run[:place], action, *run[place:]]
    yield "swapped", [*run[:place], run[place + 1], action, *run[place + 2 :]]
    yield "of another kind", [*run[:place], actions.Abort(*action[:2]), *run[place + 1 :]]


@pytest.mark.parametrize(
    ("what", "run"), list(changes()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_replay_detects_an_action_that_is(what: str, run: list[Record], loop: TrainingLoop) -> None:  # noqa: ARG001
    with pytest.raises(TraceError, match=r"^t: event "):
        replay(iter(run), loop, "t")


def test_only_some_records_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    writer = TraceWriter(path, HEADER)
    writer.fed(EVENTS[0], ACTIONS)
    writer.telemetry(TELEMETRY[0])
    writer.close()
    assert list(read_trace(path, frozenset({"Span", "Abort"}))) == [HEADER, ACTIONS[2], TELEMETRY[0]]
