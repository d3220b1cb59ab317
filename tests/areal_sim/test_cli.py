"""The command line: what it prints, what it writes, what it refuses, and how it ends."""

import csv
import gzip
import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from areal_report import run_directory
from areal_sim.__main__ import main
from areal_sim.commands import recording
from interfaces.scenario_file import from_json, load
from interfaces.trace import read_trace

SMALL = [
    "--set", "workload.batch_size=4", "--set", "workload.group_size=4", "--set", "run.steps=4",
    "--set", "run.warmup_steps=1", "--set", "policy.max_concurrent_groups=4",
]  # fmt: skip
STALLING = ["--set", "policy.filter_zero_variance=true", "--set", "reward.success_rate=0.0"]
KEYS = {
    "steps", "sim_time_s", "step_time_s", "effective_throughput_tokens_per_s", "generated_tokens",
    "trained_tokens", "dropped_tokens", "dropped_by_cause", "recomputed_tokens", "buffer", "staleness",
    "token_staleness", "utilisation",
    "idle_by_cause", "blocked_by", "mean_length", "bottleneck", "floor", "wall_s",
}  # fmt: skip
NESTED = {
    "step_time_s": {"mean", "p50", "p95"},
    "staleness": {"mean", "p50", "p95", "max", "histogram"},
    "token_staleness": {"mean", "max"},
    "utilisation": {"rollout", "trainer"},
    "idle_by_cause": {"rollout", "trainer"},
    "mean_length": {"admitted", "trained", "lower_bound"},
    "buffer": {"max_rollouts", "max_tokens"},
    "starving": {"prompts", "most_starts"},
}


class Result(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs `areal-sim` in this process."""

    def call(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["areal-sim", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        code = end.value.code
        return Result(code if isinstance(code, int) else 0, captured.out, captured.err)

    return call


def one_message(result: Result) -> bool:
    lines = result.err.strip().splitlines()
    return len(lines) == 1 and lines[0].startswith("error: ") and "Traceback" not in result.err


def start(*arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "areal_sim", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


# ---- run ------------------------------------------------------------------------------------------------


def test_run_prints_a_table_with_the_physical_limit(cli: Cli) -> None:
    result = cli("run", "areal/table7", *SMALL)
    assert result.code == 0
    for word in (
        "step time",
        "at least",
        "effective throughput",
        "at most",
        "staleness",
        "idle",
        "bottleneck",
    ):
        assert word in result.out
    assert result.err == ""


def test_json_is_one_object_with_every_key_of_the_contract(cli: Cli) -> None:
    result = cli("run", "areal/table7", *SMALL, "--json")
    report = json.loads(result.out)
    assert report.keys() >= KEYS
    for key, below in NESTED.items():
        assert report[key].keys() >= below, key
    assert report["blocked_by"].keys() >= {"concurrency", "staleness_gate", "kv", "data"}
    assert report["steps"] == 4
    assert not report["partial"]


def test_json_has_no_nan_or_infinity(cli: Cli) -> None:
    result = cli("run", "areal/table7", *SMALL, "--set", "policy.max_staleness=inf", "--json")

    def refuse(word: str) -> None:
        raise AssertionError(word)

    json.loads(result.out, parse_constant=refuse)


def test_prediction_is_never_better_than_the_physical_limit(cli: Cli) -> None:
    report = json.loads(cli("run", "areal/table7", *SMALL, "--json").out)
    assert report["step_time_s"]["mean"] >= report["floor"]["step_time_s"]


def test_seed_option_wins_over_the_scenario(cli: Cli) -> None:
    report = json.loads(
        cli("run", "areal/table7", *SMALL, "--set", "run.seed=1", "--seed", "7", "--json").out
    )
    assert report["seed"] == 7


def test_out_holds_a_run_that_reads_back(cli: Cli, tmp_path: Path) -> None:
    assert cli("run", "areal/table7", *SMALL, "--out", tmp_path / "a").code == 0
    assert {p.name for p in (tmp_path / "a").iterdir()} == {
        "scenario.json",
        "report.html",
        "report.json",
        "trace.jsonl.gz",
    }
    resolved = from_json((tmp_path / "a" / "scenario.json").read_text())
    assert resolved.scenario == load("areal/table7", SMALL[1::2]).scenario
    assert json.loads((tmp_path / "a" / "report.json").read_text())["steps"] == 4
    assert sum(1 for _ in read_trace(tmp_path / "a" / "trace.jsonl.gz")) > 10


def test_same_seed_writes_the_same_trace(cli: Cli, tmp_path: Path) -> None:
    for name in ("a", "b"):
        cli("run", "areal/table7", *SMALL, "--out", tmp_path / name)
    first, second = (gzip.decompress((tmp_path / n / "trace.jsonl.gz").read_bytes()) for n in ("a", "b"))
    assert first == second


def test_summary_trace_replaces_the_full_one_of_an_earlier_run(cli: Cli, tmp_path: Path) -> None:
    cli("run", "areal/table7", *SMALL, "--out", tmp_path / "a")
    cli("run", "areal/table7", *SMALL, "--out", tmp_path / "a", "--trace", "summary")
    assert not (tmp_path / "a" / "trace.jsonl.gz").exists()


def test_large_runs_are_traced_only_on_request(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "FULL_TRACE_ROLLOUTS", 10)
    result = cli("run", "areal/table7", *SMALL, "--out", tmp_path / "a")
    assert "--trace full" in result.err
    assert not (tmp_path / "a" / "trace.jsonl.gz").exists()


def test_full_trace_needs_a_place(cli: Cli) -> None:
    result = cli("run", "areal/table7", *SMALL, "--trace", "full")
    assert result.code == 2
    assert "--out" in result.err


@pytest.mark.parametrize("name", ["my notes.txt", "subfolder/x"])
def test_a_directory_that_is_no_run_is_left_alone(cli: Cli, tmp_path: Path, name: str) -> None:
    precious = tmp_path / "a" / name
    precious.parent.mkdir(parents=True)
    precious.write_text("mine")
    result = cli("run", "areal/table7", *SMALL, "--out", tmp_path / "a")
    assert result.code == 6
    assert one_message(result)
    assert [p for p in (tmp_path / "a").rglob("*") if p.is_file()] == [precious]


def test_files_beside_a_run_stay(cli: Cli, tmp_path: Path) -> None:
    cli("run", "areal/table7", *SMALL, "--out", tmp_path / "a")
    (tmp_path / "a" / "notes.txt").write_text("mine")
    assert cli("run", "areal/table7", *SMALL, "--out", tmp_path / "a").code == 0
    assert (tmp_path / "a" / "notes.txt").read_text() == "mine"


def test_an_earlier_run_survives_a_bad_one(cli: Cli, tmp_path: Path) -> None:
    cli("run", "areal/table7", *SMALL, "--out", tmp_path / "a")
    before = (tmp_path / "a" / "report.json").read_text()
    assert cli("run", "areal/table7", "--set", "run.steps=-1", "--out", tmp_path / "a").code == 2
    assert (tmp_path / "a" / "report.json").read_text() == before


def test_out_that_cannot_be_written(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = cli("run", "areal/table7", *SMALL, "--out", tmp_path / "file" / "a")
    assert result.code == 6
    assert one_message(result)


def test_full_disk_is_one_message_and_leaves_nothing(tmp_path: Path) -> None:
    small_files = (2000, 2000)
    command = [sys.executable, "-m", "areal_sim", "run", "areal/table7", *SMALL, "--out", str(tmp_path / "a")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, small_files),
    )  # fmt: skip
    assert done.returncode == 6
    assert one_message(Result(done.returncode, done.stdout, done.stderr))
    assert list((tmp_path / "a").iterdir()) == []


def test_two_runs_cannot_share_a_directory(cli: Cli, tmp_path: Path) -> None:
    holder = run_directory.RunDirectory(tmp_path / "a")
    result = cli("run", "areal/table7", *SMALL, "--out", tmp_path / "a")
    holder.abandon()
    assert result.code == 6
    assert "another run" in result.err


def test_stall_names_the_missing_credit(cli: Cli, tmp_path: Path) -> None:
    result = cli("run", "areal/table7", *SMALL, *STALLING, "--out", tmp_path / "a")
    assert result.code == 3
    assert one_message(result)
    assert "credit" in result.err
    report = json.loads((tmp_path / "a" / "report.json").read_text())
    assert report["partial"]
    assert report["ended"] == "stall"


# ---- bad scenarios ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("run.stepz=3", ["run.stepz", "steps"]),
        ("run.steps=-3", ["run.steps", "-3"]),
        ("run.steps=lots", ["run.steps", "lots"]),
        ("workload.response_tokens.median=nan", ["median", "nan"]),
        ("engine.tensor_parallel=4", ["rollout_gpus", "multiple"]),
        ("model.name=gpt-17", ["model.name", "gpt-17"]),
        ("policy.name=magic", ["policy.name", "magic"]),
        ("policy.max_staleness=-1", ["max_staleness", "-1"]),
        ("workload.dataset_size=10", ["dataset_size", "10"]),
        ("policy.max_concurrent_groups=0", ["max_concurrent_groups", "0"]),
        ("nonsense", ["nonsense", "key=value"]),
    ],
)
def test_bad_scenario_is_one_message_and_exit_code_2(cli: Cli, change: str, words: list[str]) -> None:
    result = cli("run", "areal/table7", "--set", change)
    assert result.code == 2
    assert one_message(result)
    assert result.out == ""
    assert all(word in result.err for word in words), result.err


def test_unknown_scenario_suggests_a_name(cli: Cli) -> None:
    result = cli("run", "areal/tabel7")
    assert result.code == 2
    assert "areal/table7" in result.err


def test_check_says_that_scenarios_are_valid(cli: Cli) -> None:
    assert cli("check", "areal/table7", "areal/fig5c").out.count(": valid") == 2
    assert cli("check", "areal/table7", "--set", "policy.name=magic").code == 2


# ---- Ctrl-C -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_json", [False, True])
def test_interrupt_leaves_a_readable_trace_and_a_partial_report(tmp_path: Path, as_json: bool) -> None:
    endless = ["--set", "run.steps=1000000", "--trace", "full", *(["--json"] if as_json else [])]
    process = start("run", "areal/table7", *SMALL, *endless, "--out", tmp_path / "a")
    growing = tmp_path / "a" / "trace.part.jsonl.gz"
    deadline = time.monotonic() + 60
    while not (growing.exists() and growing.stat().st_size > 20_000):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    report = json.loads((tmp_path / "a" / "report.json").read_text())
    assert report["partial"]
    assert report["steps"] > 0
    assert json.loads(out) == report if as_json else "PARTIAL" in out
    assert sum(1 for _ in read_trace(tmp_path / "a" / "trace.jsonl.gz")) > 100


# ---- compare and sweep ------------------------------------------------------------------------------------


def test_compare_gives_ratios_to_the_first(cli: Cli, tmp_path: Path) -> None:
    arguments = ["areal/table7", "areal/fig5c", *SMALL, "--set", "trainer.minibatches=1"]
    data = json.loads(cli("compare", *arguments, "--jobs", 1, "--json", "--out", tmp_path / "c").out)
    first, second = data["scenarios"]
    assert first["ratio_to_first"] == {"throughput": 1.0, "step_time": 1.0, "gpu_hours_per_step": 1.0}
    throughput = [s["report"]["effective_throughput_tokens_per_s"] for s in (first, second)]
    assert second["ratio_to_first"]["throughput"] == pytest.approx(throughput[1] / throughput[0])
    assert json.loads((tmp_path / "c" / "compare.json").read_text()) == data
    assert (tmp_path / "c" / "2_fig5c" / "report.json").exists()


def test_compare_on_two_cores_prints_a_column_a_scenario(cli: Cli) -> None:
    result = cli(
        "compare", "areal/table7", "areal/fig5c", *SMALL, "--set", "trainer.minibatches=1", "--jobs", 2
    )
    assert result.code == 0
    assert "speedup" in result.out
    assert "areal/fig5c" in result.out


def test_compare_keeps_the_message_of_what_failed(cli: Cli) -> None:
    result = cli("compare", "areal/table7", "areal/table7", *SMALL, *STALLING, "--jobs", 2)
    assert result.code == 3
    assert "credit" in result.err
    assert "Traceback" not in result.err


def test_compare_needs_two(cli: Cli) -> None:
    assert cli("compare", "areal/table7").code == 2


def test_sweep_is_the_product_in_the_order_asked(cli: Cli, tmp_path: Path) -> None:
    result = cli(
        "sweep", "areal/table7", *SMALL, "--over", "policy.max_staleness=2,0", "--over", "run.seed=5,6,7",
        "--jobs", 1, "--csv", tmp_path / "s.csv", "--out", tmp_path / "out", "--json",
    )  # fmt: skip
    points = json.loads(result.out)["points"]
    expected = [(eta, seed) for eta in ("2", "0") for seed in ("5", "6", "7")]
    assert [tuple(p["point"].values()) for p in points] == expected
    rows = list(csv.DictReader(io.StringIO((tmp_path / "s.csv").read_text())))
    assert [(row["policy.max_staleness"], row["run.seed"]) for row in rows] == expected
    assert float(rows[0]["step_time_s.mean"]) == points[0]["report"]["step_time_s"]["mean"]
    assert (tmp_path / "out" / "sweep.csv").read_text() == (tmp_path / "s.csv").read_text()


def test_sweep_shows_a_point_that_failed_and_keeps_the_others(cli: Cli, tmp_path: Path) -> None:
    result = cli(
        "sweep", "areal/table7", *SMALL, "--set", "policy.filter_zero_variance=true",
        "--over", "reward.success_rate=0.0,0.5", "--jobs", 2, "--csv", tmp_path / "s.csv",
    )  # fmt: skip
    assert result.code == 1
    assert "failed" in result.out
    assert "reward.success_rate=0.0: " in result.err
    failed, good = csv.DictReader(io.StringIO((tmp_path / "s.csv").read_text()))
    assert "credit" in failed["error"]
    assert failed["steps"] == ""
    assert good["error"] == ""
    assert good["steps"] == "4"


def test_sweep_checks_every_point_before_the_first_runs(cli: Cli, tmp_path: Path) -> None:
    arguments = [
        "sweep",
        "areal/table7",
        *SMALL,
        "--over",
        "cluster.trainer_gpus=2,3",
        "--csv",
        tmp_path / "s.csv",
    ]
    result = cli(*arguments)
    assert result.code == 2
    assert one_message(result)
    assert not (tmp_path / "s.csv").exists()
    skipped = cli(*arguments, "--skip-invalid", "--jobs", 1)
    assert skipped.code == 1
    assert "cluster.trainer_gpus=3: " in skipped.err
    assert "failed" in skipped.out


@pytest.mark.parametrize("over", ["run.seed", "run.seed=", "=1,2", "run.seed=1,,2", "run.seed=1,1"])
def test_sweep_refuses_what_is_no_list(cli: Cli, over: str) -> None:
    result = cli("sweep", "areal/table7", "--over", over)
    assert result.code == 2
    assert one_message(result)


def test_sweep_values_may_hold_commas(cli: Cli) -> None:
    over = "workload.response_tokens=" + ",".join(f'{{type = "constant", value = {n}.0}}' for n in (100, 200))
    points = json.loads(cli("sweep", "areal/table7", *SMALL, "--over", over, "--jobs", 1, "--json").out)[
        "points"
    ]
    assert [p["report"]["mean_length"]["trained"] for p in points] == [100.0, 200.0]


# ---- trace, scenarios, help -----------------------------------------------------------------------------


def test_trace_says_that_the_run_explains_itself(cli: Cli, tmp_path: Path) -> None:
    cli("run", "areal/table7", *SMALL, "--out", tmp_path / "a")
    result = cli("trace", tmp_path / "a")
    assert result.code == 0
    assert "TrainingFinished 4" in result.out
    assert "ended: steps" in result.out


def test_trace_of_nothing_is_one_message(cli: Cli, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        result = cli("trace", path)
        assert result.code == 5
        assert one_message(result)


def test_trace_that_was_changed_does_not_replay(cli: Cli, tmp_path: Path) -> None:
    cli("run", "areal/table7", *SMALL, "--out", tmp_path / "a")
    lines = (
        gzip.decompress((tmp_path / "a" / "trace.jsonl.gz").read_bytes()).decode().splitlines(keepends=True)
    )
    first = next(i for i, line in enumerate(lines) if '"Generate"' in line)
    lines[first] = lines[first].replace('"replica":0', '"replica":1')
    changed = tmp_path / "changed.jsonl"
    changed.write_text("".join(lines))
    result = cli("trace", changed)
    assert result.code == 5
    assert one_message(result)


@pytest.mark.parametrize("name", ["t.json", "deep/t.json.gz"])
def test_trace_exports_a_timeline(cli: Cli, tmp_path: Path, name: str) -> None:
    cli("run", "areal/table7", *SMALL, "--out", tmp_path / "a")
    assert cli("trace", tmp_path / "a", "--perfetto", tmp_path / name).code == 0
    data = (tmp_path / name).read_bytes()
    assert json.loads(gzip.decompress(data) if name.endswith(".gz") else data)["traceEvents"]


def test_scenarios_lists_what_is_shipped(cli: Cli) -> None:
    listed = json.loads(cli("scenarios", "--json").out)
    assert "Table 7" in listed["scenarios"]["areal/table7"]
    assert all(text for entries in listed.values() for text in entries.values())
    assert "areal/table7" in cli("scenarios").out


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['areal-sim', '--help']\n"
        "from areal_sim.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'scipy', 'simpy', 'pyarrow', 'pydantic'} & sys.modules.keys()))"
    )
    environment = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["run", "compare", "sweep", "trace", "check", "scenarios"])
def test_help_teaches_with_two_examples(cli: Cli, command: str) -> None:
    assert cli(command, "--help").out.count(f"areal-sim {command} ") >= 2
