"""Timelines: what Perfetto needs to open them, and that they show what the trace says."""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from areal_sim.simulation import Simulation
from interfaces import perfetto
from interfaces.backend import Capabilities
from interfaces.errors import TraceError
from interfaces.events import RolloutFinished, RunStarted, WeightsPublished
from interfaces.rollout import Segment
from interfaces.scenario import Resolved
from interfaces.scenario_file import load
from interfaces.setup import build_loop
from interfaces.telemetry import Span, Usage
from interfaces.trace import SCHEMA, Header, Record, TraceWriter, read_trace

SETS = ["workload.batch_size=8", "workload.group_size=4", "run.steps=6", "run.warmup_steps=2"]
DEATH = "faults.replica=[{replica = 1, at_s = 40.0, down_s = 30.0}]"


def recorded(path: Path, sets: list[str]) -> tuple[Resolved, list[Record]]:
    resolved = load("areal/table7", [*SETS, *sets])
    with closing(TraceWriter(path, Header(SCHEMA, "sim", 0, {}, "0"))) as writer:
        Simulation(resolved, writer).run()
    return resolved, list(read_trace(path))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Resolved, list[Record]]:
    policy = ["policy.max_concurrent_groups=8", "policy.max_staleness=1"]
    return recorded(tmp_path_factory.mktemp("trace") / "t.jsonl.gz", [*policy, DEATH])


@pytest.fixture(scope="module")
def timeline(run: tuple[Resolved, list[Record]]) -> list[dict[str, Any]]:
    resolved, records = run
    return list(perfetto.entries(records, build_loop(resolved, Capabilities()), "t"))


def phase(timeline: list[dict[str, Any]], letter: str) -> Iterator[dict[str, Any]]:
    return (entry for entry in timeline if entry["ph"] == letter)


def test_every_entry_has_what_the_format_demands(timeline: list[dict[str, Any]]) -> None:
    for entry in timeline:
        assert {"ph", "name", "pid", "tid"} <= entry.keys()
        assert entry["ph"] in "MXCi"
        if entry["ph"] != "M":
            assert entry["ts"] >= 0
        if entry["ph"] == "X":
            assert entry["dur"] >= 0


def test_processes_and_a_thread_for_each_replica(timeline: list[dict[str, Any]]) -> None:
    names = {
        (e["name"], e["pid"], e["tid"]): e["args"]["name"]
        for e in phase(timeline, "M")
        if "name" in e["args"]
    }
    assert names["process_name", 1, 0] == "rollout pool"
    assert names["process_name", 2, 0] == "trainer"
    assert [names["thread_name", 1, replica] for replica in range(6)] == [f"replica {r}" for r in range(6)]


def test_spans_are_those_of_the_trace_in_microseconds(
    run: tuple[Resolved, list[Record]], timeline: list[dict[str, Any]]
) -> None:
    spans = [record for record in run[1] if isinstance(record, Span)]
    shown = list(phase(timeline, "X"))
    assert len(shown) == len(spans)
    for span, entry in zip(spans, shown, strict=True):
        assert entry["ts"] == pytest.approx(span.start * 1e6, abs=0.001)
        assert entry["ts"] + entry["dur"] == pytest.approx(span.end * 1e6, abs=0.002)
        assert entry["cat"] == span.kind


def test_all_that_a_replica_does_is_shown(timeline: list[dict[str, Any]]) -> None:
    kinds = {entry["cat"] for entry in phase(timeline, "X")}
    assert kinds >= {"prefill", "decode", "recompute", "load", "idle", "train", "publish"}


def test_idle_spans_name_their_cause(timeline: list[dict[str, Any]]) -> None:
    idle = [entry for entry in phase(timeline, "X") if entry["cat"] == "idle"]
    assert idle
    for entry in idle:
        assert entry["args"]["cause"]
        assert entry["name"] == f"idle: {entry['args']['cause']}"


def test_spans_of_a_track_do_not_overlap(timeline: list[dict[str, Any]]) -> None:
    tracks = defaultdict(list)
    for entry in phase(timeline, "X"):
        tracks[entry["pid"], entry["tid"]].append((entry["ts"], entry["ts"] + entry["dur"]))
    for track, spans in tracks.items():
        spans.sort()
        for (_, end), (start, _) in pairwise(spans):
            assert start >= end - 1.0, track


def test_spans_add_up_to_the_totals_of_the_report(
    run: tuple[Resolved, list[Record]], timeline: list[dict[str, Any]]
) -> None:
    totals = [record for record in run[1] if isinstance(record, Usage)][-1]
    seconds: defaultdict[str, float] = defaultdict(float)
    for entry in phase(timeline, "X"):
        seconds[entry["cat"] if entry["pid"] == 1 else "trainer"] += entry["dur"] / 1e6
    assert seconds["trainer"] == pytest.approx(sum(totals.trainer_s.values()), rel=1e-6)
    for kind in ("prefill", "recompute", "load"):
        assert seconds[kind] == pytest.approx(totals.rollout_s[kind], rel=1e-6), kind


def test_counters_follow_the_run(timeline: list[dict[str, Any]]) -> None:
    counters = defaultdict(list)
    for entry in phase(timeline, "C"):
        counters[entry["name"]].append(entry["args"])
    running = [values["running"] for values in counters["rollouts"]]
    assert max(running) == 32
    assert running[-1] == 0
    assert max(values["groups"] for values in counters["groups ready to train"]) >= 1
    staleness = counters["staleness of the batch taken"]
    assert all(values["mean"] <= values["max"] for values in staleness)
    assert max(values["max"] for values in staleness) >= 1


def test_publishes_and_failures_are_instants(
    run: tuple[Resolved, list[Record]], timeline: list[dict[str, Any]]
) -> None:
    names = [entry["name"] for entry in phase(timeline, "i")]
    published = [record for record in run[1] if isinstance(record, WeightsPublished)]
    assert sum(name.endswith("published") for name in names) == len(published) == 6
    assert any(name.startswith("down: ") for name in names)
    assert "up" in names


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_the_file_is_one_json_object(run: tuple[Resolved, list[Record]], tmp_path: Path, name: str) -> None:
    resolved, records = run
    perfetto.export(records, build_loop(resolved, Capabilities()), tmp_path / name, "t")
    data = (tmp_path / name).read_bytes()
    timeline = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
    assert timeline["traceEvents"][0]["name"] == "process_name"


def test_a_trace_that_cannot_be_true_is_one_error(run: tuple[Resolved, list[Record]]) -> None:
    impossible = [RunStarted(0.0, (0,), 0), RolloutFinished(1.0, 99, 0, 1, (Segment(0, 1),), 0.5, 1.0)]
    with pytest.raises(TraceError, match="does not replay"):
        list(perfetto.entries(impossible, build_loop(run[0], Capabilities()), "t"))
