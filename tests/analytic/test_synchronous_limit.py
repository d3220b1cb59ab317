"""Staleness 0 is synchronous RL, and a seed fixes every byte."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_runs import exponential, lognormal, simulate, small

from interfaces.events import RolloutFinished
from interfaces.trace import encode

LAWS: dict[str, dict[str, Any]] = {
    "groups of one": {"batch_size": 16, "group_size": 1, "response_tokens": exponential(300.0)},
    "groups of four": {"batch_size": 6, "group_size": 4, "response_tokens": lognormal(300.0, 1.0)},
}


def lines(policy: dict[str, Any], workload: dict[str, Any], replicas: int, seed: int) -> list[str]:
    resolved = small(
        run={"steps": 8, "seed": seed},
        cluster={"rollout_gpus": replicas},
        workload=workload,
        cost={"publish_s": 0.3, "load_s": 0.2, "prefill_s": 0.01},
        reward={"latency_s": exponential(0.5), "workers": 3},
        policy=policy,
    )
    trace = simulate(resolved).trace
    records = [("event", event, answer) for event, answer in trace.fed_]
    return [
        line for what, event, answer in records
        for line in (encode(what, event), *(encode("action", action) for action in answer))
    ]  # fmt: skip


@pytest.mark.parametrize("replicas", [1, 4])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("interruptible", [True, False])
def test_eta_zero_gives_exactly_the_synchronous_trace(law: str, replicas: int, interruptible: bool) -> None:
    areal = {"name": "areal", "max_staleness": 0, "interruptible": interruptible}
    assert lines(areal, LAWS[law], replicas, 3) == lines({"name": "sync"}, LAWS[law], replicas, 3)


def test_strict_at_eta_zero_is_synchronous_too() -> None:
    strict = {"name": "areal_strict", "max_staleness": 0}
    assert lines(strict, LAWS["groups of four"], 2, 0) == lines(
        {"name": "sync"}, LAWS["groups of four"], 2, 0
    )


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_same_seed_same_bytes_in_another_process(tmp_path: Path, suffix: str) -> None:
    """Neither the hash seed, nor the folder, nor the time of day is in the file."""
    script = (
        "import sys; from pathlib import Path; from areal_sim.simulation import Simulation;"
        "from interfaces.scenario_file import load; from interfaces.trace import TraceWriter, Header;"
        "sets = ['run.steps=3', 'run.warmup_steps=0', 'workload.batch_size=8', 'run.seed=5'];"
        "r = load('areal/table7', sets);"
        "w = TraceWriter(Path(sys.argv[1]), Header(1, 'sim', 5, {}, '0'));"
        "Simulation(r, w).run(); w.close()"
    )
    digests = set()
    for hash_seed in ("0", "77"):
        folder = tmp_path / hash_seed
        folder.mkdir()
        path = folder / f"trace{suffix}"
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        subprocess.run([sys.executable, "-c", script, str(path)], check=True, env=env, timeout=120)
        digests.add(hashlib.sha256(path.read_bytes()).hexdigest())
        assert path.stat().st_size > 10_000
    assert len(digests) == 1


def lengths_by_prompt(replicas: int, policy: dict[str, Any]) -> dict[tuple[int, int], int]:
    resolved = small(
        run={"steps": 10, "seed": 9},
        cluster={"rollout_gpus": replicas},
        workload={"batch_size": 8, "group_size": 4, "response_tokens": lognormal(300.0, 1.0)},
        policy=policy,
    )
    simulation_run = simulate(resolved)
    generated: dict[int, tuple[int, int]] = {}
    for _, answer in simulation_run.trace.fed_:
        for action in answer:
            if type(action).__name__ == "Generate":
                generated[action.rollout] = (action.prompt, action.member)
    return {
        generated[event.rollout]: sum(segment.tokens for segment in event.segments)
        for event in simulation_run.trace.events(RolloutFinished)
    }


def test_neither_replicas_nor_policy_change_a_length() -> None:
    reference = lengths_by_prompt(1, {"name": "sync"})
    policies = (
        {"name": "areal", "max_staleness": 4}, {"name": "one_step_off"}, {"name": "areal_strict"},
        {"name": "areal", "interruptible": False}, {"name": "sync"},
    )  # fmt: skip
    for replicas in (1, 2, 5, 16):
        for policy in policies:
            found = lengths_by_prompt(replicas, policy)
            common = found.keys() & reference.keys()
            assert len(common) >= 0.8 * len(reference)
            assert {key: found[key] for key in common} == {key: reference[key] for key in common}
