"""Scenarios for the tests of cost models and workload, built without a file."""

from typing import Any

from hypothesis import strategies as st

from interfaces.distributions import Constant
from interfaces.hardware import Efficiencies, Hardware, Model
from interfaces.scenario import (
    Cluster,
    Cost,
    Engine,
    ModelChoice,
    PolicyChoice,
    Resolved,
    Run,
    Scenario,
    Trainer,
    WeightSyncChoice,
    Workload,
)
from interfaces.scenario_file import available, load_hardware, load_model

PERFECT = {
    "decode_weight_bandwidth_share": 1.0,
    "decode_kv_bandwidth_share": 1.0,
    "decode_flops_share": 1.0,
    "prefill_flops_share": 1.0,
    "training_flops_share": 0.75,
    "step_overhead_s": 0.0,
    "layer_overhead_s": 0.0,
    "request_overhead_s": 0.0,
    "microbatch_overhead_s": 0.0,
}
"""Efficiencies of a machine without losses; 0.75 useful is 1.0 with activations recomputed."""

ROUND = {
    "flops_per_s": 1e15,
    "hbm_bytes": 1e11,
    "hbm_bytes_per_s": 1e12,
    "nvlink_bytes_per_s": 1e11,
    "network_bytes_per_s": 1e10,
    "host_link_bytes_per_s": 5e9,
    "storage_bytes_per_s": 4e9,
    "gpus_per_node": 8,
    "allreduce_latency_s": 1e-6,
}
"""A GPU with round numbers."""


def efficiencies(**changes: float) -> Efficiencies:
    return Efficiencies.model_validate(PERFECT | changes)


def hardware(shares: Efficiencies | None = None, **changes: float) -> Hardware:
    base = {"name": "round", "source": "made up", "efficiencies": shares or efficiencies()}
    return Hardware.model_validate(base | ROUND | changes)


def dense(**changes: int) -> Model:
    """1e9 parameters, 4 layers, KV of 2 * 2 * 4 * 2 * 64 = 2048 bytes a token."""
    shape = {"layers": 4, "hidden": 1000, "heads": 8, "kv_heads": 2, "head_dim": 64, "vocab": 100_000}
    sizes = {"params": 1_000_000_000, "matmul_params": 900_000_000}
    return Model.model_validate({"name": "toy", "source": "made up"} | shape | sizes | changes)


def resolved(
    *,
    machine: Hardware | str = "h800",
    model: Model | str = "qwen2.5-7b",
    rollout_gpus: int = 8,
    trainer_gpus: int = 8,
    engine: dict[str, Any] | None = None,
    trainer: dict[str, Any] | None = None,
    sync: dict[str, Any] | None = None,
    cost: dict[str, Any] | None = None,
    where: str = "here/scenario.toml",
) -> Resolved:
    """A scenario of these parts; everything else is a default."""
    the_hardware = load_hardware(machine) if isinstance(machine, str) else machine
    the_model = load_model(model) if isinstance(model, str) else model
    scenario = Scenario(
        run=Run(steps=10),
        cluster=Cluster(hardware=the_hardware.name, rollout_gpus=rollout_gpus, trainer_gpus=trainer_gpus),
        model=ModelChoice(name=the_model.name),
        engine=Engine(**(engine or {})),
        trainer=Trainer(**(trainer or {})),
        weight_sync=WeightSyncChoice(**(sync or {})),
        workload=Workload(
            batch_size=8, group_size=4, response_tokens=Constant(type="constant", value=1000.0)
        ),
        policy=PolicyChoice(name="areal"),
        cost=Cost(**(cost or {})),
    )
    return Resolved(where=where, scenario=scenario, hardware=the_hardware, model=the_model)


shipped_pairs = st.builds(
    lambda machine, model, ranks, engine, kind, slots: resolved(
        machine=machine,
        model=model,
        engine={"name": engine, "tensor_parallel": ranks, "max_num_seqs": slots},
        cost={"model": kind},
    ),
    st.sampled_from(available("hardware")),
    st.sampled_from(available("models")),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["vllm", "sglang"]),
    st.sampled_from(["roofline", "fitted"]),
    st.sampled_from([1, 64]),
)
"""Every shipped GPU with every shipped model, engine and parallelism, under both physical cost models."""
