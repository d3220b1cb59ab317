"""How new weights reach an engine: one place that knows vLLM's transfer backends and what each wants to know.

`file` is ours (`worker.py`) and reads the published file on any device. `nccl` is the broadcast that vLLM
brings along: the trainer opens the group (`NCCLTrainerWeightTransferEngine`) and sends while the engine
receives. It needs CUDA and is not covered by the tests.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from areal_real.weight_file import Manifest

FILE_BACKEND = "areal_file"
"""Name under which the file transfer is registered with vLLM."""
TORCH_NAMES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


class Transfer(Protocol):
    """One of vLLM's weight-transfer backends, seen from the client."""

    @property
    def backend(self) -> str:
        """Its name in vLLM's registry."""

    @property
    def init_info(self) -> dict[str, Any] | None:
        """What the workers agree on once after each start; None: nothing."""

    def update_info(self, path: Path, manifest: Manifest) -> dict[str, Any]:
        """What one update says about the weights to come."""


@dataclass(frozen=True)
class FileTransfer:
    """Workers read the published file themselves."""

    backend: str = FILE_BACKEND
    init_info: dict[str, Any] | None = None

    def update_info(self, path: Path, manifest: Manifest) -> dict[str, Any]:
        """Where the file is and what its tensors must add up to."""
        return {"path": str(path), "checksum": manifest.checksum}


@dataclass(frozen=True)
class NcclTransfer:
    """Workers take part in a broadcast whose rank 0 is the trainer."""

    address: str
    port: int
    world_size: int
    """The trainer and the workers of all replicas."""
    rank_offset: int
    """Rank of this replica's first worker."""
    backend: str = "nccl"

    @property
    def init_info(self) -> dict[str, Any] | None:
        """Where the group meets; `packed` is what vLLM's trainer side does by default."""
        return {
            "master_address": self.address,
            "master_port": self.port,
            "world_size": self.world_size,
            "rank_offset": self.rank_offset,
            "packed": True,
        }

    def update_info(self, path: Path, manifest: Manifest) -> dict[str, Any]:  # noqa: ARG002
        """Names, types and shapes, in the order in which the trainer sends."""
        tensors = manifest.tensors
        return {
            "names": list(tensors),
            "dtype_names": [TORCH_NAMES[info.dtype] for info in tensors.values()],
            "shapes": [list(info.shape) for info in tensors.values()],
        }
