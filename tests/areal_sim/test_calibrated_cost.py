"""Calibrated costs in the simulator: the coefficients are used, the floor holds, extrapolation is told."""

import json
from pathlib import Path

import numpy as np
import pytest
from calibrated import TRUE, costs, decode_s
from cost_scenarios import resolved, shipped_pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import small
from typer.testing import CliRunner

from areal_sim.__main__ import app
from areal_sim.cost import build_cost
from areal_sim.cost.calibrated import CalibratedCost
from areal_sim.simulation import Simulation
from interfaces.calibration import Calibration, Estimate, write_calibration
from interfaces.errors import ScenarioError
from interfaces.scenario import Resolved


def slow_enough(made: Calibration | None = None, engine: str = "vllm") -> CalibratedCost:
    engines = {"name": engine, "max_num_seqs": 64}
    return CalibratedCost(resolved(model="qwen2.5-1.5b", engine=engines), made or costs())


def test_every_part_is_the_fitted_one() -> None:
    cost = slow_enough()
    for batch, context in ((1, 100), (64, 6400), (200, 1e6)):
        step = cost.decode_base_s(batch) + cost.decode_per_context_token_s * context
        assert step == pytest.approx(decode_s(batch, context))
    # A vLLM prefill rides in a decode step, which `call_s` contains; in SGLang it takes a step of its own.
    assert cost.prefill_s(1000, 5e5, 2) == pytest.approx(0.1 + 0.05)
    assert slow_enough(engine="sglang").prefill_s(1000, 5e5, 2) == pytest.approx(0.01 + 0.1 + 0.05)
    assert cost.prefill_s(0, 0.0) == 0.0
    assert cost.publish_s() == pytest.approx(0.2)
    assert cost.load_s(3) == pytest.approx(0.3)
    lengths = np.array([1000, 3000, 500, 500])
    time = cost.training_step_s(lengths, minibatches=2)
    expected = 2 * 0.5 + 0.1 * time.microbatches + 1e-3 * 5000 + 1e-6 * (1e6 + 9e6 + 2 * 25e4)
    assert time.total_s == pytest.approx(expected)
    assert sum(time.minibatch_s) == pytest.approx(expected)
    part = cost.training_step_s(lengths, minibatches=1, update=False)
    assert part.update_s == 0.0


def test_a_table_is_linear_between_its_knots_and_goes_on_beyond() -> None:
    made = costs()
    parameters = {
        f"batch_{n}_s": Estimate(value=v, low=v, high=v) for n, v in ((1, 0.01), (8, 0.024), (32, 0.03))
    }
    decode = made.parts["decode"].model_copy(update={"parameters": parameters, "knots": (1, 8, 32)})
    cost = slow_enough(made.model_copy(update={"parts": {"decode": decode}}))
    found = [cost.decode_base_s(n) for n in (1, 2, 8, 20, 32, 56)]
    assert found == pytest.approx([0.01, 0.012, 0.024, 0.027, 0.03, 0.036])


@settings(max_examples=60)
@given(shipped_pairs, st.integers(1, 64), st.integers(1, 20_000))
def test_free_costs_end_at_the_floor(pair: Resolved, n: int, length: int) -> None:
    """Coefficients of 0 (a wrong calibration) leave the physical bounds, on every shipped machine."""
    nothing = {
        name: part.model_copy(
            update={"parameters": {key: Estimate(value=0.0, low=0.0, high=0.0) for key in TRUE[name]}}
        )
        for name, part in costs().parts.items()
    }
    cost = CalibratedCost(pair, costs().model_copy(update={"parts": nothing}))
    context = n * length
    step = cost.decode_base_s(n) + cost.decode_per_context_token_s * context
    assert step >= cost.floor.decode_floor_s(n, context) * (1 - 1e-12)
    squared = float(n * length**2)
    assert cost.prefill_s(context, squared, n) >= cost.floor.prefill_floor_s(context, squared)
    lengths = np.full(n, length)
    assert cost.training_step_s(lengths).total_s >= cost.floor.training_floor_s(context, squared) * (
        1 - 1e-12
    )


def scenario(tmp_path: Path, made: Calibration) -> Resolved:
    (tmp_path / "cost.json").write_text(write_calibration(made))
    file = str(tmp_path / "cost.json")
    return small(
        run={"steps": 3},
        cost={"model": "fitted", "file": file, "decode_step_s": None, "train_s": None},
    )  # fmt: skip


def test_inside_the_range_nothing_is_told(tmp_path: Path) -> None:
    report = Simulation(scenario(tmp_path, costs())).run()
    assert report["outside_calibration"] == []
    assert report["cost_model"].startswith(
        "calibrated (decode, prefill, train, load, publish) from test.jsonl"
    )
    assert "0.32.0" in report["cost_model"]


def test_what_lies_outside_the_range_is_told(tmp_path: Path) -> None:
    made = costs(
        {"decode": {"sequences": (1, 4), "context_tokens": (1, 500)}, "train": {"tokens": (1e5, 1e6)}}
    )
    told = Simulation(scenario(tmp_path, made)).run()["outside_calibration"]
    assert any("decode: sequences 8 is outside the measured 1 to 4" in line for line in told), told
    assert any("decode: context_tokens" in line for line in told)
    assert any("train: tokens 800 is outside the measured 100,000 to 1,000,000" in line for line in told)
    assert not any("prefill" in line or "load" in line for line in told)


def test_another_model_or_machine_is_told(tmp_path: Path) -> None:
    made = costs()
    about = made.about[0].model_copy(update={"hardware": "cpu", "model": "letter_chain", "engine": "sglang"})
    told = Simulation(scenario(tmp_path, made.model_copy(update={"about": (about,)}))).run()
    lines = told["outside_calibration"]
    assert len(lines) == 3
    assert "costs were measured for hardware cpu, the scenario has H800-SXM" in lines


TOML = """
[run]
steps = 2
[cluster]
hardware = "h800"
rollout_gpus = 1
trainer_gpus = 1
[model]
name = "qwen2.5-1.5b"
[workload]
batch_size = 4
group_size = 1
response_tokens = {type = "constant", value = 100.0}
[policy]
name = "sync"
[cost]
file = "cost.json"
"""


def test_the_command_warns_on_stderr_and_in_the_report(tmp_path: Path) -> None:
    made = costs({"decode": {"sequences": (1, 2), "context_tokens": (1, 1e6)}})
    (tmp_path / "cost.json").write_text(write_calibration(made))
    (tmp_path / "s.toml").write_text(TOML)
    done = CliRunner().invoke(app, ["run", str(tmp_path / "s.toml"), "--json"])
    assert done.exit_code == 0, done.output
    assert "warning: decode: sequences 4 is outside the measured 1 to 2" in done.stderr
    assert json.loads(done.stdout)["outside_calibration"]


@pytest.mark.parametrize("text", ["{}", "no json", '{"schema_version": 2}'])
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "cost.json").write_text(text)
    file = str(tmp_path / "cost.json")
    with pytest.raises(ScenarioError, match=r"cost\.file.*is not a file of calibrated costs"):
        build_cost(resolved(cost={"file": file}))
