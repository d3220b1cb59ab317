"""A policy in a package of its own, written as the how-to says, is found by its entry point."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add_a_policy.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """What `pip install` leaves behind: the module and its metadata, on the path."""
    (tmp_path / "warmup_policy.py").write_text(blocks("python")[0])
    project = tomllib.loads(blocks("toml")[0])["project"]
    metadata = tmp_path / "warmup_policy-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in points.items())
        for group, points in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("".join(groups))
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


def areal_sim(environment: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    small = ["--set", "workload.batch_size=8", "--set", "workload.group_size=4", "--set", "run.steps=6"]
    command = [sys.executable, "-m", "areal_sim", *arguments, *small, "--set", "run.warmup_steps=1"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_it_runs_by_its_name_and_takes_its_parameters(installed: dict[str, str]) -> None:
    policy = 'policy={ name = "warmup", more_groups_each_version = 8 }'
    done = areal_sim(installed, "run", "areal/table7", "--set", policy)
    assert done.returncode == 0, done.stderr
    assert "policy warmup" in done.stdout


def test_its_parameters_are_checked(installed: dict[str, str]) -> None:
    done = areal_sim(
        installed, "run", "areal/table7", "--set", 'policy={ name = "warmup", max_staleness = -1 }'
    )
    assert done.returncode == 2
    assert "policy.max_staleness" in done.stderr


def test_it_is_compared_with_the_others(installed: dict[str, str]) -> None:
    """One at a time and on several processes: the workers find it too."""
    for jobs in ("1", "2"):
        done = areal_sim(installed, "zoo", "areal/table7", "--policies", "areal,warmup", "--jobs", jobs)
        assert done.returncode == 0, done.stderr
        assert "warmup" in done.stdout


def test_it_is_checked_by_its_name(installed: dict[str, str]) -> None:
    command = [sys.executable, "-m", "areal_sim", "check", "warmup", "--set", "more_groups_each_version=8"]
    done = subprocess.run(command, env=installed, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_real_backend_takes_it_too(installed: dict[str, str]) -> None:
    """Up to the core of a real run: what is refused is refused here."""
    code = (
        "from areal_real.setup import CAPABILITIES\n"
        "from interfaces.scenario_file import load\n"
        "from interfaces.setup import build_loop\n"
        "resolved = load('local/letter_chain', ['policy={ name = \"warmup\" }'])\n"
        "print(build_loop(resolved, CAPABILITIES).policy.name)\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=installed, capture_output=True, text=True, check=False)
    assert done.stdout == "warmup\n", done.stderr


def test_without_the_package_the_name_is_unknown() -> None:
    done = areal_sim(dict(os.environ), "run", "areal/table7", "--set", 'policy={ name = "warmup" }')
    assert done.returncode == 2
    assert "is not a scheduling policy" in done.stderr
