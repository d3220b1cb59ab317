import pytest

from areal_sim.simulation import Simulation
from interfaces.conformance import InvariantViolation, check_trace
from interfaces.errors import TraceError
from interfaces.scenario_file import load, to_json
from interfaces.trace import SCHEMA, Header, TraceWriter

SMALL = ("workload.batch_size=8", "workload.group_size=2", "run.steps=4", "run.warmup_steps=0")


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    import json  # noqa: PLC0415

    resolved = load("areal/table7", SMALL)
    path = tmp_path_factory.mktemp("run") / "trace.jsonl"
    writer = TraceWriter(path, Header(SCHEMA, "sim", 0, json.loads(to_json(resolved)), "0"))
    Simulation(resolved, writer).run()
    writer.close()
    return path


def test_simulated_run_keeps_all_laws_and_replays(trace):
    summary = check_trace(trace)
    assert (summary.steps, summary.ended) == (4, "steps")
    assert summary.trained_groups == 32
    assert "all laws hold" in str(summary)


def edited(trace, tmp_path, change):
    lines = trace.read_text().splitlines()
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(change(lines)) + "\n")
    return path


def first(lines, piece):
    return next(number for number, line in enumerate(lines) if piece in line)


EDITS = {
    "another step": lambda lines: [x.replace('"step":1', '"step":7') if '"Train"' in x else x for x in lines],
    "an action less": lambda lines: [x for x in lines if '"Publish"' not in x],
    "an event less": lambda lines: [
        x for n, x in enumerate(lines) if n != first(lines, '"TrainingFinished"')
    ],
    "an event twice": lambda lines: (
        lines[: first(lines, '"RolloutFin') + 1] + lines[first(lines, '"RolloutFin') :]
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_edited_trace_is_found_out(trace, tmp_path, edit):
    with pytest.raises(InvariantViolation):
        check_trace(edited(trace, tmp_path, EDITS[edit]))


def test_trace_cut_short_is_checked_as_far_as_it_goes(trace, tmp_path):
    summary = check_trace(edited(trace, tmp_path, lambda lines: lines[: len(lines) // 2]))
    assert summary.ended is None
    assert "cut short" in str(summary)


def test_no_trace(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("{}\n")
    with pytest.raises(TraceError):
        check_trace(path)
