"""Starting and ending engine processes: within a deadline, one at a time, leaving nothing behind."""

import asyncio
import multiprocessing
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import psutil

from areal_real.engine import cpu
from areal_real.engine.config import EngineConfig
from areal_real.engine.errors import EngineError
from areal_real.engine.meter import Step
from areal_real.engine.statistics import logger_for

CLIENT = "AREAL_ENGINE_CLIENT"
"""Environment of an engine process: pid of the process that it must not outlive."""
CORES = "AREAL_ENGINE_CORES"
"""Environment of an engine process on a CPU: its cores, separated by commas."""
GIVE_UP_ATTEMPTS = 100
"""Every 0.2 s, to kill what a start that is given up has begun."""
ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # stdout is for results
    "VLLM_NO_USAGE_STATS": "1",
}
_ONE_AT_A_TIME = threading.Lock()
"""What an engine process reads from the environment must not change while it starts."""


def import_vllm(model: Path) -> None:
    """Import vLLM for a model, with the environment it needs; its own warnings are not ours to answer for."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    without_cuda = not _has_cuda()
    if without_cuda:
        cpu.set_environment()
    with warnings.catch_warnings(), cpu.without_torchcodec() if without_cuda else nullcontext():
        warnings.simplefilter("ignore")
        import vllm.v1.engine.async_llm  # noqa: F401, PLC0415

        if on_cpu():
            cpu.import_for_fork(model)


def on_cpu() -> bool:
    """Whether the installed vLLM is built for CPUs."""
    from vllm.platforms import current_platform  # noqa: PLC0415

    return bool(current_platform.is_cpu())


def _has_cuda() -> bool:
    import torch  # noqa: PLC0415

    return torch.cuda.is_available()


def vllm_arguments(config: EngineConfig) -> dict[str, Any]:
    """Arguments of vLLM's `AsyncEngineArgs`."""
    from vllm.config import WeightTransferConfig  # noqa: PLC0415

    device = cpu.arguments(config) if on_cpu() else {"gpu_memory_utilization": config.gpu_memory_utilization}
    return {
        "model": str(config.model),
        "dtype": config.dtype,
        "seed": config.seed,
        "tensor_parallel_size": config.tensor_parallel,
        "max_model_len": config.context_limit_tokens,
        "max_num_seqs": config.max_num_seqs,
        "max_num_batched_tokens": max(config.max_num_batched_tokens, config.max_num_seqs),
        "enable_prefix_caching": config.prefix_caching,
        "skip_tokenizer_init": True,
        "use_tqdm_on_load": False,
        "logprobs_mode": "processed_logprobs",
        "worker_extension_cls": "areal_real.engine.worker.WorkerExtension",
        "weight_transfer_config": WeightTransferConfig(backend=config.transfer.backend),
        "enable_logging_iteration_details": True,
        **device,
    }


async def launch(config: EngineConfig, replica: int, took: Callable[[Step], None]) -> Any:
    """Start an engine and return vLLM's `AsyncLLM`; `took` is told of every step it takes.

    Raises:
        EngineError: it does not start, or not within `start_deadline_s`; nothing of it is left.
    """
    build = _Build(config, took)
    building = asyncio.get_running_loop().run_in_executor(None, build.run)
    look = "look at the engine's own messages"
    try:
        done, _ = await asyncio.wait({building}, timeout=config.start_deadline_s)
    except asyncio.CancelledError:
        await build.give_up(building)
        raise
    if not done:
        await build.give_up(building)
        raise EngineError(replica, f"did not start within {config.start_deadline_s:g} s", look)
    try:
        return building.result()
    except Exception as error:
        raise EngineError(replica, f"did not start ({type(error).__name__}: {error})", look) from error


class _Build:
    """One attempt to start an engine, in a thread: vLLM's constructor blocks, and has no time-out."""

    def __init__(self, config: EngineConfig, took: Callable[[Step], None]) -> None:
        self._config = config
        self._took = took
        self._others: set[int | None] | None = None
        """Children that were there before; None while it has not begun."""
        self._unwanted = False

    def run(self) -> Any:
        """Build the engine; blocks."""
        with _ONE_AT_A_TIME, warnings.catch_warnings():
            if self._unwanted:
                return None
            self._others = {process.pid for process in multiprocessing.active_children()}
            try:
                return self._construct()
            finally:
                self._others = None

    def _construct(self) -> Any:
        warnings.simplefilter("ignore")
        import_vllm(self._config.model)
        from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: PLC0415
        from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415
        from vllm.v1.executor import Executor  # noqa: PLC0415

        with _environment_of(self._config):
            vllm_config = AsyncEngineArgs(**vllm_arguments(self._config)).create_engine_config()
            if on_cpu():
                cpu.prefer_fork()
            return AsyncLLM(
                vllm_config=vllm_config,
                executor_class=Executor.get_class(vllm_config),
                log_stats=False,
                log_requests=False,
                stat_loggers=[logger_for(self._took)],
            )

    async def give_up(self, building: "asyncio.Future[Any]") -> None:
        """Kill what it started; the constructor then fails at once."""
        self._unwanted = True
        for _ in range(GIVE_UP_ATTEMPTS):
            if building.done():
                break
            if self._others is not None:
                for process in multiprocessing.active_children():
                    if process.pid not in self._others and process.name.startswith("EngineCore"):
                        kill(family_of(process.pid))
            await asyncio.wait({building}, timeout=0.2)
        if building.done() and building.exception() is None and building.result() is not None:
            await asyncio.to_thread(end, building.result())


@contextmanager
def _environment_of(config: EngineConfig) -> Iterator[None]:
    """The environment that the engine process inherits; what vLLM preloads there is not for others."""
    preload = os.environ.get("LD_PRELOAD")
    os.environ[CLIENT] = str(os.getpid())
    if on_cpu():
        os.environ[CORES] = ",".join(map(str, config.cores))
    try:
        yield
    finally:
        for name in (CLIENT, CORES, "LD_PRELOAD"):
            os.environ.pop(name, None)
        if preload is not None:
            os.environ["LD_PRELOAD"] = preload


def family_of(pid: int | None) -> list[psutil.Process]:
    """A process with all its descendants; empty if it is gone."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def processes_of(engine: Any) -> list[psutil.Process]:
    """Processes of an engine, its own first."""
    manager = engine.engine_core.resources.engine_manager
    return [member for process in manager.processes for member in family_of(process.pid)]


def kill(processes: list[psutil.Process]) -> None:
    """Kill processes that may be stuck."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def end(engine: Any) -> None:
    """End an engine at once, whatever it does, with all its processes."""
    processes = processes_of(engine)
    engine.shutdown(timeout=0)
    engine.shutdown = lambda *_, **__: None  # its finalizer would call it at interpreter exit, and fail
    kill(processes)
    psutil.wait_procs(processes, timeout=5.0)
