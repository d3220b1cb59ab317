"""Series and histograms of a report: one row a step, every rollout counted once, few enough bins."""

from typing import Any

import pytest

from areal_report.terminal.output import flatten
from areal_sim.simulation import Simulation
from interfaces.scenario_file import load
from interfaces.statistics import Histogram, Lengths

SMALL = ("workload.batch_size=4", "workload.group_size=4", "run.steps=6", "run.warmup_steps=2")


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return Simulation(load("areal/table7", SMALL)).run()


def test_one_row_a_step_and_their_times_add_up(report: dict[str, Any]) -> None:
    rows = report["per_step"]
    assert [row["step"] for row in rows] == list(range(6))
    assert sum(row["step_time_s"] for row in rows) == pytest.approx(rows[-1]["at_s"])
    measured = rows[2:]
    assert sum(row["trained_tokens"] for row in measured) == report["trained_tokens"]
    assert sum(row["step_time_s"] for row in measured) / 4 == pytest.approx(report["step_time_s"]["mean"])


def test_staleness_of_the_steps_adds_up_to_that_of_the_run(report: dict[str, Any]) -> None:
    whole: dict[str, int] = {}
    for row in report["per_step"]:
        assert sum(row["staleness_histogram"].values()) == 16
        if row["step"] >= 2:
            for age, count in row["staleness_histogram"].items():
                whole[age] = whole.get(age, 0) + count
    assert whole == report["staleness"]["histogram"]


def test_the_utilisation_of_a_step_is_a_share(report: dict[str, Any]) -> None:
    for row in report["per_step"]:
        assert 0 < row["rollout_utilisation"] <= 1
        assert 0 < row["trainer_utilisation"] <= 1


def test_lengths_count_every_rollout(report: dict[str, Any]) -> None:
    assert sum(report["length_histogram"]["trained"].values()) == report["trained_rollouts"] == 64


def test_no_series_in_a_flat_row(report: dict[str, Any]) -> None:
    assert not [key for key in flatten(report) if "histogram" in key or "per_step" in key]


def test_bins_of_lengths() -> None:
    lengths = Lengths()
    lengths.add([0, 31])
    lengths.add([32, 5000])
    assert lengths.width() == 128
    assert lengths.counts(128) == {"0": 3, "4992": 1}
    assert Lengths().counts(Lengths().width()) == {}


def test_recent_counts_are_taken_once() -> None:
    histogram = Histogram()
    histogram.add(1, 3)
    assert histogram.take_recent().counts() == {"1": 3}
    assert histogram.take_recent().mean() is None
    assert histogram.counts() == {"1": 3}
