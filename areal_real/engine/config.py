"""What one replica is started with, from the scenario and the task."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from areal_real.engine.transfer import FileTransfer, Transfer
from interfaces.errors import ScenarioError
from interfaces.scenario import Resolved

FROM_FILE = FileTransfer()


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything an engine needs; the same for all replicas but for `cores`."""

    model: Path
    """Directory of a Hugging Face causal LM: configuration, and the weights to start from."""
    weights: Path
    """Directory of published weights, `weight_file.weights_path`. A file stays until no replica serves it."""
    eos_id: int | None
    """Token that ends a response; None: every response runs to its limit (for measurements)."""
    prompt_limit_tokens: int
    """Longest prompt."""
    response_limit_tokens: int
    """Longest response, earlier segments included."""
    seed: int = 0
    dtype: Literal["float32", "bfloat16"] = "float32"
    temperature: float = 1.0
    tensor_parallel: int = 1
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    prefix_caching: bool = True
    gpu_memory_utilization: float = 0.9
    """GPU only."""
    kv_cache_bytes: int = 64 << 20
    """CPU only."""
    cores: tuple[int, ...] = ()
    """Cores that this replica may use; empty: all. CPU only."""
    transfer: Transfer = FROM_FILE
    """How weights reach the engine."""
    start_deadline_s: float = 120.0
    answer_deadline_s: float = 60.0
    """Longest time without an answer before an engine counts as hung."""
    max_restarts: int = 5
    """In a row, without one finished rollout between them."""

    @classmethod
    def from_scenario(
        cls, resolved: Resolved, *, model: Path, weights: Path, eos_id: int, prompt_limit_tokens: int,
        replica: int = 0,
    ) -> "EngineConfig":  # fmt: skip
        """Take the engine's part of a scenario.

        Args:
            resolved: the scenario.
            model: directory of the model that training starts from.
            weights: directory that versions are published in.
            eos_id: token that ends a response.
            prompt_limit_tokens: longest prompt of the task.
            replica: which one; it takes its turn of `real.engine_cores`.

        Raises:
            ScenarioError: responses have no longest length, or the engine of the scenario is not vLLM.
        """
        scenario = resolved.scenario
        engine, real = scenario.engine, scenario.real
        longest = scenario.workload.response_tokens.largest
        if longest is None or longest < 1:
            raise ScenarioError(
                resolved.where, "workload.response_tokens", longest, "has no upper end, which a real engine "
                "needs", "give the distribution a `max`",
            )  # fmt: skip
        if engine.name != "vllm":
            raise ScenarioError(
                resolved.where, "engine.name", engine.name, "cannot run here", 'use "vllm", or simulate it'
            )
        return cls(
            model=model,
            weights=weights,
            eos_id=eos_id,
            prompt_limit_tokens=prompt_limit_tokens,
            response_limit_tokens=int(longest),
            seed=scenario.run.seed,
            dtype=real.dtype,
            temperature=real.temperature,
            tensor_parallel=engine.tensor_parallel,
            max_num_seqs=engine.max_num_seqs,
            max_num_batched_tokens=engine.max_num_batched_tokens,
            prefix_caching=engine.prefix_caching,
            gpu_memory_utilization=engine.gpu_memory_utilization,
            kv_cache_bytes=int(real.kv_cache_gib * 2**30),
            cores=cores_of_replica(real.engine_cores, replica),
        )

    @property
    def context_limit_tokens(self) -> int:
        """Longest prompt + response."""
        return self.prompt_limit_tokens + self.response_limit_tokens


def cores_of_replica(engine_cores: tuple[int, ...], replica: int) -> tuple[int, ...]:
    """The core of one replica: they are taken in turn; without a choice, from the first half of all."""
    cores = engine_cores or _first_half()
    return (cores[replica % len(cores)],)


def _first_half() -> tuple[int, ...]:
    cores = sorted(os.sched_getaffinity(0))
    return tuple(cores[: max(1, len(cores) // 2)])
