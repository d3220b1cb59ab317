"""What an engine takes from a scenario, and what it refuses."""

import os
from pathlib import Path

import pytest

from areal_real.engine.config import EngineConfig, cores_of_replica
from areal_real.engine.transfer import FileTransfer, NcclTransfer
from areal_real.weight_file import Manifest, TensorInfo
from interfaces.errors import ScenarioError
from interfaces.scenario_file import load


def config(*sets: str, replica: int = 0) -> EngineConfig:
    return EngineConfig.from_scenario(
        load("areal/table1_1_5b_async", ("engine.name=vllm", "workload.response_tokens.max=100", *sets)),
        model=Path("m"), weights=Path("w"), eos_id=1, prompt_limit_tokens=33, replica=replica,
    )  # fmt: skip


def test_the_scenario_decides() -> None:
    made = config(
        "run.seed=5", "engine.max_num_seqs=12", "engine.max_num_batched_tokens=999", "real.temperature=0.5",
        "engine.prefix_caching=false", "real.dtype=bfloat16", "real.kv_cache_gib=0.5",
        "real.engine_cores=[4,5]", replica=3,
    )  # fmt: skip
    assert (made.seed, made.max_num_seqs, made.max_num_batched_tokens) == (5, 12, 999)
    assert (made.temperature, made.prefix_caching, made.dtype) == (0.5, False, "bfloat16")
    assert made.kv_cache_bytes == 2**29
    assert made.cores == (5,)
    assert (made.response_limit_tokens, made.context_limit_tokens) == (100, 133)


def test_replicas_take_the_first_half_of_the_cores_in_turn() -> None:
    cores = sorted(os.sched_getaffinity(0))
    half = cores[: max(1, len(cores) // 2)]
    taken = [cores_of_replica((), replica) for replica in range(2 * len(half))]
    assert taken == [(core,) for core in [*half, *half]]


def test_responses_without_an_upper_end_are_refused() -> None:
    sets = ("workload.response_tokens={type='exponential',mean=50.0}",)
    with pytest.raises(
        ScenarioError, match="has no upper end, which a real engine needs; give the distribution"
    ):
        config(*sets)


def test_another_engine_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"engine.name = 'sglang' cannot run here"):
        config("engine.name=sglang")


def test_each_transfer_says_what_vllm_wants_to_know() -> None:
    tensors = {"a": TensorInfo((2, 3), "BF16", 0, 12), "b": TensorInfo((), "F32", 12, 16)}
    manifest = Manifest(3, "abc", tensors, 100)
    file = FileTransfer()
    assert file.init_info is None
    assert file.update_info(Path("x/v3"), manifest) == {"path": "x/v3", "checksum": "abc"}
    nccl = NcclTransfer("host", 1234, world_size=5, rank_offset=3)
    assert nccl.backend == "nccl"
    assert nccl.init_info == {
        "master_address": "host", "master_port": 1234, "world_size": 5, "rank_offset": 3, "packed": True
    }  # fmt: skip
    assert nccl.update_info(Path("x/v3"), manifest) == {
        "names": ["a", "b"], "dtype_names": ["bfloat16", "float32"], "shapes": [[2, 3], []]
    }  # fmt: skip
