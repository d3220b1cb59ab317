"""Causal attention within each document of a packed sequence, for any model of transformers.

Registered under the name `PACKED` with `AttentionInterface`; the documents are given by the cumulative
lengths that models pass on (`cu_seq_lens_q`). This is the only place that chooses a kernel:

- CUDA: `torch.nn.attention.varlen.varlen_attn`, one call for all documents (float16 and bfloat16 only;
  written from its documentation, not yet run on a GPU);
- elsewhere, and in float32: one causal SDPA a document. On a CPU that is 2.6 to 3.8 times faster than
  padding, a block mask over the packed sequence is slower than padding.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

PACKED = "areal_packed"
UNSUPPORTED = ("softcap", "s_aux", "position_bias")
"""Variants of attention that neither kernel computes."""


def register() -> None:
    """Make `PACKED` known to transformers; harmless when repeated."""
    AttentionInterface.register(PACKED, packed_attention)


def document_arguments(boundaries: Tensor, longest: int) -> dict[str, Any]:
    """Keyword arguments of a model's forward that describe the documents.

    Args:
        boundaries: int32, shape (documents + 1,): where each begins, and where the last ends.
        longest: tokens of the longest document.
    """
    return {
        "cu_seq_lens_q": boundaries, "cu_seq_lens_k": boundaries,
        "max_length_q": longest, "max_length_k": longest,
    }  # fmt: skip


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention of one packed sequence; shapes as transformers gives them.

    Args:
        module: the attention layer (unused).
        query: (1, heads, tokens, head size).
        key: (1, KV heads, tokens, head size).
        value: as `key`.
        attention_mask: must be None.
        scaling: factor of the scores; None: 1 / sqrt(head size).
        dropout: of the scores; must be 0, a trained policy is the one that generates.
        sliding_window: tokens each token sees, itself included; None: all before it.
        cu_seq_lens_q: boundaries of the documents.
        max_length_q: tokens of the longest.
        others: whatever else a model passes.

    Returns:
        (1, tokens, heads, head size), and no weights.

    Raises:
        NotImplementedError: the model did not pass the documents on, or wants an attention variant that the
            kernels here do not compute.
    """
    del module
    unsupported = [name for name in UNSUPPORTED if others.get(name) is not None]
    if cu_seq_lens_q is None or max_length_q is None or attention_mask is not None or dropout or unsupported:
        wanted = ", ".join(unsupported) or "a mask, dropout or a forward that hides the document lengths"
        raise NotImplementedError(f"packed attention does not support {wanted}")
    if torch.is_autocast_enabled(query.device.type):  # rotary embeddings leave query and key in float32
        dtype = torch.get_autocast_dtype(query.device.type)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    if query.is_cuda and query.dtype in (torch.float16, torch.bfloat16):
        output = _varlen(
            query, key, value, scaling=scaling, sliding_window=sliding_window,
            boundaries=cu_seq_lens_q, longest=max_length_q,
        )  # fmt: skip
        return output, None
    lengths = cu_seq_lens_q.diff().tolist()
    # split, not slices: the gradient of each slice would fill and add a tensor of the whole sequence
    documents = zip(*(tensor.split(lengths, dim=2) for tensor in (query, key, value)), strict=True)
    parts = []
    for q, k, v in documents:
        mask = _window_mask(q.shape[2], sliding_window, q.device)
        parts.append(
            scaled_dot_product_attention(
                q, k, v, mask, scale=scaling, is_causal=mask is None, enable_gqa=q.shape[1] != k.shape[1]
            )
        )
    return torch.cat(parts, dim=2).transpose(1, 2), None


def _varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scaling: float | None,
    sliding_window: int | None,
    boundaries: Tensor,
    longest: int,
) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 (only there in CUDA builds)

    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    window = (-1, 0) if sliding_window is None else (sliding_window - 1, 0)
    output = varlen_attn(
        q, k, v, boundaries, boundaries, longest, longest,
        scale=scaling, window_size=window, enable_gqa=q.shape[1] != k.shape[1],
    )  # fmt: skip
    assert isinstance(output, Tensor)
    return output.unsqueeze(0)


def _window_mask(tokens: int, sliding_window: int | None, device: torch.device) -> Tensor | None:
    """Bool (tokens, tokens): who sees whom; None: plain causal."""
    if sliding_window is None or tokens <= sliding_window:
        return None
    behind = torch.arange(tokens, device=device)[:, None] - torch.arange(tokens, device=device)
    return (behind >= 0) & (behind < sliding_window)
