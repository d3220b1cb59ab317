"""Whole runs on the real engine and the real trainer: `areal-real run`, `eval`, and what they leave."""

import json
import os
import signal

import pytest
from killable_run import KillableRun, wait_for
from small_training import model_directory

from areal_report.run_directory import find_trace
from areal_sim.simulation import Simulation
from interfaces.conformance import check_trace
from interfaces.scenario_file import load

SCENARIO = """
[run]
steps = 4
warmup_steps = 0
checkpoint_every_steps = 2
evaluation_every_steps = 4
[cluster]
hardware = "cpu_core"
rollout_gpus = 1
trainer_gpus = 1
[model]
name = "letter-chain-s"
[engine]
name = "vllm"
max_num_seqs = 16
max_num_batched_tokens = 512
[trainer]
minibatches = 1
activation_checkpointing = false
max_tokens_per_microbatch = 1024
[workload]
batch_size = 4
group_size = 4
prompt_tokens = { type = "lognormal", median = 11.5, sigma = 0.55, max = 34 }
response_tokens = { type = "lognormal", median = 60, sigma = 0.9, max = 80 }
[policy]
name = "sync"
[real]
task = "digits_task:Digits"
model = "MODEL"
kv_cache_gib = 0.02
evaluation_prompts = 8
deadline_s = 120
[real.optimizer]
learning_rate = 1e-2
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    directory = tmp_path_factory.mktemp("real")
    (directory / "s.toml").write_text(SCENARIO.replace("MODEL", model_directory(directory).name))
    return directory


def carried_out(place, *arguments, code=0):
    """What a command printed, as JSON."""
    log = place / f"{arguments[0]}.log"
    log.unlink(missing_ok=True)
    assert KillableRun([*arguments, "--json"], log).exit_code() == code, log.read_text()
    text = log.read_text()
    return json.loads(text[text.index("\n{\n") + 1 if not text.startswith("{") else 0 :])


@pytest.fixture(scope="module")
def on_policy(place):
    return carried_out(place, "run", str(place / "s.toml"), "--out", str(place / "sync"))


def test_on_policy_is_on_policy(on_policy):
    """eta = 0, one minibatch, float32: what the engine sampled has the probability that the trainer sees."""
    steps = on_policy["training"]
    assert [step["step"] for step in steps] == [0, 1, 2, 3]
    for step in steps:
        assert step["staleness_max"] == 0
        assert step["gradient_norm"] > 1e-3  # weights do change, so an engine with old ones would be seen
        assert abs(step["behaviour_weight_max"] - 1) < 1e-4
        assert abs(step["behaviour_weight_mean"] - 1) < 1e-5
        assert abs(step["ratio_min"] - 1) < 1e-4
        assert abs(step["ratio_max"] - 1) < 1e-4
    assert on_policy["staleness"]["max"] == 0


def test_report_has_the_keys_of_a_simulated_one(on_policy, place):
    from areal_report.identity import complete  # noqa: PLC0415

    resolved = load(place / "s.toml", ("run.steps=2",))
    simulated = complete(Simulation(resolved).run(), resolved)
    assert simulated.keys() <= on_policy.keys()
    assert on_policy["ended"] == "steps"
    assert on_policy["training"][3]["evaluation_reward"] >= 0


@pytest.mark.usefixtures("on_policy")
def test_recorded_run_keeps_all_laws_and_replays(place):
    summary = check_trace(find_trace(place / "sync"))
    assert (summary.backend, summary.steps, summary.max_staleness) == ("real", 4, 0)


@pytest.mark.usefixtures("on_policy")
def test_checkpoint_answers(place):
    answered = carried_out(place, "eval", str(place / "sync"), "--prompts", "16")
    assert answered["task"] == "digits"
    before, after = answered["models"]["before"], answered["models"]["after step 4"]
    assert after["evaluation_reward"] > before["evaluation_reward"]


@pytest.mark.usefixtures("on_policy")
def test_every_file_of_a_run_is_there(place):
    names = {path.name for path in (place / "sync").iterdir()}
    assert {"report.json", "report.html", "scenario.json", "trace.jsonl.gz", "training.jsonl"} <= names
    assert {path.name for path in (place / "sync" / "checkpoints").iterdir()} == {"step-1", "step-3"}
    assert any((place / "sync" / "tensorboard").iterdir())
    lines = [json.loads(line) for line in (place / "sync" / "training.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [0, 1, 2, 3]


def test_interrupted_run_ends_with_a_partial_report_and_can_go_on(place):
    directory, log = place / "stopped", place / "stopped.log"
    run = KillableRun(["run", str(place / "s.toml"), "--set", "run.steps=40", "--out", str(directory)], log)
    lines = directory / "training.jsonl"
    wait_for("two steps", lambda: lines.exists() and lines.read_text().count("\n") >= 2)
    run.processes()  # remembers them: none may be left
    os.kill(run.pid, signal.SIGINT)
    assert run.exit_code() == 130, log.read_text()
    assert "interrupted" in log.read_text()
    report = json.loads((directory / "report.json").read_text())
    assert (report["ended"], report["partial"]) == ("stopped", True)
    assert 2 <= report["steps"] < 40
    assert check_trace(find_trace(directory)).ended == "stopped"


@pytest.mark.usefixtures("on_policy")
def test_checkpoint_holds_no_weights_but_the_model(place):
    """VLLM loads every `*.safetensors` of a directory; so a checkpoint can be served as it is."""
    files = (place / "sync" / "checkpoints" / "step-3").glob("*.safetensors")
    assert [file.name for file in files] == ["model.safetensors"]
