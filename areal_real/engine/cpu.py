"""All that is special about vLLM on a CPU; nothing else in this package asks which device it is.

One thread an engine, on the cores given to it: more threads spin and slow down the trainer beside it.
`TORCHDYNAMO_DISABLE` avoids 11 s of compilation at the first log-prob; the engine process is forked from this
one, which has imported vLLM already (2 s instead of 15 s a start).
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from areal_real.engine.config import EngineConfig

ENVIRONMENT = {
    "TORCHDYNAMO_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the worker lives in the engine's process, which stays its own
}
BLOCK_TOKENS = 32
"""Tokens of a KV block: the 128 that vLLM takes on a CPU would never share a short prompt."""


def set_environment() -> None:
    """Set what vLLM and torch read when they are imported."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def arguments(config: EngineConfig) -> dict[str, Any]:
    """Engine arguments that only a CPU needs.

    A prefill is never cut into chunks, so a step may need room for a whole context: after a chunk vLLM 0.32
    winds back the random numbers of a request that has a seed, which only CUDA generators can do (the engine
    dies of it).
    """
    return {
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(
            config.max_num_batched_tokens, config.max_num_seqs, config.context_limit_tokens
        ),
        "enforce_eager": True,
        "block_size": BLOCK_TOKENS,
        "kv_cache_memory_bytes": config.kv_cache_bytes,
    }


@contextmanager
def without_torchcodec() -> Iterator[None]:
    """Hide torchcodec while vLLM is imported: the build that pip finds wants CUDA and fails fatally."""
    hidden = "torchcodec" not in sys.modules
    if hidden:
        sys.modules["torchcodec"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hidden:
            del sys.modules["torchcodec"]


def import_for_fork(model: Path) -> None:
    """Import what an engine process needs, so that the fork has it; the class of the model above all.

    vLLM would start an interpreter of its own (8 CPU seconds) only to look at that class.
    """
    import vllm.v1.engine.core  # noqa: PLC0415
    import vllm.v1.worker.cpu_worker  # noqa: F401, PLC0415
    from vllm.model_executor.models.registry import ModelRegistry  # noqa: PLC0415

    architectures = json.loads((model / "config.json").read_text(encoding="utf-8")).get("architectures", ())
    for name in architectures:
        if name in ModelRegistry.models:  # an unknown one is refused by vLLM itself, with a list of the known
            ModelRegistry.register_model(name, ModelRegistry.models[name].load_model_cls())


def prefer_fork() -> None:
    """Fork the engine process. vLLM sets spawn while it makes its configuration, so this comes after that."""
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"
    _keep_signals_apart()


@cache
def _keep_signals_apart() -> None:
    """A forked engine has the pipe that wakes this process: its signals would be taken for ours."""
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))


def settle_engine_process(cores: tuple[int, ...]) -> None:
    """Within an engine process: one thread, on its cores."""
    import torch  # noqa: PLC0415

    if cores:
        os.sched_setaffinity(0, set(cores) & os.sched_getaffinity(0) or os.sched_getaffinity(0))
    torch.set_num_threads(1)
