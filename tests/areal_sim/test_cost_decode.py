import tomllib
from importlib.resources import files
from itertools import product
from pathlib import Path

import pytest
from cost_scenarios import dense, efficiencies, hardware, resolved, shipped_pairs
from hypothesis import given
from hypothesis import strategies as st

from areal_sim.cost import Totals, build_cost
from areal_sim.cost.fitted import FittedCost
from areal_sim.cost.roofline import RooflineCost, RooflineKernels
from interfaces.errors import ScenarioError
from interfaces.scenario import Resolved
from interfaces.scenario_file import available, load_model


def step_s(cost: object, n: int, context: float) -> float:
    assert isinstance(cost, RooflineCost)
    return cost.decode_base_s(n) + cost.decode_per_context_token_s * context


@given(shipped_pairs, st.integers(1, 2000), st.floats(0, 1e8))
def test_no_decode_step_beats_the_hardware(scenario: Resolved, n: int, context: float) -> None:
    cost = build_cost(scenario)
    assert cost.floor is not None
    assert step_s(cost, n, context) >= cost.floor.decode_floor_s(n, context) * (1 - 1e-12)


@given(shipped_pairs, st.integers(1, 10**6), st.integers(0, 10**5))
def test_no_prefill_beats_the_hardware(scenario: Resolved, tokens: int, start: int) -> None:
    cost = build_cost(scenario)
    assert cost.floor is not None
    squared = float((start + tokens) ** 2 - start**2)
    assert cost.prefill_s(tokens, squared) >= cost.floor.prefill_floor_s(tokens, squared)


@given(shipped_pairs, st.integers(1, 500))
def test_a_larger_batch_never_takes_less(scenario: Resolved, n: int) -> None:
    cost = build_cost(scenario)
    assert cost.decode_base_s(n + 1) >= cost.decode_base_s(n)


def test_a_machine_without_losses_runs_at_its_floor() -> None:
    cost = RooflineCost(resolved(machine=hardware(), model=dense()))
    assert step_s(cost, 1, 0) == pytest.approx(1.8e9 / 1e12)  # 0.9e9 matmul parameters of 2 bytes
    assert step_s(cost, 1, 10_000) == pytest.approx((1.8e9 + 2048 * 10_000) / 1e12)
    assert step_s(cost, 2000, 0) == pytest.approx(2000 * 1.8e9 / 1e15)  # enough sequences to be FLOP-bound
    assert cost.floor.decode_floor_s(2000, 0) == pytest.approx(step_s(cost, 2000, 0))


def test_overheads_and_slowdown_add_up() -> None:
    shares = efficiencies(
        step_overhead_s=1e-3, layer_overhead_s=1e-4, request_overhead_s=1e-5, decode_slowdown=1.5
    )
    cost = RooflineCost(resolved(machine=hardware(shares), model=dense()))
    assert cost.decode_base_s(10) == pytest.approx(1.5 * (1.8e-3 + 1e-3 + 4 * 1e-4 + 10 * 1e-5))
    assert cost.decode_per_context_token_s == pytest.approx(1.5 * 2048 / 1e12)


def test_tensor_parallelism_splits_bytes_copies_kv_heads_and_adds_all_reduces() -> None:
    cost = RooflineCost(resolved(machine=hardware(), model=dense(), engine={"tensor_parallel": 4}))
    volume = 2 * 3 / 4 * 5 * 1000 * 2  # ring, 5 sequences, hidden 1000, bf16
    reduces = 2 * 4 * (1e-6 + volume / 1e11)
    assert cost.decode_base_s(5) == pytest.approx(1.8e9 / 4 / 1e12 + reduces)
    assert cost.decode_per_context_token_s == pytest.approx(1024 / 1e12)  # 2 KV heads on 4 ranks: one each


def test_a_mixture_reads_the_experts_that_its_tokens_touch() -> None:
    model = load_model("qwen3-30b-a3b")
    kernels = RooflineKernels(resolved(machine=hardware(), model=model))
    assert kernels.weights_s(1) == pytest.approx(2 * model.matmul_params / 1e12)
    assert model.expert_params is not None
    everything = model.matmul_params + 48 * (128 - 8) * model.expert_params
    assert kernels.weights_s(10_000) == pytest.approx(2 * everything / 1e12)
    assert 2 * everything == pytest.approx(model.weight_bytes, rel=0.02)  # all but the input embedding


def fits() -> list[dict[str, object]]:
    text = files("scenarios").joinpath("fits", "decode.toml").read_text("utf-8")
    rows = tomllib.loads(text)["fit"]
    assert isinstance(rows, list)
    return rows


def measured(gpu: str, model: str, tensor_parallel: int, engine: str = "vllm") -> FittedCost:
    setting = {"name": engine, "tensor_parallel": tensor_parallel}
    return FittedCost(resolved(machine=gpu, model=model, engine=setting))


def test_a_fit_is_used_as_measured_plus_the_engines_overheads() -> None:
    cost = measured("h100", "qwen2.5-7b", 1)
    overheads = 126e-6 + 28 * 32e-6 + 64 * 4e-6
    assert cost.decode_base_s(64) == pytest.approx((5.845 + 0.00857 * 64) * 1e-3 + overheads)
    assert cost.decode_per_context_token_s == pytest.approx(0.018283e-6)
    assert cost.provenance == "fitted: Qwen2.5-7B tp1 on h100_sxm, vllm 0.24.0, mean error of the fit 1.5 %"


def test_the_engine_decides_which_fit() -> None:
    assert "sglang 0.5.14" in measured("h100", "qwen2.5-7b", 1, "sglang").provenance


def test_the_h800_uses_the_fits_of_its_die() -> None:
    assert measured("h800", "qwen2.5-7b", 2).decode_base_s(1) == measured(
        "h100", "qwen2.5-7b", 2
    ).decode_base_s(1)


def test_an_untied_output_head_decodes_like_a_tied_one() -> None:
    tied, untied = (measured("h800", name, 1) for name in ("qwen2.5-1.5b", "deepseek-r1-distill-qwen-1.5b"))
    assert untied.provenance == tied.provenance
    assert untied.decode_base_s(32) == tied.decode_base_s(32)
    models = [load_model(name) for name in ("qwen2.5-1.5b", "deepseek-r1-distill-qwen-1.5b")]
    assert models[0].matmul_params == pytest.approx(models[1].matmul_params, rel=1e-5)


def test_a_mixture_prefers_the_table_by_batch_to_the_line() -> None:
    cost = measured("h100", "qwen3-30b-a3b", 1)
    assert "table by batch" in cost.provenance
    overheads = 126e-6 + 48 * 32e-6
    for n, milliseconds in ((16, 12.31), (40, (12.31 + 22.08) / 2), (512, 25.47 + (25.47 - 24.14) * 2)):
        assert cost.decode_base_s(n) == pytest.approx(milliseconds * 1e-3 + overheads + n * 4e-6)


def test_without_a_fit_the_roofline_answers_and_says_so() -> None:
    cost = measured("h20", "llama-2-7b", 1)
    roofline = RooflineCost(resolved(machine="h20", model="llama-2-7b"))
    assert cost.decode_base_s(8) == roofline.decode_base_s(8)
    assert cost.provenance == "roofline (no measured decode steps for Llama-2-7B tp1 on H20, vllm)"


def test_every_shipped_fit_is_reachable() -> None:
    reached = set()
    for gpu, model, ranks, engine in product(
        available("hardware"), available("models"), (1, 2, 4, 8), ("vllm", "sglang")
    ):
        setting = {"name": engine, "tensor_parallel": ranks, "max_num_seqs": 1}
        source = FittedCost(resolved(machine=gpu, model=model, engine=setting)).provenance
        reached.add(source.partition(", mean error")[0])
    for row in fits():
        line = f"fitted: {row['model']} tp{row['tp']} on {row['gpu']}, {row['backend']} {row['version']}"
        table = f"fitted: {row['model']} tp{row['tp']} on {row['gpu']}, table by batch"
        assert line in reached or table in reached


def test_roofline_and_measurement_agree_on_dense_models() -> None:
    for row in fits():
        if "A3B" in str(row["model"]) or "A22B" in str(row["model"]) or row["gpu"] == "cpu_core":
            continue
        gpu = {"h100_sxm": "h100", "h200_sxm": "h200", "b200_sxm": "b200", "a100_sxm": "a100"}[
            str(row["gpu"])
        ]
        engine = {"name": row["backend"], "tensor_parallel": row["tp"]}
        scenario = resolved(machine=gpu, model=str(row["model"]).lower(), engine=engine)
        ratio = step_s(RooflineCost(scenario), 64, 64 * 8000) / step_s(FittedCost(scenario), 64, 64 * 8000)
        assert 0.5 < ratio < 1.5, (row, ratio)


def write_fit(folder: Path, **changes: object) -> Path:
    row = {
        "gpu": "h100_sxm", "backend": "vllm", "version": "mine", "model": "Qwen2.5-7B", "tp": 1,
        "alpha_ms": 7.0, "beta_ms_per_seq": 0.0, "gamma_ms_per_ktok": 0.02, **changes,
    }  # fmt: skip
    lines = [f"{key} = {value!r}" for key, value in row.items()]
    (folder / "fit.toml").write_text("\n".join(["[[fit]]", *lines]))
    return folder / "scenario.toml"


def test_calibrated_coefficients_replace_the_shipped_ones(tmp_path: Path) -> None:
    where = write_fit(tmp_path)
    cost = build_cost(resolved(cost={"file": "fit.toml"}, where=str(where)))
    assert cost.decode_base_s(1) == pytest.approx(7e-3 + 126e-6 + 28 * 32e-6 + 4e-6)
    assert "vllm mine" in cost.provenance


def test_a_fit_below_the_floor_is_raised_to_it(tmp_path: Path) -> None:
    where = write_fit(tmp_path, alpha_ms=0.001, gamma_ms_per_ktok=0.0)
    machine = hardware(fits_as="h100_sxm")  # type: ignore[arg-type]
    cost = build_cost(resolved(machine=machine, cost={"file": "fit.toml"}, where=str(where)))
    assert cost.floor is not None
    assert cost.decode_base_s(1) == cost.floor.decode_base_s(1) > 1e-6
    assert cost.decode_per_context_token_s == cost.floor.decode_per_context_token_s > 0


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("[[fit", "is not a table of fits"),
        ("[[fit]]\ngpu = 3", "is not a table of fits"),
        ("", "has no fit for"),
    ],
)
def test_a_file_of_no_use_is_refused(tmp_path: Path, text: str, rule: str) -> None:
    (tmp_path / "fit.toml").write_text(text)
    with pytest.raises(ScenarioError, match=rule):
        build_cost(resolved(cost={"file": "fit.toml"}, where=str(tmp_path / "s.toml")))


def test_prefill_pays_overheads_and_a_read_of_the_weights_a_step() -> None:
    shares = efficiencies(step_overhead_s=1e-3, prefill_flops_share=0.5)
    engine = {"max_num_batched_tokens": 1000}
    cost, mixing = (
        RooflineCost(resolved(machine=hardware(shares), model=dense(), engine={"name": name, **engine}))
        for name in ("sglang", "vllm")
    )
    # 0.8e9 parameters without the head; attention 2 * 4 * 8 * 64 a squared token.
    flops = 2 * 0.8e9 * 50_000 + 4096 * 50_000.0**2
    assert cost.prefill_s(50_000, 50_000.0**2) == pytest.approx(flops / 0.5e15 + 50 * 1e-3)
    assert cost.prefill_s(10, 100.0) == pytest.approx(
        1.8e9 / 1e12 + 1e-3
    )  # few tokens: the weights are read anyway
    assert cost.prefill_s(0, 0.0) == 0
    # What rides in decode steps pays for its FLOPs alone.
    assert mixing.prefill_s(50_000, 50_000.0**2) == pytest.approx(flops / 0.5e15)


def test_run_floor_adds_up_what_a_run_did() -> None:
    scenario = resolved(machine=hardware(), model=dense(), rollout_gpus=4, trainer_gpus=2)
    floor = RooflineCost(scenario).floor
    totals = Totals(generated_tokens=1000, context_token_steps=1e6, decode_steps=100, trained_tokens=5000)
    run = floor.run(totals)
    assert run.rollout_bound == "hbm"
    assert run.rollout_s == pytest.approx((100 * 1.8e9 + 1e6 * 2048) / 1e12 / 4)
    assert run.trainer_s == pytest.approx(
        4 * 2 * 0.9e9 * 5000 / (2 * 1e15)
    )  # three forwards and the proximal one
    heavy = floor.run(totals._replace(prefill_tokens=10**9))
    assert heavy.rollout_bound == "flop"
    assert heavy.rollout_s > run.rollout_s


@given(shipped_pairs, st.lists(st.tuples(st.integers(1, 400), st.integers(0, 10**6)), min_size=1, max_size=5))
def test_a_run_takes_at_least_its_floor(scenario: Resolved, steps: list[tuple[int, int]]) -> None:
    cost = build_cost(scenario)
    assert cost.floor is not None
    seconds = sum(step_s(cost, n, context) for n, context in steps)
    totals = Totals(sum(n for n, _ in steps), float(sum(c for _, c in steps)), len(steps))
    replicas = scenario.scenario.cluster.rollout_gpus // scenario.scenario.engine.tensor_parallel
    assert seconds / replicas >= cost.floor.run(totals).rollout_s * (1 - 1e-12)
