"""Thinning of spans: nothing is lost that can be seen, and a page never holds too much."""

from itertools import pairwise
from typing import Any

from areal_report.timeline import Timeline
from interfaces.events import RolloutFinished, RunStarted
from interfaces.rollout import Segment
from interfaces.telemetry import Span


def folded(*records: object, **limits: int) -> dict[str, Any]:
    timeline = Timeline(**limits)
    for record in records:
        timeline.add(record)
    return timeline.as_data()


def unpacked(data: dict[str, Any], track: int) -> list[tuple[float, float, str, int]]:
    """Start, end, kind, number."""
    columns, at, spans = data["tracks"][track], 0, []
    for gap, length, kind, number in zip(
        columns["gap"], columns["length"], columns["kind"], columns["number"], strict=True
    ):
        at += gap
        start = round(at * data["unit_s"], 6)
        at += length
        spans.append((start, round(at * data["unit_s"], 6), data["kinds"][kind], number))
    return spans


def replica(start: float, end: float, kind: str, detail: str = "", number: int = 0) -> Span:
    return Span(start, end, f"replica {number}", kind, detail)


def test_spans_come_back() -> None:
    data = folded(
        replica(0.0, 2.0, "decode"), replica(2.0, 2.5, "load", "version 1"),
        replica(2.5, 3.0, "recompute", "4000 tokens"), replica(4.0, 5.0, "idle", "staleness_gate"),
        Span(0.0, 4.0, "trainer", "train", "step 7"),
    )  # fmt: skip
    assert unpacked(data, 0) == [(0.0, 4.0, "train", 7)]
    assert unpacked(data, 1) == [
        (0.0, 2.0, "decode", -1), (2.0, 2.5, "load", 1), (2.5, 3.0, "recompute", 4000),
        (4.0, 5.0, "idle:staleness_gate", -1),
    ]  # fmt: skip


def test_neighbours_of_a_kind_become_one_and_their_tokens_add_up() -> None:
    data = folded(replica(0.0, 1.0, "prefill", "106 tokens"), replica(1.0, 2.0, "prefill", "106 tokens"))
    assert unpacked(data, 1) == [(0.0, 2.0, "prefill", 212)]


def test_steps_and_versions_stay_apart() -> None:
    data = folded(Span(0.0, 1.0, "trainer", "train", "step 0"), Span(1.0, 2.0, "trainer", "train", "step 1"))
    assert [number for *_, number in unpacked(data, 0)] == [0, 1]


def test_rollouts_that_finished_are_told_with_the_decoding() -> None:
    data = folded(
        RunStarted(0.0, (0,), 0),
        RolloutFinished(1.0, 5, 0, 10, (Segment(0, 100), Segment(1, 50)), 0.1, 1.0),
        RolloutFinished(1.5, 6, 0, 10, (Segment(1, 50),), 0.1, 1.0),
        replica(0.0, 2.0, "decode"),
    )
    assert data["tracks"][1]["finished"] == [2]
    assert data["tracks"][1]["tokens"] == [200]


def test_too_many_spans_are_thinned_and_the_marks_stay() -> None:
    records: list[Span] = []
    for cycle in range(1000):
        at = float(cycle)
        records += [
            replica(at, at + 0.5, "decode"), replica(at + 0.5, at + 0.501, "prefill", "106 tokens"),
            replica(at + 0.501, at + 0.95, "decode"),
            replica(at + 0.95, at + 1.0, "load", f"version {cycle}"),
        ]  # fmt: skip
    data = folded(*records, spans=3000)
    spans = unpacked(data, 1)
    assert len(spans) <= 3000
    assert data["resolution_s"] > 0
    assert [number for _, _, kind, number in spans if kind == "load"] == list(range(1000))
    assert sum(data["tracks"][1]["inner"]) > 0
    assert all(a[1] == b[0] for a, b in pairwise(spans)), "thinning leaves no holes"
    assert (spans[0][0], spans[-1][1]) == (0.0, 1000.0)


def test_a_page_never_holds_too_much() -> None:
    records = [replica(at, at + 1.0, "load" if at % 2 else "decode", f"version {at}") for at in range(50_000)]
    data = folded(*records, spans=1000)
    assert len(unpacked(data, 1)) <= 1000


def test_only_so_many_replicas_are_kept_and_all_are_counted() -> None:
    data = folded(*(replica(0.0, 1.0, "decode", number=number) for number in range(12)), replicas=8)
    assert [track["name"] for track in data["tracks"]] == ["trainer", *(f"replica {n}" for n in range(8))]
    assert (data["replicas"], data["replicas_kept"]) == (12, 8)
