"""Every file in `scenarios/` loads, and says what the paper and the model's config say."""

import math
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from interfaces import feasibility, memory
from interfaces.distributions import LogNormal
from interfaces.scenario import Scenario
from interfaces.scenario_file import available, load, load_hardware, load_model, shipped

FOLDER = Path(str(files("scenarios")))
TABLE1 = [
    f"areal/table1_{size}_{mode}" for size in ("1_5b", "7b", "14b", "32b") for mode in ("sync", "async")
]
PAPER = [*TABLE1, "areal/fig5c", "areal/table7", "areal/fig6b_1_5b", "areal/fig6b_7b"]

PUBLISHED_SIZES = {
    # parameters, parameters multiplied with each token, KV bytes a token (bf16)
    "deepseek-r1-distill-qwen-1.5b": (1_777_088_000, 1_543_712_768, 28_672),
    "deepseek-r1-distill-qwen-7b": (7_615_616_512, 7_070_615_552, 57_344),
    "deepseek-r1-distill-qwen-14b": (14_770_033_664, 13_991_460_864, 196_608),
    "deepseek-r1-distill-qwen-32b": (32_763_876_352, 31_985_303_552, 262_144),
    "letter-chain-s": (302_208, 302_080, 512),  # this project's own
    "llama-2-7b": (6_738_415_616, 6_607_339_520, 524_288),
    "llama-3.1-8b": (8_030_261_248, 7_504_920_576, 131_072),
    "qwen2.5-1.5b": (1_543_714_304, 1_543_712_768, 28_672),
    "qwen2.5-7b": (7_615_616_512, 7_070_615_552, 57_344),
    "qwen2.5-math-7b": (7_615_616_512, 7_070_615_552, 57_344),
    "qwen2.5-14b": (14_770_033_664, 13_991_460_864, 196_608),
    "qwen2.5-32b": (32_763_876_352, 31_985_303_552, 262_144),
    "qwen3-8b": (8_190_726_144, 7_568_392_192, 147_456),
    "qwen3-30b-a3b": (30_531_911_680, 3_041_656_832, 98_304),
    "qwen3-235b-a22b": (235_092_836_352, 21_567_635_456, 192_512),
}


def capped_mean(d: LogNormal) -> float:
    """Mean of a lognormal whose values above `max` become `max`."""
    assert d.max is not None
    mu, s, cap = math.log(d.median), d.sigma, math.log(d.max)

    def phi(z: float) -> float:
        return 0.5 * (1 + math.erf(z / math.sqrt(2)))

    return math.exp(mu + s * s / 2) * phi((cap - mu - s * s) / s) + d.max * (1 - phi((cap - mu) / s))


def truncated_share(d: LogNormal) -> float:
    assert d.max is not None
    return 0.5 * math.erfc(math.log(d.max / d.median) / d.sigma / math.sqrt(2))


def response(scenario: Scenario) -> LogNormal:
    assert isinstance(scenario.workload.response_tokens, LogNormal)
    return scenario.workload.response_tokens


def test_the_papers_experiments_are_all_here() -> None:
    assert [name for name in shipped() if name.startswith("areal/")] == sorted(PAPER)


@pytest.mark.parametrize("name", shipped())
def test_scenario_loads_and_its_replicas_hold_rollouts(name: str) -> None:
    resolved = load(name)
    capacity = memory.kv_capacity_tokens(resolved.hardware, resolved.model, resolved.scenario.engine)
    assert capacity > feasibility.longest_rollout_tokens(resolved.scenario)
    assert resolved.scenario.run.warmup_steps < resolved.scenario.run.steps


@pytest.mark.parametrize("name", [n for n in shipped() if n.startswith(("areal/", "published/"))])
def test_scenario_names_its_source_and_assumptions(name: str) -> None:
    text = (FOLDER / f"{name}.toml").read_text()
    system = {"areal": "# AReaL (arXiv 2505.24298), ", "published": "# verl"}[name.split("/", maxsplit=1)[0]]
    assert text.startswith(system)
    assert "Published" in text
    assert text.count("Assumption:") >= (2 if name.startswith("published/verl_sync") else 4)
    assert len(max(text.splitlines(), key=len)) <= 110


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*/*.toml")), ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_file_gives_sources(path: Path) -> None:
    text = path.read_text()
    assert "source" in text.lower() or "arXiv" in text
    assert text.startswith("# ")
    assert text.endswith("\n")


@pytest.mark.parametrize("name", [name for name in available("hardware") if name != "cpu_core"])
def test_hardware_loads(name: str) -> None:
    hardware = load_hardware(name)
    assert hardware.gpus_per_node == 8
    assert 1e14 < hardware.flops_per_s < 1e16
    assert 1e12 < hardware.hbm_bytes_per_s < 1e13
    assert 80 * 2**30 <= hardware.hbm_bytes <= 192 * 2**30
    assert hardware.network_bytes_per_s < hardware.nvlink_bytes_per_s < hardware.hbm_bytes_per_s
    assert hardware.efficiencies.decode_slowdown == 1.0


def test_h800_is_an_h100_with_less_nvlink() -> None:
    h800, h100 = load_hardware("h800"), load_hardware("h100")
    assert (h800.flops_per_s, h800.hbm_bytes_per_s, h800.fits_as) == (989e12, 3.35e12, "h100_sxm")
    assert (h100.flops_per_s, h100.hbm_bytes_per_s, h100.fits_as) == (989e12, 3.35e12, "h100_sxm")
    assert (h800.nvlink_bytes_per_s, h100.nvlink_bytes_per_s) == (200e9, 450e9)


def test_models_are_those_with_published_sizes() -> None:
    assert available("models") == sorted(PUBLISHED_SIZES)


@pytest.mark.parametrize("name", available("models"))
def test_model_sizes(name: str) -> None:
    model = load_model(name)
    sizes = (model.params, model.matmul_params, model.kv_bytes_per_token)
    assert sizes == PUBLISHED_SIZES[name]
    assert model.name.lower() == name


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "qwen3-235b-a22b"])
def test_active_parameters_of_a_mixture_follow_from_its_shape(name: str) -> None:
    m = load_model(name)
    assert m.experts is not None
    assert m.experts_per_token is not None
    assert m.expert_params is not None
    attention = 2 * m.hidden * m.head_dim * (m.heads + m.kv_heads)
    layer = attention + m.hidden * m.experts + m.experts_per_token * m.expert_params
    assert m.matmul_params == pytest.approx(m.layers * layer + m.vocab * m.hidden, rel=1e-3)


# What the paper states


@pytest.mark.parametrize(
    ("size", "gpus", "eta", "engine_tp", "trainer"),
    [
        ("1_5b", 128, 8, 1, (1, 2)),
        ("7b", 192, 8, 1, (1, 4)),
        ("14b", 256, 4, 2, (2, 4)),
        ("32b", 384, 4, 8, (2, 8)),
    ],
)
def test_table1(size: str, gpus: int, eta: int, engine_tp: int, trainer: tuple[int, int]) -> None:
    sync, asynchronous = (
        load(f"areal/table1_{size}_sync").scenario,
        load(f"areal/table1_{size}_async").scenario,
    )
    assert sync.policy.model_dump() == {"name": "sync"}
    expected = {"max_staleness": eta, "max_concurrent_groups": 512, "interruptible": True}
    assert asynchronous.policy.parameters == expected
    for scenario in (sync, asynchronous):
        assert scenario.cluster.rollout_gpus == gpus * 3 // 4
        assert scenario.cluster.trainer_gpus == gpus // 4
        assert (scenario.workload.batch_size, scenario.workload.group_size) == (512, 16)
        assert scenario.engine.tensor_parallel == engine_tp
        assert (scenario.trainer.tensor_parallel, scenario.trainer.pipeline_parallel) == trainer
        assert scenario.trainer.minibatches == 4
        assert response(scenario).max == 27648


@pytest.mark.parametrize("size", ["1_5b", "7b", "14b", "32b"])
def test_the_two_systems_of_table1_differ_in_their_schedule_only(size: str) -> None:
    sync, asynchronous = (
        load(f"areal/table1_{size}_sync").scenario,
        load(f"areal/table1_{size}_async").scenario,
    )
    ignored = {"run", "policy"}
    assert sync.model_dump(exclude=ignored) == asynchronous.model_dump(exclude=ignored)


@pytest.mark.parametrize("name", ["areal/fig5c", "areal/table7"])
@pytest.mark.parametrize("eta", ["0", "1", "2", "4", "8", "16", "inf"])
def test_staleness_is_chosen_with_set(name: str, eta: str) -> None:
    resolved = load(name, [f"policy.max_staleness={eta}"])
    assert resolved.scenario.policy.parameters["max_staleness"] == float(eta)
    assert resolved.scenario.run.warmup_steps > 16


def test_table7_is_one_server() -> None:
    scenario = load("areal/table7").scenario
    assert (scenario.cluster.rollout_gpus, scenario.cluster.trainer_gpus) == (6, 2)
    assert (scenario.workload.batch_size, scenario.workload.group_size) == (64, 16)
    assert scenario.policy.parameters["max_concurrent_groups"] == 64


@pytest.mark.parametrize("size", ["1_5b", "7b"])
def test_fig6b(size: str) -> None:
    scenario = load(f"areal/fig6b_{size}", ["policy.interruptible=false"]).scenario
    assert scenario.policy.parameters["interruptible"] is False
    assert (scenario.cluster.rollout_gpus, scenario.cluster.trainer_gpus) == (24, 8)


@pytest.mark.parametrize("name", [n for n in PAPER if n not in ("areal/fig5c", "areal/table7")])
def test_lengths_at_27k(name: str) -> None:
    lengths = response(load(name).scenario)
    assert capped_mean(lengths) == pytest.approx(8300, rel=0.01)
    assert truncated_share(lengths) == pytest.approx(0.03, abs=0.001)


@pytest.mark.parametrize("name", ["areal/fig5c", "areal/table7"])
def test_lengths_at_8k(name: str) -> None:
    assert capped_mean(response(load(name).scenario)) == pytest.approx(4600, rel=0.001)


@pytest.mark.parametrize("name", PAPER)
def test_the_calibrated_value_is_one_for_the_whole_paper(name: str) -> None:
    assert load(name).scenario.reward.latency_s == load(PAPER[0]).scenario.reward.latency_s


# Measured decode steps


def fits() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads((FOLDER / "fits" / "decode.toml").read_text())


def test_decode_fits_are_complete() -> None:
    rows = fits()["fit"]
    keys = {(r["gpu"], r["backend"], r["version"], r["model"], r["tp"]) for r in rows}
    assert len(rows) == len(keys) == 66
    columns = {"gpu", "backend", "version", "model", "tp", "alpha_ms", "beta_ms_per_seq", "gamma_ms_per_ktok"}
    assert {frozenset(r) for r in rows} == {frozenset(columns | {"mape_pct", "max_ape_pct"})}


def test_decode_fit_of_the_papers_1_5b() -> None:
    wanted = ("h100_sxm", "sglang", "Qwen2.5-1.5B", 1)
    (row,) = [r for r in fits()["fit"] if (r["gpu"], r["backend"], r["model"], r["tp"]) == wanted]
    assert (row["alpha_ms"], row["beta_ms_per_seq"], row["gamma_ms_per_ktok"]) == (2.037, 0.00325, 0.009259)


def test_mixture_tables_rise() -> None:
    for row in fits()["moe"]:
        assert len(row["sequences"]) == len(row["f_ms"])
        assert row["f_ms"] == sorted(row["f_ms"])


@pytest.mark.parametrize("name", [n for n in PAPER if "32b" not in n])
def test_the_papers_engines_have_measured_decode_steps(name: str) -> None:
    r = load(name)
    engine = r.scenario.engine
    wanted = (r.hardware.fits_as, engine.name, r.model.fits_as, engine.tensor_parallel)
    assert wanted in {(f["gpu"], f["backend"], f["model"], f["tp"]) for f in fits()["fit"]}


@pytest.mark.parametrize("kind", ["hardware", "models"])
def test_fits_as_names_an_existing_row(kind: str) -> None:
    loader, column = (load_hardware, "gpu") if kind == "hardware" else (load_model, "model")
    known = {row[column] for row in fits()["fit"]}
    named = {loader(name).fits_as for name in available(kind)} - {None}
    assert named
    assert named <= known
