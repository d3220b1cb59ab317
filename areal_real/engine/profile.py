"""Times of one engine, measured alone: decode steps, prefills, loads; rows of `interfaces.profile`."""

import asyncio
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from areal_real.engine import launch
from areal_real.engine.config import EngineConfig
from areal_real.engine.live import LiveEngine
from areal_real.engine.meter import Step
from areal_real.weight_file import write_weights
from interfaces.profile import DecodeRow, LoadRow, Measurement, PrefillRow

FIRST_TOKEN = 3
"""Prompts are made of ids from here on; what they say does not matter."""
WARM_UP_STEPS = 4
PREFILLED_TOGETHER = (1, 4, 16)
"""Sequences of one prefill."""


@dataclass(frozen=True, slots=True)
class Grid:
    """What to measure."""

    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    """Tokens of each sequence when its decoding begins, and of each prefill."""
    steps: int = 24
    """Decode steps of each pair; a row holds their median."""
    repeats: int = 3
    """Rows of each prefill and of each pair of batch and context."""
    loads: int = 5

    @classmethod
    def of(cls, config: EngineConfig) -> "Grid":
        """Batches up to the engine's largest, each twice the last; short, middle and long contexts."""
        batches = {config.max_num_seqs}
        batches |= {2**power for power in range(16) if 2**power < config.max_num_seqs}
        longest = max(8, config.context_limit_tokens - 32)
        contexts = {max(8, longest // 16), max(8, longest // 4), longest}
        return cls(tuple(sorted(batches)), tuple(sorted(contexts)))


async def measure(config: EngineConfig, grid: Grid | None = None) -> list[Measurement]:
    """Start an engine for a scenario, measure it, end it.

    Raises:
        EngineError: it does not start.
    """
    grid = grid or Grid.of(config)
    longest = max(grid.contexts) + grid.steps + WARM_UP_STEPS + 2
    config = replace(
        config, eos_id=None, prefix_caching=False,
        prompt_limit_tokens=max(grid.contexts), response_limit_tokens=longest - max(grid.contexts),
    )  # fmt: skip
    steps: list[tuple[float, Step]] = []
    engine = LiveEngine(
        await launch.launch(config, 0, lambda step: steps.append((time.monotonic(), step))), config
    )
    try:
        profiler = _Profiler(engine, config, steps)
        await engine.name_version(0)
        rows: list[Measurement] = []
        for context in grid.contexts * grid.repeats:
            together = (sequences for sequences in PREFILLED_TOGETHER if sequences <= config.max_num_seqs)
            rows += [await profiler.prefill(context, sequences) for sequences in together]
            rows += [await profiler.decode(batch, context, grid.steps) for batch in grid.batches]
        return rows + await profiler.loads(grid.loads)
    finally:
        await engine.end()


class _Profiler:
    def __init__(self, engine: LiveEngine, config: EngineConfig, steps: list[tuple[float, Step]]) -> None:
        self._engine = engine
        self._config = config
        self._steps = steps
        self._requests = 0

    async def prefill(self, length: int, sequences: int) -> PrefillRow:
        """From the moment that prompts held back are let go until each has its first token."""
        await self._engine.pause(clear_cache=True)
        running = self._submit(sequences, length, new_tokens=1)
        await asyncio.sleep(0.05)
        self._steps.clear()
        began = time.monotonic()
        await self._engine.resume()
        await asyncio.gather(*running)
        seconds = self._steps[-1][0] - began
        return PrefillRow(
            tokens=length * sequences, squared_tokens=float(length**2 * sequences), sequences=sequences,
            seconds=seconds,
        )  # fmt: skip

    async def decode(self, batch: int, context: int, steps: int) -> DecodeRow:
        """Median over the steps in which all sequences of a batch, equally long, get a token."""
        self._steps.clear()
        await asyncio.gather(*self._submit(batch, context, new_tokens=steps + WARM_UP_STEPS))
        full = [at for at, step in self._steps if step.decoding == batch and not step.again_tokens]
        times = [later - earlier for earlier, later in pairwise(full)]
        middle = WARM_UP_STEPS + steps / 2
        return DecodeRow(
            batch=batch, context_tokens=batch * (context + middle), seconds=statistics.median(times)
        )

    def _submit(self, sequences: int, length: int, *, new_tokens: int) -> "list[asyncio.Task[Any]]":
        from vllm.sampling_params import RequestOutputKind, SamplingParams  # noqa: PLC0415

        tasks = []
        for _ in range(sequences):
            self._requests += 1
            sampling = SamplingParams(
                max_tokens=new_tokens, temperature=self._config.temperature, seed=self._requests, logprobs=0,
                ignore_eos=True, detokenize=False, output_kind=RequestOutputKind.FINAL_ONLY,
            )  # fmt: skip
            name = f"profile-{self._requests}"
            tasks.append(
                asyncio.create_task(self._engine.submit(name, [FIRST_TOKEN] * length, name, sampling))
            )
        return tasks

    async def loads(self, times: int) -> list[Measurement]:
        """The model's own weights, published once and loaded several times into the idle engine."""
        with tempfile.TemporaryDirectory(dir=_shared_memory()) as directory:
            path = Path(directory) / "weights.safetensors"
            manifest = await asyncio.to_thread(write_weights, path, _weights(self._config.model), 1)
            rows: list[Measurement] = []
            for _ in range(times):
                began = time.monotonic()
                await self._engine.pause(clear_cache=True)
                await self._engine.update(self._config.transfer, path, manifest, 1)
                await self._engine.resume()
                rows.append(LoadRow(bytes=manifest.size_bytes, seconds=time.monotonic() - began))
            return rows


def _weights(model: Path) -> dict[str, Any]:
    from safetensors.torch import load_file  # noqa: PLC0415

    files = [load_file(path) for path in sorted(model.glob("*.safetensors"))]
    return {name: tensor for file in files for name, tensor in file.items()}


def _shared_memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
