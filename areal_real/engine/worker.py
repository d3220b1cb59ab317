"""What runs inside the engine's process: how it takes new weights, and that it ends with its client.

vLLM imports this module in the worker, by name (`worker_extension_cls`). The client never imports it.
"""

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from vllm.config import set_current_vllm_config
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

from areal_real.engine import cpu
from areal_real.engine.launch import CLIENT, CORES
from areal_real.engine.transfer import FILE_BACKEND
from areal_real.weight_file import Checksum

WATCH_PERIOD_S = 0.5


@dataclass
class FileInitInfo(WeightTransferInitInfo):
    """Nothing needs to be agreed on beforehand."""


@dataclass
class FileUpdateInfo(WeightTransferUpdateInfo):
    """One published file with everything in it."""

    path: str
    checksum: str


class FileTransferEngine(WeightTransferEngine[FileInitInfo, FileUpdateInfo]):
    """Loads a whole safetensors file; `/dev/shm` makes it shared memory. The file must not be written to."""

    init_info_cls = FileInitInfo
    update_info_cls = FileUpdateInfo

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.loaded_checksum = ""
        self._held: dict[str, torch.Tensor] = {}
        """Padded embeddings are processed only at the end of an update; their source must live until then."""

    def init_transfer_engine(self, init_info: FileInitInfo) -> None:
        """Nothing to set up."""

    def start_weight_update(self) -> None:
        """Take the layers apart: weights in checkpoint format can be loaded, also where prepacked."""
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload  # noqa: PLC0415

        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: FileUpdateInfo) -> None:
        """Load every tensor of the file, and keep the checksum of what went into the model."""
        from safetensors.torch import load_file  # noqa: PLC0415

        self._held = load_file(update_info.path)
        checksum = Checksum()

        def tensors() -> Iterator[tuple[str, torch.Tensor]]:
            for name in sorted(self._held):
                checksum.add(name, self._held[name])
                yield name, self._held[name]

        with set_current_vllm_config(self.vllm_config):
            self.model.load_weights(tensors())
        self.loaded_checksum = checksum.hexdigest()
        if update_info.checksum and self.loaded_checksum != update_info.checksum:
            raise ValueError(f"checksum {self.loaded_checksum}, expected {update_info.checksum}")

    def finish_weight_update(self) -> None:
        """Put the layers together again."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload  # noqa: PLC0415

        with set_current_vllm_config(self.vllm_config):
            finalize_layerwise_reload(self.model, self.model_config)
        for head in self.model.modules():
            if isinstance(head, ParallelLMHead):
                # A tied head is not loaded itself, and on a CPU it computes with a packed copy of the
                # embedding: without this, vLLM 0.32 keeps the old one for ever.
                head.quant_method.process_weights_after_loading(head)
        self._held = {}

    def shutdown(self) -> None:
        """Nothing to release."""


class WorkerExtension:
    """Methods added to vLLM's worker, called by name."""

    weight_transfer_engine: Any

    def loaded_checksum(self) -> str:
        """Of the weights loaded last; empty if the transfer does not take it."""
        return getattr(self.weight_transfer_engine, "loaded_checksum", "")


def _started_at(pid: int) -> str | None:
    """Start time of a living process, in clock ticks; None if it is gone or only waits to be buried."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else fields[18]


def _end_with(client: int) -> None:
    """End this process soon after its client, however that ended: a killed client cannot say goodbye."""
    started = _started_at(client)
    while started is not None and _started_at(client) == started:
        time.sleep(WATCH_PERIOD_S)
    os._exit(1)


def _settle() -> None:
    if FILE_BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(FILE_BACKEND, FileTransferEngine)
    if CORES in os.environ:
        cpu.settle_engine_process(tuple(int(core) for core in os.environ[CORES].split(",") if core))
    threading.Thread(target=_end_with, args=(int(os.environ[CLIENT]),), daemon=True, name="watch").start()


_settle()
