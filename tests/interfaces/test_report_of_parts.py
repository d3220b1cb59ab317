"""Reports of runs that start up slowly, or that go on after a kill."""

import json

from interfaces import actions, events
from interfaces.report import ReportBuilder
from interfaces.rollout import Segment
from interfaces.telemetry import Usage
from interfaces.trace import SCHEMA, Header, TraceWriter, read_trace


def usage(at: float, **rollout_s: float) -> Usage:
    return Usage(at, rollout_s, {"train": at}, 0, 0, 0, 0, 0.0, 0, 0.0, 0.0, 0)


def one_step(builder: ReportBuilder, begin: float) -> dict:
    """Rollout 7 trains within two seconds."""
    builder.fed(events.RunStarted(begin, (0,), 3), [actions.Train(3, 3, (1,), (7,), None, True)])
    builder.telemetry(usage(begin + 2.0, decode=1.5, starting=begin))
    builder.fed(events.TrainingFinished(begin + 2.0, 3, True), [])
    return builder.build()


def held(*rollouts: int) -> Header:
    """A header as a resumed run writes it."""
    return Header(SCHEMA, "real", 0, {}, "0", tuple((rollout, 10, ((2, 5), (3, 1))) for rollout in rollouts))


def test_what_starting_up_took_is_no_part_of_the_run():
    builder = ReportBuilder(0)
    builder.resume(held(7))
    builder.telemetry(usage(50.0, starting=50.0))
    report = one_step(builder, 50.0)
    assert report["time_share"]["rollout"] == {"decode": 1.0, "starting": 0.0}
    assert report["sim_time_s"] == 52.0
    assert report["step_time_s"]["mean"] == 2.0


def test_rollouts_of_before_the_kill_are_counted():
    builder = ReportBuilder(0)
    builder.resume(held(7))
    report = one_step(builder, 0.0)
    assert (report["trained_rollouts"], report["trained_tokens"]) == (1, 16)
    assert report["staleness"]["max"] == 1


def test_a_header_comes_back_with_what_was_held(tmp_path):
    path = tmp_path / "trace.jsonl.gz"
    TraceWriter(path, held(7, 8)).close()
    (header,) = read_trace(path)
    builder = ReportBuilder(0)
    builder.resume(header)
    builder.event(events.RunStarted(0.0, (0,), 3))
    builder.action(actions.Discard(1, (7, 8), (), "stale"))
    assert builder.drops == {"stale": 1}
    assert Segment(*header.held[1][2][0]) == Segment(2, 5)


def test_a_run_from_its_start_has_no_such_key(tmp_path):
    path = tmp_path / "trace.jsonl"
    TraceWriter(path, Header(SCHEMA, "sim", 0, {}, "0")).close()
    assert "held" not in json.loads(path.read_text())
