"""`areal-sim zoo`: all systems on one workload, and what the scenario says about each."""

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from areal_sim.__main__ import main
from areal_sim.commands.zoo import Entry, front
from areal_sim.executor.task import Outcome
from interfaces.policies.registry import presets
from interfaces.scenario_file import load

SMALL = [
    "areal/table7", "--set", "workload.batch_size=8", "--set", "workload.group_size=4", "--set",
    "run.steps=4", "--set", "run.warmup_steps=1", "--jobs", "1",
]  # fmt: skip
Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def zoo(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs `areal-sim zoo` in this process: exit code, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["areal-sim", "zoo", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return int(end.value.code or 0), captured.out, captured.err

    return call


def test_every_system_runs_on_one_workload(zoo: Cli, tmp_path: Path) -> None:
    code, out, err = zoo(*SMALL, "--out", tmp_path, "--csv", tmp_path / "zoo.csv")
    assert (code, err) == (0, "")
    rows = list(csv.DictReader((tmp_path / "zoo.csv").read_text().splitlines()))
    assert {row["policy.name"] for row in rows} == set(presets())
    assert all(row["error"] == "" for row in rows)
    speeds = [float(row["effective_throughput_tokens_per_s"]) for row in rows]
    assert speeds == sorted(speeds, reverse=True)
    assert {row["gpus"] for row in rows} == {"8"}
    assert rows[0]["front"] == "True"
    assert all(row["policy.name"] in out for row in rows)
    assert (tmp_path / "sweep.csv").read_text() == (tmp_path / "zoo.csv").read_text()


def test_the_scenarios_own_policy_keeps_its_parameters(zoo: Cli) -> None:
    arguments = ["--policies", "areal,areal_strict", "--set", "policy.max_staleness=0", "--json"]
    code, out, _ = zoo(*SMALL, *arguments)
    systems = {row["policy"]: row for row in json.loads(out)["systems"]}
    assert code == 0
    assert systems["areal"]["report"]["staleness"]["max"] == 0
    assert systems["areal_strict"]["report"]["staleness"]["max"] > 0


def test_an_unknown_system_is_refused(zoo: Cli) -> None:
    code, out, err = zoo(*SMALL, "--policies", "areal,prime_lr")
    assert (code, out) == (2, "")
    assert "--policies = 'prime_lr' is not a scheduling policy" in err
    assert "prime_rl" in err


def test_a_system_that_cannot_run_here_is_named_and_the_others_run(zoo: Cli) -> None:
    """Three and five GPUs make eight, which are no multiple of three trainer ranks."""
    split = ["cluster.rollout_gpus=5", "cluster.trainer_gpus=3", "trainer.pipeline_parallel=3",
             "trainer.tensor_parallel=1"]  # fmt: skip
    sets = [part for key in split for part in ("--set", key)]
    code, out, err = zoo(*SMALL, *sets, "--policies", "areal,verl_sync")
    assert code == 1
    assert "failed" in out
    assert "error: verl_sync: " in err
    assert "multiple of" in err


def test_a_shared_scenario_is_split_for_systems_with_two_pools(zoo: Cli) -> None:
    sets = ["policy={name='verl_sync'}", "cluster.rollout_gpus=8", "cluster.trainer_gpus=8"]
    arguments = [part for key in sets for part in ("--set", key)]
    code, out, err = zoo(*SMALL, *arguments, "--policies", "verl_sync,one_step_off", "--json")
    assert (code, err) == (0, "")
    assert {row["report"]["gpus"] for row in json.loads(out)["systems"]} == {8}


def test_gpus_are_shared_by_what_the_policy_does_not_by_its_name() -> None:
    """`verl_sync` has no "colocated" in its name, and holds rollout and trainer state on the same GPUs."""
    sets = ["policy={name='verl_sync'}", "cluster.rollout_gpus=8", "cluster.trainer_gpus=4"]
    with pytest.raises(Exception, match="rollout_gpus = 8"):
        load("areal/table7", sets)


def test_the_front_has_what_nothing_beats() -> None:
    def entry(name: str, staleness: float, speed: float) -> Entry:
        report = {"staleness": {"mean": staleness}, "effective_throughput_tokens_per_s": speed}
        return Entry(name, Outcome(report))

    entries = [
        entry("slow", 0.0, 1.0), entry("good", 1.0, 3.0), entry("beaten", 1.0, 2.0), entry("old", 4.0, 3.0),
        entry("fast", 5.0, 4.0), Entry("failed", Outcome(None, "no", 1)), Entry("interrupted", None),
    ]  # fmt: skip
    assert front(entries) == {"slow", "good", "fast"}
