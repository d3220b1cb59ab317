import math
import re
from pathlib import Path

import pytest

from interfaces.errors import ScenarioError
from interfaces.hardware import EfficiencyRanges
from interfaces.overrides import parse, parse_value
from interfaces.scenario_file import available, from_json, load, load_hardware, load_model, shipped, to_json

BASE = """
[run]
steps = 10
[cluster]
hardware = "h100"
rollout_gpus = 4
trainer_gpus = 4
[model]
name = "qwen2.5-1.5b"
[workload]
batch_size = 8
group_size = 4
response_tokens = { type = "lognormal", median = 1000, sigma = 0.5, max = 4096 }
[policy]
name = "areal"
max_staleness = 2
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "a.toml"
    path.write_text(BASE)
    return path


def refused(path: Path | str, *sets: str) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        load(path, sets)
    return caught.value


# What a valid file gives


def test_values_come_from_the_file(scenario: Path) -> None:
    resolved = load(scenario)
    assert resolved.where == str(scenario)
    assert resolved.scenario.run.steps == 10
    assert resolved.scenario.policy.parameters == {"max_staleness": 2}
    assert resolved.hardware.name == "H100-SXM"
    assert resolved.model.name == "Qwen2.5-1.5B"


def test_integer_is_accepted_where_a_float_is_wanted(scenario: Path) -> None:
    median = load(scenario).scenario.workload.response_tokens.median  # type: ignore[union-attr]
    assert median == 1000.0
    assert isinstance(median, float)


def test_arrays_become_tuples(scenario: Path) -> None:
    resolved = load(scenario, ["workload.drift=[{step = 0, scale = 1}, {step = 9, scale = 2}]"])
    assert [d.scale for d in resolved.scenario.workload.drift] == [1.0, 2.0]


@pytest.mark.parametrize("name", ["areal/table7", "scenarios/areal/table7.toml", "areal/table7.toml"])
def test_a_shipped_name_needs_no_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    resolved = load(name)
    assert resolved.where == "scenarios/areal/table7.toml"
    assert resolved.scenario.cluster.rollout_gpus == 6


def test_a_file_on_disk_wins_over_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "areal").mkdir()
    (tmp_path / "areal" / "table7").write_text(BASE)
    assert load("areal/table7").scenario.run.steps == 10


def test_hardware_and_model_by_path_relative_to_the_scenario(scenario: Path) -> None:
    hardware = load_hardware("h100")
    shares = hardware.efficiencies.model_copy(update={"ranges": EfficiencyRanges()})
    hardware = hardware.model_copy(update={"name": "mine", "efficiencies": shares})
    lines = [f"{k} = {v!r}".replace("'", '"') for k, v in hardware.model_dump().items() if _plain(v)]
    inner = [f"{k} = {v!r}" for k, v in hardware.efficiencies.model_dump(exclude={"ranges"}).items()]
    (scenario.parent / "mine.toml").write_text("\n".join([*lines, "[efficiencies]", *inner]))
    assert load(scenario, ["cluster.hardware=./mine.toml"]).hardware == hardware


def _plain(value: object) -> bool:
    return isinstance(value, int | float | str)


def test_files_of_a_scenario_become_absolute(scenario: Path) -> None:
    (scenario.parent / "lengths.csv").write_text("n\n1\n")
    table = "{type = 'empirical', file = 'lengths.csv', column = 'n', max = 100}"
    response = load(scenario, [f"workload.response_tokens={table}"]).scenario.workload.response_tokens
    assert response.file == str((scenario.parent / "lengths.csv").resolve())  # type: ignore[union-attr]


# --set


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("8", 8),
        ("0.5", 0.5),
        ("1e9", 1e9),
        ("inf", math.inf),
        ("true", True),
        ("drop", "drop"),
        ('"drop"', "drop"),
        ("./my gpu.toml", "./my gpu.toml"),
        ("", ""),
        ("[1, 2]", [1, 2]),
        ("{type = 'constant', value = 3}", {"type": "constant", "value": 3}),
        ("1\nother = 2", "1\nother = 2"),
    ],
)
def test_values_of_set_are_toml_or_strings(raw: str, value: object) -> None:
    assert parse_value(raw) == value


def test_set_splits_at_the_first_equals_sign() -> None:
    assert parse("a.b = x=y") == (("a", "b"), "x=y")


def test_set_reaches_inside_inline_tables_and_keeps_the_rest(scenario: Path) -> None:
    response = load(scenario, ["workload.response_tokens.sigma=0.8"]).scenario.workload.response_tokens
    assert response.model_dump() == {"type": "lognormal", "median": 1000.0, "sigma": 0.8, "max": 4096.0}


def test_set_creates_missing_tables(scenario: Path) -> None:
    resolved = load(scenario, ["faults.rollout_failure_probability=0.1", "engine.tensor_parallel=2"])
    assert resolved.scenario.faults.rollout_failure_probability == 0.1
    assert resolved.scenario.engine.tensor_parallel == 2


def test_set_replaces_an_array(scenario: Path) -> None:
    resolved = load(scenario, ["faults.replica=[{replica = 1, at_s = 60, down_s = 30}]"])
    assert resolved.scenario.faults.replica[0].down_s == 30.0


def test_the_last_set_wins(scenario: Path) -> None:
    assert load(scenario, ["run.seed=1", "run.seed=2"]).scenario.run.seed == 2


@pytest.mark.parametrize("text", ["inf", '"inf"'])
def test_a_policy_parameter_may_be_infinite(scenario: Path, text: str) -> None:
    resolved = load(scenario, [f"policy.max_staleness={text}"])
    assert resolved.scenario.policy.parameters["max_staleness"] == math.inf


@pytest.mark.parametrize("text", ["run.steps", "=3", "run..steps=3", ""])
def test_set_without_key_and_value_is_refused(scenario: Path, text: str) -> None:
    error = refused(scenario, text)
    expected = f"--set: argument = {text!r} is not key=value; write policy.max_staleness=8"
    assert str(error) == expected


def test_set_through_a_value_is_refused(scenario: Path) -> None:
    error = refused(scenario, "run.steps.x=3")
    assert str(error) == (
        "--set: run.steps.x = 3 goes through run.steps, which is not a table; set run.steps itself"
    )


def test_set_into_an_array_is_refused(scenario: Path) -> None:
    error = refused(scenario, "faults.replica=[]", "faults.replica.0=3")
    assert error.remedy == "set faults.replica as a whole, for example faults.replica=[{...}]"


# Bad input: key, value, rule, remedy


@pytest.mark.parametrize(
    ("change", "key", "value", "rule", "remedy"),
    [
        ("run.stepz=3", "run.stepz", "3", "is not a known key", "did you mean 'steps'? keys of [run]:"),
        ("clster.x=3", "clster", "{'x': 3}", "is not a known key", "did you mean 'cluster'?"),
        (
            "workload.response_tokens.sigam=1",
            "workload.response_tokens.sigam",
            "1",
            "is not a known key",
            "did you mean 'sigma'? keys of [workload.response_tokens]: max, median, sigma, type",
        ),
        ("reward.latency_ms=1", "reward.latency_ms", "1", "is not a known key", "did you mean 'latency_s'?"),
        ("run.steps=many", "run.steps", "'many'", "must be a whole number", "without quotes"),
        ("run.steps=2.5", "run.steps", "2.5", "must be a whole number", "without a decimal point"),
        ("run.steps=true", "run.steps", "True", "must be a whole number", "without quotes"),
        ("run.steps=-1", "run.steps", "-1", "must be greater than 0", "use a value above 0"),
        ("run.seed=-1", "run.seed", "-1", "must be at least 0", "use 0 or more"),
        ("run.checkpoint_s=nan", "run.checkpoint_s", "nan", "must be a finite number", "nan and inf"),
        ("run.checkpoint_s=inf", "run.checkpoint_s", "inf", "must be a finite number", "nan and inf"),
        ("run.checkpoint_s=x", "run.checkpoint_s", "'x'", "must be a number", "without quotes"),
        ("run=3", "run", "3", "must be a table", "write it as a [table]"),
        ("engine.prefix_caching=1", "engine.prefix_caching", "1", "must be true or false", "write true"),
        ("engine.name=vlm", "engine.name", "'vlm'", "is not a known value", "did you mean 'vllm'? values:"),
        (
            "engine.gpu_memory_utilization=1.5",
            "engine.gpu_memory_utilization",
            "1.5",
            "must be at most 1",
            "use 1 or less",
        ),
        (
            "workload.group_correlation=1",
            "workload.group_correlation",
            "1",
            "must be less than 1",
            "use a value below 1",
        ),
        ("workload.drift=3", "workload.drift", "3", "must be a list", "write it as [...]"),
        (
            "workload.drift=[{step = 1, scale = 0}]",
            "workload.drift.0.scale",
            "0",
            "must be greater than 0",
            "use a value above 0",
        ),
        ("workload.drift=[{step = 1}]", "workload.drift.0.scale", "<missing>", "is required", "add scale ="),
        (
            "workload.response_tokens=500",
            "workload.response_tokens",
            "500",
            "must be a distribution",
            'write it as {type = "constant", value = 100}',
        ),
        (
            "workload.response_tokens={median = 3}",
            "workload.response_tokens",
            "{'median': 3}",
            "has no type",
            'add type = "constant"',
        ),
        (
            "workload.response_tokens.type=lognormel",
            "workload.response_tokens",
            "{'type': 'lognormel'",
            "has an unknown type 'lognormel'",
            "did you mean 'lognormal'? types: constant, empirical, exponential, gamma, lognormal, mixture",
        ),
        (
            "workload.response_tokens={type = 'constant'}",
            "workload.response_tokens.value",
            "<missing>",
            "is required",
            "add value = ... to [workload.response_tokens]",
        ),
        ("policy.max_staleness=nan", "policy.max_staleness", "nan", "must be a number or inf", "write"),
        ("policy.max_staleness=-inf", "policy.max_staleness", "-inf", "must be a number or inf", "write"),
        ("policy=areal", "policy", "'areal'", "must be a table", "write it as a [table]"),
        (
            "cluster.hardware=h80",
            "cluster.hardware",
            "'h80'",
            "is not in scenarios/hardware",
            "did you mean 'h800'? available: a100, b200, cpu_core, h100, h20, h200, h800, mi300x",
        ),
        ("cluster.hardware=./x.toml", "cluster.hardware", "'./x.toml'", "is not a file", "give a path"),
        (
            "model.name=Qwen2.5-7B",
            "model.name",
            "'Qwen2.5-7B'",
            "is not in scenarios/models",
            "did you mean 'qwen2.5-7b'?",
        ),
        ("cost.file=x.toml", "cost.file", "'x.toml'", "is not a file", "give a path relative to"),
        (
            "workload.prompt_tokens={type = 'empirical', file = 'n.csv', column = 'a'}",
            "workload.prompt_tokens.file",
            "'n.csv'",
            "is not a file",
            "give a path relative to the scenario file",
        ),
    ],
)
def test_bad_value(scenario: Path, change: str, *, key: str, value: str, rule: str, remedy: str) -> None:
    error = refused(scenario, change)
    assert str(error).startswith(f"{scenario}: {key} = {value}")
    assert error.key == key
    assert error.rule == rule
    assert remedy in error.remedy
    assert "\n" not in str(error)


# Bad input: rules between sections


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            ["cluster.rollout_gpus=7", "engine.tensor_parallel=2"],
            "cluster.rollout_gpus = 7 is not a multiple of engine.tensor_parallel = 2; use 6 or 8",
        ),
        (
            ["cluster.rollout_gpus=1", "engine.tensor_parallel=2"],
            "cluster.rollout_gpus = 1 is not a multiple of engine.tensor_parallel = 2; use 2",
        ),
        (
            ["trainer.tensor_parallel=2", "trainer.pipeline_parallel=4"],
            "cluster.trainer_gpus = 4 is not a multiple of "
            "trainer.tensor_parallel * trainer.pipeline_parallel = 8; use 8",
        ),
        (
            ["cluster.rollout_gpus=16", "engine.tensor_parallel=16"],
            "engine.tensor_parallel = 16 is more than the 8 GPUs of a node of H100-SXM; use 8 or less",
        ),
        (
            ["policy.name=sync_colocated", "cluster.trainer_gpus=8"],
            "cluster.trainer_gpus = 8 differs from cluster.rollout_gpus = 4 under a colocated policy; "
            "use 4: both pools are the same GPUs",
        ),
        (
            ["cluster.rollout_gpus=8", "engine.tensor_parallel=8"],
            "engine.tensor_parallel = 8 does not divide the 12 heads (2 KV heads) of Qwen2.5-1.5B; "
            "use 1 or 2 or 4 or 6",
        ),
        (
            ["cluster.trainer_gpus=32", "trainer.pipeline_parallel=32"],
            "trainer.pipeline_parallel = 32 is more than the 28 layers of Qwen2.5-1.5B; use 28 or less",
        ),
        (
            ["workload.dataset_size=3", "workload.epochs=2"],
            "workload.batch_size = 8 is more than the 6 prompts of workload.dataset_size * workload.epochs; "
            "use 6 or less, or more epochs",
        ),
        (
            ["workload.batch_size=1", "workload.group_size=4"],
            "workload.batch_size = 1 gives 4 sequences a step for trainer.minibatches * data-parallel ranks "
            "= 4 * 4, at least one each is needed; use 4 or more, or fewer minibatches or trainer GPUs",
        ),
        (
            ["run.warmup_steps=10"],
            "run.warmup_steps = 10 leaves none of run.steps = 10 to measure; use 9 or less",
        ),
        (
            ["cost.model=constant", "cost.train_s=1"],
            'cost.decode_step_s = <missing> is required by cost.model = "constant"; '
            "add decode_step_s = ... to [cost]",
        ),
        (
            ["cost.model=constant", "cost.decode_step_s=0.01"],
            'cost.train_s = <missing> is required by cost.model = "constant"; add train_s = ... to [cost]',
        ),
        (
            ["faults.replica=[{replica = 4, at_s = 1, down_s = 1}]"],
            "faults.replica.0.replica = 4 does not exist, there are 4 replicas; use 0 to 3",
        ),
        (
            ["faults.replica=[{replica = 0, at_s = 1}]"],
            "faults.replica.0.down_s = <missing> needs exactly one of down_s (it dies) and slowdown "
            "(it is slow); write one replica fault for each",
        ),
        (
            ["faults.replica=[{replica = 0, at_s = 1, down_s = 2, slowdown = 3}]"],
            "faults.replica.0.down_s = 2.0 needs exactly one of down_s (it dies) and slowdown "
            "(it is slow); write one replica fault for each",
        ),
        (
            ["faults.replica=[{replica = 0, at_s = 5, slowdown = 2, until_s = 4}]"],
            "faults.replica.0.until_s = 4.0 must be the end of a slowdown, after at_s; "
            "use a value above 5 together with slowdown",
        ),
    ],
)
def test_infeasible(scenario: Path, changes: list[str], message: str) -> None:
    assert str(refused(scenario, *changes)) == f"{scenario}: {message}"


@pytest.mark.parametrize(
    ("changes", "key", "rule", "remedy"),
    [
        (
            ["model.name=qwen2.5-32b", "engine.gpu_memory_utilization=0.7"],
            "engine.tensor_parallel",
            r"does not fit: Qwen2.5-32B needs 61.0 GiB of weights on each GPU .* 56.0 GiB of H100-SXM",
            "use engine.tensor_parallel = 2",
        ),
        (
            ["model.name=qwen3-235b-a22b"],
            "engine.tensor_parallel",
            "does not fit: Qwen3-235B-A22B needs 437.9 GiB",
            "use engine.tensor_parallel = 8",
        ),
        (
            ["model.name=qwen2.5-32b", "workload.response_tokens.max=60000"],
            "workload.response_tokens.max",
            r"rollouts of up to 60000 tokens .* more than the \d+ tokens of KV cache of a replica",
            "lower it, or use engine.tensor_parallel = 2",
        ),
        (
            [
                "model.name=qwen2.5-32b",
                "workload.response_tokens={type = 'constant', value = 1000}",
                "workload.turns={number = {type = 'constant', value = 10},"
                " tool_time_s = {type = 'constant', value = 1},"
                " tool_tokens = {type = 'constant', value = 8000}}",
            ],
            "workload.response_tokens.value",
            "makes rollouts of up to 73000 tokens",
            "lower it",
        ),
        (
            ["model.name=qwen2.5-14b"],
            "trainer.pipeline_parallel",
            "makes training need .* GiB on each GPU .* 76.0 GiB of H100-SXM are usable",
            "raise it or trainer.tensor_parallel",
        ),
        (
            ["trainer.max_tokens_per_microbatch=262144"],
            "trainer.max_tokens_per_microbatch",
            r"micro-batch of 262144 tokens",
            r"use \d+ or less",
        ),
        (
            ["trainer.activation_checkpointing=false"],
            "trainer.activation_checkpointing",
            "makes training need",
            "set it to true",
        ),
    ],
)
def test_memory(scenario: Path, changes: list[str], key: str, rule: str, remedy: str) -> None:
    error = refused(scenario, *changes)
    assert error.key == key
    assert re.search(rule, error.rule)
    assert re.search(remedy, error.remedy)


def test_the_remedy_for_micro_batches_works(scenario: Path) -> None:
    error = refused(scenario, "trainer.max_tokens_per_microbatch=262144")
    tokens = re.search(r"use (\d+)", error.remedy)
    assert tokens is not None
    change = f"trainer.max_tokens_per_microbatch={tokens[1]}"
    assert load(scenario, [change]).scenario.trainer.max_tokens_per_microbatch == int(tokens[1])


# Bad input: the file itself


def test_missing_table(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("[run]\nsteps = 3\n")
    error = refused(path)
    remedy = "add a table [cluster] with hardware, rollout_gpus, trainer_gpus (and 3 more)"
    assert str(error) == f"{path}: cluster = <missing> is required; {remedy}"


def test_missing_key(scenario: Path) -> None:
    scenario.write_text(BASE.replace("steps = 10", ""))
    error = refused(scenario)
    assert str(error) == f"{scenario}: run.steps = <missing> is required; add steps = ... to [run]"


def test_a_misspelt_required_key_is_shown_before_the_missing_one(scenario: Path) -> None:
    scenario.write_text(BASE.replace("steps = 10", "setps = 10"))
    error = refused(scenario)
    assert error.key == "run.setps"
    assert error.remedy.startswith("did you mean 'steps'?")
    assert error.remedy.endswith("(and 1 more)")


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("[run]\nsteps = = 3\n", "line 2", "'steps = = 3'"),
        ("[run\n", "line 1", "'[run'"),
        ("x", "line 1", "'x'"),
    ],
)
def test_not_toml(tmp_path: Path, text: str, key: str, value: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text(text)
    error = refused(path)
    assert str(error).startswith(f"{path}: {key} = {value} is not valid TOML: ")


def test_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b"# \xff\n")
    assert str(refused(path)) == f"{path}: file = byte 2 is not UTF-8; save it as UTF-8"


def test_no_such_file() -> None:
    error = refused("areal/tabel7")
    assert str(error).startswith(
        "areal/tabel7: scenario = 'areal/tabel7' is neither a file nor a shipped scenario; "
        "did you mean 'areal/table7'? shipped scenarios: areal/fig5c, "
    )


def test_a_folder_is_not_a_scenario(tmp_path: Path) -> None:
    assert refused(tmp_path).rule == "is neither a file nor a shipped scenario"


def test_a_wrong_hardware_file_is_named(scenario: Path) -> None:
    (scenario.parent / "mine.toml").write_text("name = 'mine'\nflops = 1e12\n")
    error = refused(scenario, "cluster.hardware=mine.toml")
    assert str(error).startswith(
        f"{scenario.parent / 'mine.toml'}: flops = 1000000000000.0 is not a known key; "
    )
    assert "did you mean 'flops_per_s'?" in error.remedy


def test_nothing_is_executed(scenario: Path) -> None:
    error = refused(scenario, "run.steps=__import__('os').getpid()")
    assert error.value == "__import__('os').getpid()"


@pytest.mark.parametrize(
    "text", ["9" * 30, "9" * 5000, "[" * 3000, "{a = " * 3000, "\0", "x" * 3000 + ".toml"]
)
@pytest.mark.parametrize("key", ["run.steps", "trainer.max_tokens_per_microbatch", "zzz", "cluster.hardware"])
def test_hostile_values_are_refused_in_one_short_line(scenario: Path, key: str, text: str) -> None:
    message = str(refused(scenario, f"{key}={text}"))
    assert "\n" not in message
    assert len(message) < 700


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 3000])
def test_hostile_files_are_refused(scenario: Path, value: str) -> None:
    scenario.write_text(f"x = {value}\n")
    assert refused(scenario).where == str(scenario)


def test_integers_that_overflow_are_refused(scenario: Path) -> None:
    error = refused(scenario, f"run.steps={2**53 + 1}")
    message = f"run.steps = {2**53 + 1} is too large; use {2**53} or less"
    assert str(error) == f"{scenario}: {message}"


# Round trip


@pytest.mark.parametrize("staleness", ["3", "inf"])
def test_json_round_trip(scenario: Path, staleness: str) -> None:
    resolved = load(
        scenario,
        [
            f"policy.max_staleness={staleness}",
            "policy.limits=[1, 2]",
            "workload.drift=[{step = 1, scale = 2}]",
            "faults.replica=[{replica = 0, at_s = 1, down_s = 2}]",
        ],
    )
    text = to_json(resolved)
    assert "Infinity" not in text
    assert from_json(text) == resolved


@pytest.mark.parametrize("name", ["areal/table7", "areal/table1_32b_sync"])
def test_shipped_scenarios_survive_json(name: str) -> None:
    resolved = load(name)
    assert from_json(to_json(resolved)) == resolved


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "r.json: file = line 1, column 2 is not JSON: "),
        ("{}", "r.json: where = <missing> is required; add where = ... to the file (and 3 more)"),
    ],
)
def test_from_json_refuses(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        from_json(text, "r.json")
    assert str(caught.value).startswith(message)


# Listings


def test_listings() -> None:
    assert shipped() == sorted(shipped())
    assert "areal/fig5c" in shipped()
    assert not [name for name in shipped() if name.startswith(("hardware", "models", "fits"))]
    assert available("hardware") == ["a100", "b200", "cpu_core", "h100", "h20", "h200", "h800", "mi300x"]


def test_load_by_name() -> None:
    assert load_hardware("h800").fits_as == "h100_sxm"
    assert load_model("deepseek-r1-distill-qwen-7b").fits_as == "Qwen2.5-7B"
