"""Checkpoints: a directory that is whole or absent, model and optimizer as safetensors, scalars as JSON.

`step-N/` is written as `.step-N.tmp`, every file and the directory synced, then renamed; so a crash at any
moment, or a full disk, leaves the earlier checkpoints as they were. The two latest are kept: until the run
has recorded the newest, it would go on from the one before.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from areal_real.trainer.errors import CheckpointError
from areal_real.trainer.settings import CHECKPOINT_PREFIX
from interfaces.rollout import PolicyVersion

STATE = "trainer.json"
OPTIMIZER = "optimizer.state"
"""Safetensors too, but by a name that engines do not take for weights: they load all `*.safetensors`."""
TOKENIZER_FILES = ("tokenizer*", "vocab*", "merges*", "special_tokens*", "chat_template*", "*.model")
KEPT = 2


@dataclass(frozen=True, slots=True)
class TrainerState:
    """Scalars of a checkpoint. Randomness needs none: its streams are named by seed and version."""

    version: PolicyVersion


def write_checkpoint(
    path: Path, model: Any, optimizer: torch.optim.Optimizer, state: TrainerState, model_dir: Path
) -> None:
    """Write a checkpoint whole, or raise and leave what was there; older ones beyond the two latest go.

    Args:
        path: of the new checkpoint, as `settings.checkpoint_path` names it.
        model: a model of transformers.
        optimizer: over its parameters.
        state: scalars.
        model_dir: where the tokenizer's files are taken from.

    Raises:
        CheckpointError: the disk is full, or the directory cannot be written.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        model.save_pretrained(temporary)
        save_file(_optimizer_tensors(model, optimizer), temporary / OPTIMIZER)
        for pattern in TOKENIZER_FILES:
            for file in model_dir.glob(pattern):
                shutil.copy(file, temporary / file.name)
        sizes = {file.name: file.stat().st_size for file in sorted(temporary.iterdir())}
        (temporary / STATE).write_text(json.dumps({**asdict(state), "sizes": sizes}), encoding="utf-8")
        for file in temporary.iterdir():
            _sync(file)
        _sync(temporary)
        aside = _aside(path)
        shutil.rmtree(aside, ignore_errors=True)
        if path.exists():
            path.rename(aside)
        temporary.rename(path)
        _sync(path.parent)
        shutil.rmtree(aside, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(
            f"{path}: checkpoint cannot be written ({error}); earlier ones are whole. Free space "
            "there, or run with another --out"
        ) from error
    _prune(path.parent)


def read_optimizer(path: Path, model: Any, optimizer: torch.optim.Optimizer) -> None:
    """Give the optimizer the state of a checkpoint, whose weights the model has already.

    Raises:
        CheckpointError: the checkpoint belongs to another model.
    """
    tensors = load_file(path / OPTIMIZER)
    for name, parameter in model.named_parameters():
        entries = {
            key.rpartition("//")[2]: tensor for key, tensor in tensors.items() if key.startswith(f"{name}//")
        }
        if entries and entries["exp_avg"].shape != parameter.shape:
            raise CheckpointError(f"{path}: optimizer state of {name} has another shape than the model's")
        if entries:
            optimizer.state[parameter] = {
                key: tensor if key == "step" else tensor.to(parameter.device)
                for key, tensor in entries.items()
            }


def check_whole(path: Path) -> TrainerState:
    """Scalars of a checkpoint, once all its files have the sizes they were written with.

    Raises:
        CheckpointError: it is missing or not whole.
    """
    if not path.exists() and _aside(path).exists():
        _aside(path).rename(path)  # a crash while it was being replaced
    try:
        data: Mapping[str, Any] = json.loads((path / STATE).read_text(encoding="utf-8"))
        for name, size in data["sizes"].items():
            if (found := (path / name).stat().st_size) != size:
                raise CheckpointError(
                    f"{path / name}: has {found} bytes instead of {size}; use another checkpoint"
                )
        return TrainerState(version=int(data["version"]))
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path}: no whole checkpoint ({error}); use another one") from error


def _optimizer_tensors(model: Any, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    return {
        f"{name}//{key}": value.contiguous()
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def _aside(path: Path) -> Path:
    """Where a checkpoint of the same name waits until the new one has its place."""
    return path.with_name(f".{path.name}.old")


def _prune(directory: Path) -> None:
    steps = [
        (int(number), path)
        for path in directory.glob(f"{CHECKPOINT_PREFIX}*")
        if (number := path.name.removeprefix(CHECKPOINT_PREFIX)).isdigit()
    ]
    for _, path in sorted(steps)[:-KEPT]:
        shutil.rmtree(path, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
