"""A running vLLM engine, reduced to what a replica asks of it; every answer has a deadline."""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Any, TypeVar

from areal_real.engine import launch
from areal_real.engine.config import EngineConfig
from areal_real.engine.transfer import Transfer
from areal_real.weight_file import Manifest
from interfaces.rollout import PolicyVersion

DIED = "the engine process died"
SLICES = 10
"""Fewest parts of a deadline. A client that stood still itself uses up one of them, not the whole."""
LONGEST_SLICE_S = 0.5
Answer = TypeVar("Answer")


class EngineDiedError(Exception):
    """The engine's process is gone, or no longer answers."""


class LiveEngine:
    """One life of an engine: from its start to its death or end."""

    def __init__(self, engine: Any, config: EngineConfig) -> None:
        self._engine = engine
        self._config = config
        self.processes = launch.processes_of(engine)

    @property
    def dead(self) -> bool:
        """Whether its process is known to have died."""
        return bool(self._engine.errored)

    async def submit(self, request_id: str, ids: list[int], salt: str, sampling: Any) -> Any:
        """Generate until the end, an abort or the limit; return vLLM's final output.

        Of an engine that dies in the middle it is what the client has received, ended by "abort".

        Raises:
            EngineDiedError: the engine died, and there is nothing.
        """
        from vllm.inputs import tokens_input  # noqa: PLC0415
        from vllm.v1.engine.exceptions import EngineDeadError  # noqa: PLC0415

        output = None
        try:
            prompt = tokens_input(ids, cache_salt=salt)
            async for part in self._engine.generate(prompt, sampling, request_id):
                output = part
        except EngineDeadError as error:
            output = self._received(request_id)
            if output is None:
                raise EngineDiedError(DIED) from error
        return output

    def _received(self, request_id: str) -> Any:
        from vllm.v1.engine import FinishReason  # noqa: PLC0415

        state = self._state(request_id)
        return state and state.make_request_output(
            new_token_ids=[], pooling_output=None, finish_reason=FinishReason.ABORT, stop_reason=None
        )

    async def abort(self, request_ids: Sequence[str]) -> None:
        """End requests; each ends with what it has, also when the engine itself does not answer."""
        from vllm.v1.engine.exceptions import EngineDeadError  # noqa: PLC0415

        with suppress(EngineDeadError):
            await self._engine.abort(request_ids)

    def started(self, request_id: str) -> bool:
        """Whether a request has its first token."""
        state = self._state(request_id)
        return state is not None and not state.is_prefilling

    def _state(self, request_id: str) -> Any:
        """What vLLM's client has of a request; None if it is not (or no longer) there."""
        processor = self._engine.output_processor
        names = processor.external_req_ids.get(request_id, ())
        return next((state for name in names if (state := processor.request_states.get(name))), None)

    async def pause(self, *, clear_cache: bool) -> None:
        """Finish the running step, then stand still; with `clear_cache` all KV is dropped."""
        await self._answer(
            self._engine.engine_core.pause_scheduler_async(mode="keep", clear_cache=clear_cache), "pause"
        )
        await asyncio.sleep(0)

    async def resume(self) -> None:
        """Go on with what was held."""
        await self._answer(self._engine.resume_generation(), "resume")

    async def name_version(self, version: PolicyVersion) -> None:
        """Label the tokens to come."""
        await self._answer(self._engine.update_weight_version(str(version)), "version")

    async def join(self, transfer: Transfer) -> None:
        """Let the workers set up the transfer, where it needs that."""
        from vllm.distributed.weight_transfer.base import WeightTransferInitRequest  # noqa: PLC0415

        if transfer.init_info is not None:
            request = WeightTransferInitRequest(init_info=transfer.init_info)
            await self._answer(self._engine.init_weight_transfer_engine(request), "transfer set-up")

    async def update(self, transfer: Transfer, path: Path, manifest: Manifest, version: PolicyVersion) -> str:
        """Replace all weights while paused; returns the checksum of what was loaded, if it is taken."""
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest  # noqa: PLC0415

        request = WeightTransferUpdateRequest(update_info=transfer.update_info(path, manifest))
        await self._answer(self._engine.start_weight_update(), "start of the update")
        await self._answer(self._engine.update_weights(request), "update")
        await self._answer(
            self._engine.finish_weight_update(weight_version=str(version)), "end of the update"
        )
        checksums = await self._answer(self._engine.collective_rpc("loaded_checksum"), "checksum")
        return str(checksums[0])

    async def answer(self) -> None:
        """Return once it has answered anything.

        Raises:
            EngineDiedError: it died, or gives no answer within the deadline.
        """
        await self._answer(self._engine.get_weight_version(), "sign of life")

    async def _answer(self, question: Awaitable[Answer], what: str) -> Answer:
        from vllm.v1.engine.exceptions import EngineDeadError  # noqa: PLC0415

        deadline_s = self._config.answer_deadline_s
        slices = max(SLICES, ceil(deadline_s / LONGEST_SLICE_S))
        task = asyncio.ensure_future(question)
        try:
            for _ in range(slices):
                done, _ = await asyncio.wait({task}, timeout=deadline_s / slices)
                if done:
                    return task.result()
                if self.dead:  # vLLM leaves the questions of a dead engine open
                    raise EngineDiedError(DIED)
        except EngineDeadError as error:
            raise EngineDiedError(DIED) from error
        finally:
            task.cancel()
        raise EngineDiedError(f"no answer ({what}) for {deadline_s:g} s")

    @staticmethod
    def clock_offset_s(now: float) -> float:
        """What must be added to the engine's time stamps (monotonic, same machine) to be on our clock."""
        return now - time.monotonic()

    async def end(self) -> None:
        """End all its processes at once."""
        if self._engine.output_handler is not None:  # else it would call this an error
            self._engine.output_handler.cancel()
        await asyncio.to_thread(launch.end, self._engine)
