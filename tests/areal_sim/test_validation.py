"""The protocol of `areal-sim validate`: what may be fitted, what is scored, what is said about misses."""

import json
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from areal_sim.__main__ import main
from areal_sim.validation import predict, refit
from areal_sim.validation.page import page
from areal_sim.validation.plots import by_regime, scatter
from areal_sim.validation.predict import Scored, metrics
from areal_sim.validation.protocol import Protocol, Row, protocol
from areal_sim.validation.score import score, spearman
from interfaces.scenario_file import load, shipped

PLAN = protocol()


def raw() -> dict[str, Any]:
    return tomllib.loads((files("scenarios") / "measured" / "protocol.toml").read_text(encoding="utf-8"))


def test_two_free_parameters_a_pair_at_most() -> None:
    data = raw()
    assert Protocol.model_validate(data) == PLAN
    third = {**data["parameter"][1], "name": "a third one"}
    with pytest.raises(ValidationError, match="3 free parameters for H20"):
        Protocol.model_validate({**data, "parameter": [*data["parameter"], third]})


def test_a_parameter_has_one_value_in_all_scenarios_of_its_pair() -> None:
    for parameter in PLAN.parameter:
        for name in (name for name in shipped() if name.startswith(parameter.scenarios)):
            for key in parameter.keys:
                value: Any = load(name).scenario
                for part in key.split("."):
                    value = getattr(value, part)
                assert value == parameter.value, (name, key)


def test_every_run_can_be_simulated_and_is_needed() -> None:
    needed = {name for row in PLAN.row for name in row.runs}
    assert needed == {run.id for run in PLAN.run}
    for run in PLAN.run:
        load(run.scenario, run.set)


def test_every_shipped_experiment_is_a_run() -> None:
    experiments = {name for name in shipped() if name.startswith(("areal/", "published/"))}
    assert experiments == {run.scenario for run in PLAN.run}


def scored(published: float, predicted: float, **fields: Any) -> Scored:
    row = Row(
        id=fields.pop("id", "x"), suite="areal", what="what", published=published, metric="step_s", run="r",
        limit=0.1, regime=fields.pop("regime", "a"), suspect=fields.pop("suspect", ""),
    )  # fmt: skip
    return Scored(row, predicted, fields.pop("in_calibration", False))


def test_rows_that_were_fitted_on_or_are_in_doubt_are_not_scored() -> None:
    rows = [
        scored(10.0, 10.5), scored(20.0, 30.0), scored(1.0, 9.0, in_calibration=True),
        scored(1.0, 9.0, suspect="contradicts itself"),
    ]  # fmt: skip
    found = score(rows)
    assert found is not None
    assert (found.rows, found.hits, found.pairs, found.pairs_in_order) == (2, 1, 1, 1)
    assert found.mape == pytest.approx((0.05 + 0.5) / 2)
    assert found.worst.error == pytest.approx(0.5)
    assert score(rows[2:]) is None


def test_rank_correlation_shares_the_rank_of_equal_values() -> None:
    assert spearman([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]) == pytest.approx(1.0)
    assert spearman([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == pytest.approx(-1.0)
    assert spearman([1.0, 1.0, 2.0], [5.0, 6.0, 7.0]) == pytest.approx(0.866, abs=1e-3)
    assert spearman([1.0, 2.0], [4.0, 4.0]) == 0.0


def test_one_row_cannot_determine_two_parameters() -> None:
    rows = [row for row in PLAN.row if row.id == "verl/32_sync"]
    (left,) = refit.leave_one_out(PLAN, rows, 1)
    assert (left.values, left.error) == (None, None)


Simulated = Callable[..., dict[str, dict[str, float]]]


@pytest.fixture
def linear(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Sequence[str]]]:
    """No simulation: every metric of an asynchronous run is 100 + 10 times the reward latency."""
    asked: list[Mapping[str, Sequence[str]]] = []

    def simulate(
        _: Protocol, runs: Iterable[str], sets: Mapping[str, Sequence[str]], *__: object
    ) -> dict[str, dict[str, float]]:
        asked.append(sets)
        values = {}
        for name in runs:
            latency = float(next(iter(sets.get(name, ["x=20.0"]))).split("=")[1])
            synchronous = name.endswith(("/0", "_sync"))
            value = 100.0 if synchronous else 100.0 + 10.0 * latency
            values[name] = dict.fromkeys(
                ("throughput", "step_s", "generated", "generated_per_gpu_s", "train_s", "load_s"), value
            )
        return values

    monkeypatch.setattr(predict, "simulate", simulate)
    monkeypatch.setattr(refit, "simulate", simulate)
    return asked


@pytest.mark.usefixtures("linear")
def test_leaving_one_out_fits_the_parameter_to_the_other() -> None:
    """Ratios of 3.083 and 1.764: latencies 20.83 and 7.64 reproduce them, each without the other."""
    rows = [row for row in PLAN.row if row.id in PLAN.parameter[0].fitted_on]
    found = {left.row.id: left for left in refit.leave_one_out(PLAN, rows, 1)}
    assert found["table7/1"].values == {"reward latency": pytest.approx(20.83, rel=0.01)}
    assert found["fig5c/inf"].values == {"reward latency": pytest.approx(7.64, rel=0.01)}
    assert found["fig5c/inf"].error == pytest.approx(1.764 / 3.083 - 1, abs=0.01)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["areal-sim", "validate", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return int(end.value.code or 0), captured.out, captured.err

    return call


@pytest.mark.usefixtures("linear")
def test_json_has_every_row_and_what_it_was_used_for(cli: Callable[..., Any]) -> None:
    code, out, _ = cli("--json")
    rows = {row["id"]: row for row in json.loads(out)["rows"]}
    assert code == 0
    assert rows.keys() == {row.id for row in PLAN.row}
    assert rows["fig5c/inf"]["in_calibration"]
    assert not rows["fig5c/1"]["in_calibration"]
    assert rows["verl/128_stale_0"]["suspect"]


def test_a_row_left_out_moves_what_was_fitted_on_it(
    linear: list[Mapping[str, Sequence[str]]], cli: Callable[..., Any]
) -> None:
    code, out, err = cli("--suite", "areal", "--without", "fig5c/inf", "--json")
    assert code == 0
    assert "fig5c/inf" not in {row["id"] for row in json.loads(out)["rows"]}
    assert "reward latency: 7.6" in err
    assert any("reward.latency_s.value=7.6" in key for key in linear[-1]["fig5c/1"])


def test_what_cannot_be_left_out_is_refused(cli: Callable[..., Any]) -> None:
    code, _, err = cli("--without", "fig5c/3")
    assert code == 2
    assert "is not a row" in err
    code, _, err = cli("--without", "verl/32_sync")
    assert code == 2
    assert "1 rows for the 2 free parameters of H20 + vLLM" in err


@pytest.mark.usefixtures("linear")
def test_the_page_shows_misses_beside_hits_and_its_plots_every_row(
    cli: Callable[..., Any], tmp_path: Path
) -> None:
    assert cli("--page", tmp_path / "accuracy.md")[0] == 0
    text = (tmp_path / "accuracy.md").read_text()
    assert "**miss**" in text
    assert "in doubt" in text
    assert all(row.what in text for row in PLAN.row)
    for name in ("scatter", "by_regime"):
        assert (tmp_path / "images" / f"accuracy_{name}.svg").read_text().count("<circle") == len(PLAN.row)


def test_a_row_in_doubt_is_grey_and_one_fitted_on_is_hollow() -> None:
    drawn = scatter([scored(1.0, 2.0, in_calibration=True)])
    assert 'fill="none"' in drawn
    assert by_regime([scored(1.0, 1.1)]).count("<circle") == 1
    assert "what" in page(PLAN, [scored(1.0, 1.1)], [])


def test_metrics_of_a_synchronous_run() -> None:
    report = {
        "step_time_s": {"mean": 200.0}, "effective_throughput_tokens_per_s": 50.0,
        "generation_throughput_tokens_per_s": 40.0,
        "time_share": {"trainer": {"train": 0.25, "idle:rollouts": 0.75}},
    }  # fmt: skip
    found = metrics(load("published/verl_7b_32_sync"), report)
    assert found["train_s"] == 50.0
    assert found["generated_per_gpu_s"] == pytest.approx(40.0 / (32 * 0.75))
    assert found["load_s"] > 0
