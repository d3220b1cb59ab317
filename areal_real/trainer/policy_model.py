"""The policy in training: any causal LM of transformers, evaluated on packed sequences."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from areal_real.trainer import attention
from areal_real.trainer.errors import TrainingError
from areal_real.trainer.packing import Packed

TOLERANCE = 2e-2
"""Largest difference in log-prob between packed and separate documents that is rounding (bfloat16)."""
ENTROPY_CHUNK = 1024


def load_model(directory: Path, device: torch.device) -> Any:
    """The model of a Hugging Face directory, its weights in float32, ready to take packed sequences.

    Raises:
        TrainingError: there is no such model, or its architecture cannot be packed: two documents laid
            end to end do not give the log-probs that each gives alone.
    """
    attention.register()
    logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            directory, dtype=torch.float32, attn_implementation=attention.PACKED, local_files_only=True
        )
    except (OSError, ValueError, ImportError) as error:
        raise TrainingError(
            f"{directory}: no causal language model can be loaded ({error}); name a directory in Hugging "
            "Face format in real.model"
        ) from error
    model.to(device).train()
    for (
        module
    ) in model.modules():  # dropout would make the policy in training another one than that which generates
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    _check_packing(model, directory, device)
    return model


def token_logits(model: Any, packed: Packed, dtype: torch.dtype = torch.float32) -> Tensor:
    """Logits, float32, that predict each response token; shape (N, vocabulary).

    Args:
        model: from `load_model`.
        packed: the micro-batch.
        dtype: of the matrix products; the weights are float32 in any case.
    """
    with torch.autocast(packed.ids_T.device.type, torch.bfloat16, enabled=dtype is torch.bfloat16):
        output = model(
            input_ids=packed.ids_T.unsqueeze(0),
            position_ids=packed.positions_T.unsqueeze(0),
            use_cache=False,
            logits_to_keep=packed.predict_N,
            **attention.document_arguments(packed.boundaries, packed.longest),
        )
    logits: Tensor = output.logits[0]
    return logits.float()


def token_logprobs(logits: Tensor, targets_N: Tensor, temperature: float) -> Tensor:
    """Log-prob of each target under softmax(logits / temperature): what sampling at it records."""
    scaled = logits if temperature == 1.0 else logits / temperature
    return scaled.gather(-1, targets_N.unsqueeze(-1)).squeeze(-1) - scaled.logsumexp(-1)


def token_entropies(logits: Tensor, temperature: float) -> Tensor:
    """Entropy in nats of softmax(logits / temperature), without gradient."""
    parts = []
    with torch.no_grad():
        for chunk in logits.split(ENTROPY_CHUNK):  # a vocabulary is large: no second copy of all logits
            logprobs = torch.log_softmax(chunk / temperature, -1)
            parts.append(-(logprobs.exp() * logprobs).sum(-1))
    return torch.cat(parts)


@contextmanager
def generating(model: Any) -> Iterator[None]:
    """Within it the model takes padded batches and a KV cache, and keeps no gradient."""
    model.set_attn_implementation("sdpa")
    try:
        with torch.no_grad():
            yield
    finally:
        model.set_attn_implementation(attention.PACKED)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Weights by name, tied ones once: what a checkpoint in Hugging Face format holds."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def _check_packing(model: Any, directory: Path, device: torch.device) -> None:
    ids = torch.arange(9, device=device) % model.config.get_text_config().vocab_size
    documents = [ids[:4], ids[3:]]

    def logits(parts: list[Tensor]) -> Tensor:
        boundaries = torch.tensor([0, *torch.tensor([len(p) for p in parts]).cumsum(0)], dtype=torch.int32)
        positions = torch.cat([torch.arange(len(p), device=device) for p in parts])
        output = model(
            input_ids=torch.cat(parts).unsqueeze(0),
            position_ids=positions.unsqueeze(0),
            use_cache=False,
            **attention.document_arguments(boundaries.to(device), max(len(p) for p in parts)),
        )
        return torch.log_softmax(output.logits[0].float(), -1)

    try:
        with torch.no_grad():
            apart = torch.cat([logits([document]) for document in documents])
            difference = float((logits(documents) - apart).abs().max())
    except (NotImplementedError, TypeError, ValueError) as error:
        difference, reason = float("inf"), str(error)
    else:
        reason = f"log-probs of documents laid end to end differ by {difference:.2g} from those alone"
    if not difference <= TOLERANCE:
        raise TrainingError(
            f"{directory}: {type(model).__name__} cannot be trained on packed sequences ({reason}); use a "
            "model whose only mixing of tokens is attention, such as Qwen2 or Llama"
        )
