"""Weights of one policy version as one safetensors file: written whole or not at all, checked before use.

The header names every tensor with its shape and type; its metadata hold the version and a checksum of all
bytes. Whoever reads compares the header with the model it has, before it touches the first byte.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from interfaces.errors import TestbedError
from interfaces.rollout import PolicyVersion

if TYPE_CHECKING:
    import torch

SIZES = {"F32": 4, "F16": 2, "BF16": 2}
"""Bytes of one element, by the names of the safetensors format: the types that weights may have."""


class WeightFileError(TestbedError):
    """A weight file cannot be written, read, or used for this model."""

    exit_code = 6

    def __init__(self, path: Path, what: str, remedy: str) -> None:
        self.path, self.what, self.remedy = path, what, remedy
        super().__init__(f"{path}: {what}; {remedy}")


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a weight file."""

    shape: tuple[int, ...]
    dtype: str
    """`F32`, `BF16` or `F16`."""
    begin: int
    end: int
    """Its bytes, counted from the end of the header."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the header of a weight file says."""

    version: PolicyVersion | None
    """None: a file that another program wrote."""
    checksum: str
    """`Checksum` of all tensors; empty in a file that another program wrote."""
    tensors: Mapping[str, TensorInfo]
    size_bytes: int
    """Of the whole file."""


class Checksum:
    """blake2b (128 bit) over the names and bytes of tensors, in the order of their names."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, name: str, tensor: "torch.Tensor") -> None:
        """Take in one tensor; names must come sorted."""
        import torch  # noqa: PLC0415

        self._hash.update(name.encode())
        if tensor.numel():
            self._hash.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)

    def hexdigest(self) -> str:
        """Of all that was added."""
        return self._hash.hexdigest()


def checksum_of(tensors: Iterable[tuple[str, "torch.Tensor"]]) -> str:
    """Checksum of named tensors, in any order."""
    checksum = Checksum()
    for name, tensor in sorted(tensors, key=lambda item: item[0]):
        checksum.add(name, tensor)
    return checksum.hexdigest()


def weights_path(directory: Path, version: PolicyVersion) -> Path:
    """Where the weights of a version lie."""
    return directory / f"v{version}.safetensors"


def write_weights(path: Path, state: Mapping[str, "torch.Tensor"], version: PolicyVersion) -> Manifest:
    """Write the weights of a version and return what was written.

    The file appears under its name whole or not at all. Tied tensors are written once, under the name
    that comes first in `state`.

    Raises:
        WeightFileError: the disk is full, the directory cannot be written, or a type is not allowed.
    """
    from safetensors import SafetensorError  # noqa: PLC0415
    from safetensors.torch import save_file  # noqa: PLC0415

    tensors: dict[str, torch.Tensor] = {}
    seen: set[tuple[int, tuple[int, ...]]] = set()
    for name, tensor in state.items():
        key = (tensor.data_ptr(), tuple(tensor.shape))
        if key not in seen or not tensor.numel():
            tensors[name] = tensor.detach().contiguous()
        seen.add(key)
    checksum = checksum_of(tensors.items())
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, temporary, metadata={"version": str(version), "checksum": checksum})
        manifest = read_manifest(temporary)
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        raise WeightFileError(
            path, f"cannot be written ({error})", "free space there or choose another directory"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return manifest


def read_manifest(path: Path) -> Manifest:
    """Read the header of a safetensors file and check that the file is as long as it says.

    Raises:
        WeightFileError: there is no such file, it is cut short, or it is no safetensors file of weights.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= size - 8:
                raise ValueError(f"header of {length} bytes in a file of {size}")
            header = json.loads(file.read(length))
        metadata = header.pop("__metadata__", {})
        tensors = {name: _tensor_info(name, entry) for name, entry in header.items()}
        end = max((info.end for info in tensors.values()), default=0)
        if size != 8 + length + end:
            raise ValueError(f"{size} bytes, where the header says {8 + length + end}")
        version = metadata.get("version")
        return Manifest(
            None if version is None else int(version), metadata.get("checksum", ""), tensors, size
        )
    except OSError as error:
        raise WeightFileError(path, f"cannot be read ({error})", "publish this version again") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise WeightFileError(
            path, f"is no whole weight file ({error})", "publish this version again"
        ) from error


def _tensor_info(name: str, entry: Mapping[str, object]) -> TensorInfo:
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if dtype not in SIZES:
        raise ValueError(f"{name} has type {dtype}, allowed are {', '.join(SIZES)}")
    assert isinstance(dtype, str)
    assert isinstance(shape, list)
    assert isinstance(offsets, list)
    begin, end = offsets
    count = 1
    for length in shape:
        count *= length
    if end - begin != count * SIZES[dtype]:
        raise ValueError(f"{name} has {end - begin} bytes, its shape {shape} needs {count * SIZES[dtype]}")
    return TensorInfo(tuple(shape), dtype, begin, end)


def read_model(directory: Path) -> Manifest:
    """Read the headers of all weight files of a Hugging Face model, as if they were one file.

    Raises:
        WeightFileError: there are none, or one of them is not whole.
    """
    paths = sorted(directory.glob("*.safetensors"))
    if not paths:
        raise WeightFileError(directory, "holds no *.safetensors", "save the model in that format")
    manifests = [read_manifest(path) for path in paths]
    tensors = {name: info for manifest in manifests for name, info in manifest.tensors.items()}
    return Manifest(None, "", tensors, sum(manifest.size_bytes for manifest in manifests))


def check_fits(path: Path, manifest: Manifest, model: Manifest, version: PolicyVersion) -> None:
    """Refuse weights that are not those of this version, or whose names or shapes are not the model's.

    Types may differ: the engine converts.

    Raises:
        WeightFileError: says which tensor, and what was expected.
    """
    remedy = "publish this version again, from the model that the engine was started with"
    if manifest.version != version:
        raise WeightFileError(path, f"holds version {manifest.version}, not {version}", remedy)
    missing = sorted(model.tensors.keys() - manifest.tensors.keys())
    unknown = sorted(manifest.tensors.keys() - model.tensors.keys())
    if missing or unknown:
        kinds = (("tensors missing", missing), ("tensors unknown to the model", unknown))
        what = [f"{len(names)} {kind} ({names[0]})" for kind, names in kinds if names]
        raise WeightFileError(path, " and ".join(what), remedy)
    for name, info in manifest.tensors.items():
        expected = model.tensors[name].shape
        if info.shape != expected:
            raise WeightFileError(path, f"{name} has shape {info.shape}, the model's is {expected}", remedy)


def check_bytes(path: Path, manifest: Manifest) -> None:
    """Refuse a file whose bytes are not those that were written.

    Raises:
        WeightFileError: the checksum differs.
    """
    from safetensors.torch import load_file  # noqa: PLC0415

    found = checksum_of(load_file(path).items())
    if found != manifest.checksum:
        raise WeightFileError(
            path, f"has checksum {found}, its header says {manifest.checksum}", "publish this version again"
        )
