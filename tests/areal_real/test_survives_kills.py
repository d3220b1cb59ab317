"""`kill -9` at random moments of every process of a real run, and of the run itself.

The real engine, a real trainer, real reward workers; the seed fixes whom each kill hits and when.
"""

import random
import re
import time
from collections import Counter

import pytest
from killable_run import KillableRun, wait_for
from small_training import model_directory

from areal_report.run_directory import trace_parts
from interfaces.actions import Generate, Train
from interfaces.conformance import check_trace
from interfaces.events import RolloutAborted, RolloutFinished, TrainingFinished
from interfaces.trace import read_trace

SEED = 4
STEPS, BATCH, BOUND = 80, 2, 2
KILLS = ["engine"] * 7 + ["reward"] * 5 + ["trainer"] * 4 + ["run"] * 4
"""20, in an order that the seed gives."""

SCENARIO = f"""
[run]
steps = {STEPS}
warmup_steps = 0
checkpoint_every_steps = 1
[cluster]
hardware = "cpu_core"
rollout_gpus = 1
trainer_gpus = 1
[model]
name = "letter-chain-s"
[engine]
name = "vllm"
max_num_seqs = 8
max_num_batched_tokens = 512
[trainer]
minibatches = 1
activation_checkpointing = false
max_tokens_per_microbatch = 1024
[workload]
batch_size = {BATCH}
group_size = 2
dataset_size = {STEPS * BATCH}
prompt_tokens = {{ type = "lognormal", median = 11.5, sigma = 0.55, max = 34 }}
response_tokens = {{ type = "lognormal", median = 60, sigma = 0.9, max = 100 }}
[policy]
name = "areal_strict"
max_staleness = {BOUND}
[real]
task = "letter_chain:xs"
model = "MODEL"
kv_cache_gib = 0.01
deadline_s = 120
"""


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "kills.toml"
    path.write_text(SCENARIO.replace("MODEL", model_directory(tmp_path).name))
    return path


def trained_steps(directory):
    """Steps whose statistics were written so far, whatever was undone by a kill."""
    path = directory / "training.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def kill_at_random(run, role, directory, numbers):
    """Some steps after now, and some way into the next."""
    seen, more = trained_steps(directory), numbers.randrange(1, 3)
    found = lambda: role == "run" or run.processes()[role]  # noqa: E731
    wait_for(
        f"{role} and {more} steps",
        lambda: (trained_steps(directory) >= seen + more and found()) or not run.alive,
    )
    time.sleep(numbers.random() * 0.3)
    if run.alive:
        run.kill(role)


def test_a_run_survives_twenty_kills(tmp_path, scenario):
    numbers = random.Random(SEED)
    directory, log = tmp_path / "run", tmp_path / "log"
    kills = numbers.sample(KILLS, len(KILLS))
    run = KillableRun(["run", str(scenario), "--out", str(directory), "--json"], log)
    for role in kills:
        kill_at_random(run, role, directory, numbers)
        if role in ("engine", "reward"):
            continue
        assert run.exit_code() != 0
        run = KillableRun(["resume", str(directory), "--json"], log)
    assert run.exit_code() == 0, log.read_text()
    assert not re.search("^Traceback", log.read_text(), re.M)  # vLLM's own log of a dead engine is indented
    assert log.read_text().count("resume from the last checkpoint") == kills.count("trainer")
    parts = trace_parts(directory)
    assert len(parts) == 1 + kills.count("trainer") + kills.count("run")
    summary = check_trace(*parts)
    assert (summary.steps, summary.ended, summary.backend) == (STEPS, "steps", "real")
    assert summary.max_staleness <= BOUND
    assert summary.by_event["ReplicaDown"] >= 1
    assert_trained_once(parts)


def assert_trained_once(parts):
    """By events and actions alone: of each step the last training counts, what came before was undone."""
    prompts, heads, trained, versions = {}, {}, {}, {}
    for part in parts:
        for record in read_trace(part):
            if isinstance(record, Generate):
                prompts[record.rollout] = record.prompt
                if not record.resume_tokens:
                    heads.pop(record.rollout, None)
            elif isinstance(record, RolloutFinished | RolloutAborted):
                new = [segment.version for segment in record.segments]
                heads[record.rollout] = min([*new, heads.get(record.rollout, STEPS)])
            elif isinstance(record, Train):
                under_way = record
            elif isinstance(record, TrainingFinished):
                trained[record.step] = {prompts[rollout] for rollout in under_way.rollouts}
                versions[record.step] = under_way.version
                assert all(under_way.version - heads[r] <= BOUND for r in under_way.rollouts)
    assert versions == {step: step for step in range(STEPS)}
    assert Counter(p for step in trained.values() for p in step) == Counter(range(STEPS * BATCH))
