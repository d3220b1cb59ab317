"""Counterfactual replay: nothing changed gives the run again, a change gives what a fresh run would be."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calibrated import costs
from small_runs import exponential, small
from typer.testing import CliRunner

from areal_sim.__main__ import app
from areal_sim.executor.task import header
from areal_sim.replay.costs import costs_of
from areal_sim.replay.recorded import Recorded, survival
from areal_sim.replay.workload import RecordedWorkload
from areal_sim.simulation import Simulation
from interfaces.calibration import write_calibration
from interfaces.errors import ScenarioError, TraceError
from interfaces.scenario import Resolved
from interfaces.scenario_file import changed
from interfaces.setup import policy_of
from interfaces.trace import TraceWriter

AREAL = {"name": "areal", "max_staleness": 2}
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "plain": {},
    "rewards that take time, two workers": {
        "reward": {"latency_s": exponential(0.5), "workers": 2, "difficulty_spread": 0.3}
    },
    "failures": {"faults": {"rollout_failure_probability": 0.1}},
    "a replica dies": {"faults": {"replica": ({"replica": 1, "at_s": 5.0, "down_s": 6.0},)}},
    "turns": {
        "workload": {
            "turns": {
                "number": {"type": "constant", "value": 3.0},
                "tool_time_s": exponential(0.3),
                "tool_tokens": {"type": "constant", "value": 10.0},
            }
        }
    },
    "aborts that lose work": {"policy": {"name": "kimi_partial"}, "cluster": {"trainer_gpus": 2}},
    "more members than needed": {"policy": {"name": "april"}, "cluster": {"trainer_gpus": 2}},
}


def scenario(**sections: dict[str, Any]) -> Resolved:
    base: dict[str, dict[str, Any]] = {
        "run": {"steps": 8, "warmup_steps": 1},
        "cluster": {"hardware": "h800", "rollout_gpus": 2, "trainer_gpus": 1},
        "workload": {
            "batch_size": 8, "group_size": 2, "response_tokens": exponential(200.0),
            "prompt_tokens": exponential(50.0),
        },
        "engine": {"max_num_seqs": 16},
        "policy": AREAL,
    }  # fmt: skip
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values} if name != "policy" else values
    return small(**base)


def record(
    resolved: Resolved, path: Path, backend: str = "sim", told: Resolved | None = None
) -> dict[str, Any]:
    """Simulate and write the trace; `told` is the scenario its header has."""
    head = header(told or resolved)._replace(backend=backend)
    writer = TraceWriter(path, head)
    report = Simulation(resolved, writer).run()
    writer.close()
    return report


def replayed(recorded: Recorded, resolved: Resolved, writer: TraceWriter | None = None) -> dict[str, Any]:
    redundancy = policy_of(resolved).capacity.redundancy
    workload = RecordedWorkload(resolved.scenario, resolved.where, redundancy, recorded)
    return Simulation(resolved, writer, workload=workload).run()


def same(report: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in report.items() if key != "wall_s"}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_simulated_run_comes_again_byte_for_byte(variant: str, tmp_path: Path) -> None:
    first = record(scenario(**VARIANTS[variant]), tmp_path / "a.jsonl")
    recorded = Recorded(tmp_path / "a.jsonl")
    writer = TraceWriter(tmp_path / "b.jsonl", recorded.header)
    again = replayed(recorded, recorded.resolved, writer)
    writer.close()
    assert same(again) == same(first)
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


@pytest.mark.parametrize(
    "sets",
    [
        ["policy.max_staleness=0"],
        ["policy.max_staleness=8"],
        ["cluster.rollout_gpus=4", "run.steps=11"],
        ["engine.max_num_seqs=3"],
        ['policy={name="sync"}'],
        ['policy={name="kimi_partial"}', "cluster.trainer_gpus=2"],
        ["workload.group_size=4"],
    ],
    ids=" ".join,
)
def test_a_changed_simulated_run_is_what_a_fresh_one_would_be(sets: list[str], tmp_path: Path) -> None:
    """The strongest check there is: for a simulated run the counterfactual can be run for itself."""
    record(scenario(), tmp_path / "a.jsonl")
    recorded = Recorded(tmp_path / "a.jsonl")
    other = changed(recorded.resolved, sets)
    assert same(replayed(recorded, other)) == same(Simulation(other).run())


def test_the_report_of_the_run_is_that_of_its_trace(tmp_path: Path) -> None:
    first = record(scenario(), tmp_path / "a.jsonl")
    again = Recorded(tmp_path / "a.jsonl").report()
    for key in (
        "step_time_s",
        "staleness",
        "trained_tokens",
        "effective_throughput_tokens_per_s",
        "bottleneck",
    ):
        assert again[key] == first[key], key


@pytest.fixture
def as_if_real(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A run told as a real one, whose scenario knows neither its lengths nor its rewards nor its costs."""
    (tmp_path / "cost.json").write_text(write_calibration(costs()))
    cost = {"model": "fitted", "file": str(tmp_path / "cost.json"), "decode_step_s": None, "train_s": None}
    changes: dict[str, Any] = {
        "run": {"steps": 16, "warmup_steps": 2},
        "reward": {"latency_s": exponential(0.4), "workers": 2, "success_rate": 0.8},
        "trainer": {"minibatches": 2},
    }
    truth = scenario(**changes, cost=cost)
    told = scenario(
        **{**changes, "reward": {"success_rate": 0.1, "workers": 2}},
        workload={"response_tokens": {"type": "constant", "value": 7.0}},
        cost={**cost, "file": None},
    )
    report = record(truth, tmp_path / "trace.jsonl", "real", told)
    return tmp_path / "trace.jsonl", report


def test_a_real_run_comes_again_within_the_noise(as_if_real: tuple[Path, dict[str, Any]]) -> None:
    """Lengths and rewards are its own; costs are fitted to its trace, so times differ a little."""
    path, truth = as_if_real
    recorded = Recorded(path)
    resolved = recorded.resolved
    cost, notes = costs_of(path, resolved, real=True)
    assert "calibrated" in cost.provenance, notes
    workload = RecordedWorkload(resolved.scenario, resolved.where, 0, recorded)
    again = Simulation(resolved, cost=cost, workload=workload).run()
    for key in ("effective_throughput_tokens_per_s", "trained_tokens"):
        assert again[key] == pytest.approx(truth[key], rel=0.08), key
    assert again["step_time_s"]["mean"] == pytest.approx(truth["step_time_s"]["mean"], rel=0.08)
    assert again["staleness"]["mean"] == pytest.approx(truth["staleness"]["mean"], abs=0.25)
    assert workload.drawn["recorded"] > 200


def test_outcomes_of_a_real_run_are_its_own(as_if_real: tuple[Path, dict[str, Any]]) -> None:
    path, _ = as_if_real
    recorded = Recorded(path)
    resolved = recorded.resolved
    workload = RecordedWorkload(resolved.scenario, resolved.where, 0, recorded)
    rewards, latencies = [], []
    for (prompt, attempt, member), outcome in recorded.finished.items():
        if (prompt, attempt, member) in recorded.unrewarded:
            continue
        draw = workload.group(prompt, attempt)
        assert draw.response_tokens[member] == outcome.tokens
        assert draw.prompt_tokens == recorded.prompt_tokens[prompt]
        assert draw.reward_latency_s is not None
        rewards.append(draw.rewards[member])
        latencies.append(draw.reward_latency_s[member])
    assert np.mean(rewards) == pytest.approx(0.8, abs=0.08)
    assert min(latencies) > 0.0


def test_unfinished_rollouts_of_a_real_run_become_longer_than_they_came_to(
    as_if_real: tuple[Path, dict[str, Any]],
) -> None:
    path, _ = as_if_real
    recorded = Recorded(path)
    assert recorded.unfinished, "the run ends with rollouts under way"
    (prompt, attempt, member) = next(iter(recorded.unfinished))
    recorded.unfinished[prompt, attempt, member] = 400
    resolved = recorded.resolved
    workload = RecordedWorkload(resolved.scenario, resolved.where, 0, recorded)
    assert workload.group(prompt, attempt).response_tokens[member] > 400
    assert workload.drawn["unfinished"] >= 1
    beyond = [n for far in range(5000, 5200) for n in workload.group(far).response_tokens]
    seen = [outcome.tokens for outcome in recorded.finished.values()]
    assert set(beyond) <= set(seen)
    assert np.mean(beyond) == pytest.approx(np.mean(seen), rel=0.15)
    assert workload.drawn["never begun"] >= 400


def test_survival_is_kaplan_meier() -> None:
    """Klein and Moeschberger's definition by hand: 2 of 6 end at 6 (share 4/6), one is cut at 7, ..."""
    curve = survival([6, 6, 10, 13], [7, 13])
    assert [at for at, _ in curve] == [6, 10, 13]
    assert [share for _, share in curve] == pytest.approx([4 / 6, 4 / 6 * 2 / 3, 4 / 6 * 2 / 3 * 1 / 2])


def test_survival_undoes_the_bias_of_cutting_off_long_rollouts() -> None:
    chance = np.random.default_rng(3)
    lengths = chance.exponential(100.0, 20_000)
    cuts = chance.exponential(150.0, 20_000)
    finished = [round(n) + 1 for n, cut in zip(lengths, cuts, strict=True) if n <= cut]
    curve = survival(finished, [round(cut) + 1 for n, cut in zip(lengths, cuts, strict=True) if n > cut])
    median = next(at for at, share in curve if share <= 0.5)
    assert median == pytest.approx(100.0 * np.log(2), rel=0.03)
    assert np.median(finished) < 50.0  # what ignoring the unfinished would say


def invoke(*arguments: str) -> Any:
    done = CliRunner().invoke(app, ["replay", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done


def test_the_command_shows_the_run_beside_the_prediction(tmp_path: Path) -> None:
    first = record(scenario(), tmp_path / "trace.jsonl.gz")
    text = invoke(str(tmp_path), "--set", "policy.max_staleness=0").stdout
    assert "recorded" in text
    assert "replayed" in text
    assert "policy.max_staleness=0" in text
    data = json.loads(invoke(str(tmp_path), "--set", "policy.max_staleness=0", "--json").stdout)
    for who in ("recorded", "replayed"):
        assert data[who]["step_time_s"]["mean"] == pytest.approx(first["step_time_s"]["mean"])
    assert data["changed"]["staleness"]["max"] == 0
    assert json.loads(invoke(str(tmp_path), "--json").stdout)["changed"] is None


def test_the_command_on_a_real_run(as_if_real: tuple[Path, dict[str, Any]]) -> None:
    done = invoke(str(as_if_real[0]), "--set", "policy.max_staleness=0")
    assert "Kaplan-Meier" in done.stdout


def test_what_cannot_be_replayed_is_refused(tmp_path: Path) -> None:
    record(scenario(), tmp_path / "trace.jsonl.gz")
    with pytest.raises(ScenarioError, match="max_stalness"):
        invoke(str(tmp_path), "--set", "policy.max_stalness=0")
    with pytest.raises(TraceError, match="no such run directory"):
        invoke(str(tmp_path / "nothing"))
    first_lines = gzip.decompress((tmp_path / "trace.jsonl.gz").read_bytes()).splitlines(keepends=True)[:3]
    (tmp_path / "short.jsonl").write_bytes(b"".join(first_lines))
    with pytest.raises(TraceError, match="no rollout finished"):
        Recorded(tmp_path / "short.jsonl")
