"""Many tasks: over processes that die, in a journal that is torn, on a Ray cluster that loses a worker."""

import csv
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from areal_report.run_directory import OutputError
from areal_sim.__main__ import main
from areal_sim.executor import pools
from areal_sim.executor.evaluate import evaluate
from areal_sim.executor.journal import Journal
from areal_sim.executor.pools import Here, Processes
from areal_sim.executor.task import DEFECT, Outcome, Task, key
from interfaces.scenario_file import load

SETS = [
    "workload.batch_size=8", "workload.group_size=4", "run.steps=6", "run.warmup_steps=2",
    "policy.max_concurrent_groups=8",
]  # fmt: skip
OVER = ["--over", "policy.max_staleness=0,1,2,4", "--over", "run.seed=0,1"]
POINTS = 8
SWEEP = ["sweep", "areal/table7", *(word for one in SETS for word in ("--set", one)), *OVER]
SLOW = ["--set", "run.steps=120", "--set", "run.warmup_steps=20"]


def task(*more: str) -> Task:
    return Task(load("areal/table7", [*SETS, *more]))


def numbers(path: Path) -> list[dict[str, str]]:
    """The table of a sweep without the time it took."""
    with path.open(newline="") as lines:
        return [{k: v for k, v in row.items() if k != "wall_s"} for row in csv.DictReader(lines)]


def areal_sim(*arguments: object) -> int:
    before, sys.argv = sys.argv, ["areal-sim", *map(str, arguments)]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    return 0


def start(*arguments: object) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "areal_sim", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def until(found: Callable[[], Any], patience_s: float = 120.0) -> Any:
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if value := found():
            return value
        time.sleep(0.02)
    raise AssertionError("it never came")


def descendants(root: int) -> Iterator[tuple[int, str]]:
    """Processes below this one, with their command lines; Linux."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
    for pid in parents:
        above = pid
        while above not in (0, root):
            above = parents.get(above, 0)
        if above == root and pid != root:
            try:
                yield pid, Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every simulation that really runs in this process."""
    ran: list[Any] = []
    real = pools.attempt

    def attempt(*arguments: Any) -> Outcome:
        ran.append(arguments[0])
        return real(*arguments)

    monkeypatch.setattr(pools, "attempt", attempt)
    return ran


# ---- journal --------------------------------------------------------------------------------------------


def test_a_sweep_that_was_killed_goes_on_and_repeats_no_finished_point(
    tmp_path: Path, counted: list[Any]
) -> None:
    journal = tmp_path / "a" / "points.jsonl"
    child = start(*SWEEP, *SLOW, "--jobs", 1, "--out", tmp_path / "a")
    until(lambda: journal.exists() and journal.read_bytes().count(b"\n") >= 2)
    child.kill()
    child.wait()
    finished = journal.read_bytes().count(b"\n")
    assert 2 <= finished < POINTS
    assert areal_sim(*SWEEP, *SLOW, "--jobs", 1, "--out", tmp_path / "a", "--resume") == 0
    assert len(counted) == POINTS - finished
    assert areal_sim(*SWEEP, *SLOW, "--jobs", 1, "--out", tmp_path / "b") == 0
    assert numbers(tmp_path / "a" / "sweep.csv") == numbers(tmp_path / "b" / "sweep.csv")


def test_without_resume_everything_runs_again(tmp_path: Path, counted: list[Any]) -> None:
    for _ in range(2):
        assert areal_sim(*SWEEP, "--jobs", 1, "--out", tmp_path) == 0
    assert len(counted) == 2 * POINTS


def test_a_changed_scenario_is_not_taken_for_the_old_one(tmp_path: Path, counted: list[Any]) -> None:
    assert areal_sim(*SWEEP, "--jobs", 1, "--out", tmp_path) == 0
    changed = ["--set", "engine.max_num_seqs=64"]
    assert areal_sim(*SWEEP, *changed, "--jobs", 1, "--out", tmp_path, "--resume") == 0
    assert len(counted) == 2 * POINTS


def test_resume_needs_a_directory(capsys: pytest.CaptureFixture[str]) -> None:
    assert areal_sim(*SWEEP, "--resume") == 2
    assert "--out" in capsys.readouterr().err


def test_a_torn_line_is_dropped_and_its_task_runs_again(tmp_path: Path) -> None:
    one, other = task(), task("run.seed=1")
    with Journal(tmp_path / "j", resume=False) as journal:
        evaluate([one, other], Here(), journal)
    path = tmp_path / "j"
    path.write_bytes(path.read_bytes()[:-20])
    with Journal(path, resume=True) as journal:
        assert journal.resumed == 1
        assert journal.find(key(one.resolved)) is not None
        assert journal.find(key(other.resolved)) is None
        evaluate([one, other], Here(), journal)
    with Journal(path, resume=True) as journal:
        assert journal.resumed == 2


def test_something_else_is_not_a_journal(tmp_path: Path) -> None:
    (tmp_path / "j").write_text("my notes\n")
    with pytest.raises(OutputError, match="leave --resume out"):
        Journal(tmp_path / "j", resume=True)


def test_what_trying_again_may_change_is_not_remembered(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", resume=False) as journal:
        journal.add("lost", Outcome(None, "its process was killed", DEFECT))
        journal.add("stalled", Outcome(None, "the run stalls", 3))
        assert journal.find("lost") is None
    with Journal(tmp_path / "j", resume=True) as journal:
        assert journal.find("stalled") == Outcome(None, "the run stalls", 3)


def test_equal_tasks_run_once(tmp_path: Path, counted: list[Any]) -> None:
    with Journal(tmp_path / "j", resume=False) as journal:
        outcomes = evaluate([task(), task(), task("run.seed=1")], Here(), journal)
    assert len(counted) == 2
    assert outcomes[0] == outcomes[1] != outcomes[2]


# ---- workers that die -----------------------------------------------------------------------------------


def test_a_worker_that_dies_loses_nothing() -> None:
    tasks = [task(f"run.seed={seed}", "run.steps=150") for seed in range(4)]
    killed = threading.Event()

    def kill() -> None:
        spawned = until(lambda: [pid for pid, line in descendants(os.getpid()) if "spawn_main" in line])
        time.sleep(0.5)
        os.kill(spawned[0], signal.SIGKILL)
        killed.set()

    thread = threading.Thread(target=kill)
    thread.start()
    with Processes(2) as pool:
        found = dict(pool.results(tasks))
    thread.join()
    assert killed.is_set()
    assert sorted(found) == [0, 1, 2, 3]
    assert all(outcome.report is not None for outcome in found.values())


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers of the cluster in /proc")
def test_a_ray_cluster_that_loses_a_worker_gives_the_same_numbers(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'areal-testbed[ray]'")
    child = start(*SWEEP, *SLOW, "--jobs", 2, "--ray", "local", "--out", tmp_path / "ray")
    journal = tmp_path / "ray" / "points.jsonl"

    def workers() -> list[int]:
        return [pid for pid, line in descendants(child.pid) if line.startswith("ray::attempt_text")]

    until(lambda: journal.exists() and journal.stat().st_size > 0)
    os.kill(until(workers)[0], signal.SIGKILL)
    assert journal.read_bytes().count(b"\n") < POINTS
    assert child.wait(timeout=240) == 0
    assert areal_sim(*SWEEP, *SLOW, "--jobs", 1, "--out", tmp_path / "here") == 0
    assert numbers(tmp_path / "ray" / "sweep.csv") == numbers(tmp_path / "here" / "sweep.csv")


def test_no_cluster_at_an_address_is_one_message() -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'areal-testbed[ray]'")
    command = [sys.executable, "-m", "areal_sim", *SWEEP, "--ray", "nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 10
    assert "no Ray cluster at 'nowhere'" in done.stderr
    assert "Traceback" not in done.stderr


ORPHANS = """
import os, sys, time
from concurrent.futures import wait
from areal_sim.executor import pools

if __name__ == "__main__":
    pool = pools._executor(2)
    print(*{pool.submit(os.getpid).result() for _ in range(20)}, flush=True)
    pool.submit(time.sleep, 600)
    time.sleep(600)
"""


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "orphans.py"
    script.write_text(ORPHANS)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent.parent)}
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment
    )
    with parent:
        assert parent.stdout is not None
        workers = [int(word) for word in parent.stdout.readline().split()]
        parent.kill()
    assert workers
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < deadline, "a worker is still there"
        time.sleep(0.1)
