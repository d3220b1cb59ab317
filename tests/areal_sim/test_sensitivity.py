"""Sensitivity: effects that can be computed by hand come out, and every uncertain parameter is there."""

import json
from pathlib import Path
from typing import Any

import pytest
from calibrated import costs
from small_runs import small
from typer.testing import CliRunner

from areal_sim.__main__ import app
from areal_sim.sensitivity import factors
from areal_sim.simulation import Simulation
from interfaces.calibration import Estimate, write_calibration
from interfaces.distributions import Distribution, Empirical, Gamma, LogNormal, Mixture, MixturePart
from interfaces.scenario import Resolved

TOML = """
[run]
steps = 4
warmup_steps = 1
[cluster]
hardware = "h800"
rollout_gpus = 1
trainer_gpus = 1
[model]
name = "qwen2.5-1.5b"
[workload]
batch_size = 4
group_size = 1
response_tokens = {type = "constant", value = 300.0}
[policy]
name = "sync"
[cost]
model = "constant"
decode_step_s = 0.01
train_s = 1.0
"""


def sensitivity(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    (tmp_path / "s.toml").write_text(TOML)
    done = CliRunner().invoke(
        app, ["sensitivity", str(tmp_path / "s.toml"), "--json", "--jobs", "1", *arguments]
    )
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    data: dict[str, Any] = json.loads(done.stdout)
    return data


def test_a_synchronous_step_splits_as_its_times_do(tmp_path: Path) -> None:
    """3 s of decoding, 1 s of training: +-20 % of a decode step are +-15 % of the step, of training +-5 %."""
    data = sensitivity(tmp_path, "--metric", "step_time")
    rows = {row["parameter"]: row for row in data["rows"]}
    assert data["base"] == pytest.approx(4.0, rel=0.01)
    for name, effect in (("cost.decode_step_s", 0.15), ("workload.response_tokens.value", 0.075),
                         ("cost.train_s", 0.05)):  # fmt: skip
        assert rows[name]["ratio_low"] == pytest.approx(1.0 - effect, rel=2e-3), name
        assert rows[name]["ratio_high"] == pytest.approx(1.0 + effect, rel=2e-3), name
    assert [row["parameter"] for row in data["rows"]][:3] == [
        "cost.decode_step_s", "workload.response_tokens.value", "cost.train_s",
    ]  # fmt: skip


def test_the_tornado_and_its_data_are_written(tmp_path: Path) -> None:
    data = sensitivity(tmp_path, "--out", str(tmp_path / "out"))
    assert json.loads((tmp_path / "out/sensitivity.json").read_text()) == data
    assert "tornado" in (tmp_path / "out/sensitivity.html").read_text()


def test_the_table_names_value_and_range(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(TOML)
    text = CliRunner().invoke(app, ["sensitivity", str(tmp_path / "s.toml"), "--jobs", "1"]).stdout
    assert "effective throughput" in text
    assert "0.008 to 0.012" in text


def physical(**sections: dict[str, Any]) -> Resolved:
    cost = {"model": "roofline", "decode_step_s": None, "train_s": None}
    return small(**{"cost": cost, **sections})


def test_every_efficiency_is_there_and_stays_possible(tmp_path: Path) -> None:
    resolved = physical()
    found = {factor.name: factor for factor in factors(resolved, tmp_path)}
    for name in ("decode_weight_bandwidth_share", "training_flops_share", "step_overhead_s"):
        assert f"hardware.efficiencies.{name}" in found
    for factor in found.values():
        assert factor.low <= factor.value <= factor.high, factor.name
        if factor.name.endswith("_share"):
            assert factor.high <= 1.0
        if factor.name.startswith("hardware.efficiencies"):
            key = factor.name.rpartition(".")[2]
            assert getattr(factor.at_low.hardware.efficiencies, key) == factor.low
            assert getattr(factor.at_high.hardware.efficiencies, key) == factor.high


def test_a_lower_efficiency_is_slower(tmp_path: Path) -> None:
    resolved = physical(run={"steps": 3}, policy={"name": "sync"})
    found = {factor.name: factor for factor in factors(resolved, tmp_path)}
    factor = found["hardware.efficiencies.training_flops_share"]
    slow, fast = (Simulation(end).run()["step_time_s"]["mean"] for end in (factor.at_low, factor.at_high))
    assert slow > fast


def test_calibrated_costs_move_over_their_intervals(tmp_path: Path) -> None:
    made = costs()
    step = Estimate(value=0.02, low=0.015, high=0.03)
    decode = made.parts["decode"]
    decode = decode.model_copy(update={"parameters": {**decode.parameters, "step_s": step}})
    made = made.model_copy(update={"parts": {**made.parts, "decode": decode}})
    (tmp_path / "cost.json").write_text(write_calibration(made))
    resolved = physical(
        cost={"model": "fitted", "file": str(tmp_path / "cost.json"), "decode_step_s": None, "train_s": None},
        run={"steps": 2},
        policy={"name": "sync"},
    )
    found = {factor.name: factor for factor in factors(resolved, tmp_path)}
    factor = found["cost.json: decode.step_s"]
    assert (factor.low, factor.high) == (0.015, 0.03)
    times = [
        Simulation(end).run()["step_time_s"]["mean"] for end in (factor.at_low, resolved, factor.at_high)
    ]
    assert times[2] - times[1] == pytest.approx(100 * 0.01, rel=1e-6)  # 100 tokens, 10 ms more a step
    assert times[1] - times[0] == pytest.approx(100 * 0.005, rel=1e-6)
    assert "cost.json: load.fixed_s" not in found  # an interval of no width: nothing to vary


PARTS = (
    MixturePart(weight=3.0, median=50.0, sigma=0.4),
    MixturePart(weight=1.0, median=400.0, sigma=0.5),
)


@pytest.mark.parametrize(
    ("law", "names"),
    [
        (LogNormal(type="lognormal", median=100.0, sigma=0.5), {"median", "sigma"}),
        (Gamma(type="gamma", mean=100.0, shape=2.0), {"mean", "shape"}),
        (Mixture(type="mixture", parts=PARTS), {"medians (scale)", "parts[0].weight"}),
    ],
    ids=lambda value: getattr(value, "type", ""),
)
def test_every_form_of_length_is_varied(law: Distribution, names: set[str], tmp_path: Path) -> None:
    resolved = small(workload={"response_tokens": law.model_dump()})
    prefix = "workload.response_tokens."
    found = {f.name.removeprefix(prefix): f for f in factors(resolved, tmp_path) if f.name.startswith(prefix)}
    assert set(found) == names
    for factor in found.values():
        assert factor.at_low != factor.at_high


def test_measured_lengths_are_scaled(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("n\n" + "\n".join(str(n) for n in range(50, 150)) + "\n")
    law = Empirical(type="empirical", file=str(tmp_path / "l.csv"), column="n")
    resolved = small(workload={"response_tokens": law.model_dump()})
    factor = next(f for f in factors(resolved, tmp_path) if f.name == "workload.response_tokens (scale)")
    low, high = (Simulation(end).run()["mean_length"]["admitted"] for end in (factor.at_low, factor.at_high))
    assert high / low == pytest.approx(1.1 / 0.9, rel=0.02)
