"""How many FLOPs and bytes the parts of a run need: arithmetic of the model's shape, no efficiency in it.

FLOPs count a multiply-add as 2. `squared` is the sum of squared lengths: a causal pass over L tokens takes,
per layer, 2 products of L x L/2 scores with head_dim for each head, so `2 * layers * heads * head_dim *
L^2` in all.
"""

from interfaces.hardware import Model
from interfaces.memory import kv_bytes_per_gpu_and_token

ACTIVATION_BYTES = 2
"""bf16."""


def attention_flops(model: Model, squared: float) -> float:
    """FLOPs of causal attention scores and their product with the values, forward."""
    return 2.0 * model.layers * model.heads * model.head_dim * squared


def forward_flops(model: Model, tokens: float, squared: float) -> float:
    """FLOPs of a forward pass with logits at every position (training, log-probs)."""
    return 2.0 * model.matmul_params * tokens + attention_flops(model, squared)


def prefill_flops(model: Model, tokens: float, squared: float) -> float:
    """FLOPs of a prefill: as `forward_flops`, but logits only for the last token, here none.

    `squared` is the sum over sequences of end^2 - start^2, for contexts that begin at `start` cached tokens.
    """
    head = model.vocab * model.hidden
    return 2.0 * max(0, model.matmul_params - head) * tokens + attention_flops(model, squared)


def decode_matmul_flops(model: Model) -> float:
    """FLOPs of one token's matrix products in a decode step, output head included."""
    return 2.0 * model.matmul_params


def decode_attention_flops(model: Model) -> float:
    """FLOPs of one decoding token for each token of its context."""
    return 4.0 * model.layers * model.heads * model.head_dim


def decode_kv_bytes(model: Model, tensor_parallel: int) -> float:
    """Bytes of KV cache that each GPU reads for each token of context (spare ranks copy KV heads)."""
    return float(kv_bytes_per_gpu_and_token(model, tensor_parallel))


def decode_weight_bytes(model: Model, distinct_experts: float | None = None) -> float:
    """Bytes of weights that one decode step reads, all GPUs of a replica together.

    Every matrix once; the input embedding is looked up, not read, which is why tied and untied embeddings
    decode alike. Of a mixture, `distinct_experts` in each layer; None: those of a single token, the least
    possible.
    """
    params = float(model.matmul_params)
    if model.experts is not None and distinct_experts is not None:
        assert model.experts_per_token is not None
        assert model.expert_params is not None
        more = distinct_experts - model.experts_per_token
        params += model.layers * more * model.expert_params
    return params * model.bytes_per_param


def distinct_experts(model: Model, tokens: float) -> float | None:
    """Expected experts of a layer that so many tokens touch, uniform routing: `E (1 - (1 - k/E)^tokens)`."""
    if model.experts is None:
        return None
    assert model.experts_per_token is not None
    missed = (1.0 - model.experts_per_token / model.experts) ** tokens
    return float(model.experts * (1.0 - missed))
