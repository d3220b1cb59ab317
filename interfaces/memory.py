"""How many bytes things take: weights, KV cache and training state, per GPU.

Closed formulas, no measurement: they decide whether a scenario can run at all and how many tokens of KV cache
a replica has. Bytes are integers, tokens are tokens; GiB appear in messages only.
"""

from interfaces.hardware import Hardware, Model
from interfaces.scenario import Engine, Trainer

PREFILL_BYTES_PER_TOKEN_AND_HIDDEN = 32
"""Activations of one layer in a prefill step, bf16: gate and up projection of a SwiGLU of width ~5.3 hidden
(2 x 2 x 5.3), residual, norm, q, k, v and output (~2 x 5), rounded up. One layer at a time is alive."""

TRAIN_BYTES_PER_TOKEN_AND_HIDDEN = 34
"""Activations that one layer keeps for its backward pass: `34 s b h` of Korthikanti et al., "Reducing
Activation Recomputation in Large Transformer Models" (arXiv 2205.05198), without its `5 a s / h` term, the
attention matrix, which flash attention never stores."""

LOGIT_BYTES = 6
"""One logit in the loss of the trainer: bf16 output (2) and its fp32 copy (4), in which Megatron's
vocab-parallel cross-entropy also computes the gradient in place."""

TRAINER_USABLE_SHARE = 0.95
"""Share of HBM that tensors of the trainer can use. Assumption: CUDA context, NCCL buffers and fragmentation
take 5 %."""


def replica_weight_bytes(model: Model) -> int:
    """Bytes of the weights that one replica holds, all its GPUs together: `params * bytes_per_param`."""
    return model.weight_bytes


def kv_bytes_per_gpu_and_token(model: Model, tensor_parallel: int) -> int:
    """Bytes of KV cache that one token takes on each GPU of a replica.

    `2 (K and V) * 2 (bf16) * layers * heads_here * head_dim`; the KV heads are split over the ranks, and with
    more ranks than KV heads each rank keeps a copy of one.
    """
    heads_here = max(1, -(-model.kv_heads // tensor_parallel))
    return 2 * 2 * model.layers * heads_here * model.head_dim


def engine_workspace_bytes(model: Model, engine: Engine) -> int:
    """Bytes beside weights and KV cache on each GPU of a replica.

    One prefill step of `max_num_batched_tokens` through one layer (`32 * hidden` bytes a token, taken as not
    sharded) and the fp32 logits of `max_num_seqs` rows with a bf16 copy.
    """
    prefill = PREFILL_BYTES_PER_TOKEN_AND_HIDDEN * model.hidden * engine.max_num_batched_tokens
    logits = LOGIT_BYTES * engine.max_num_seqs * model.vocab // engine.tensor_parallel
    return prefill + logits


def kv_room_bytes_per_gpu(hardware: Hardware, model: Model, engine: Engine, colocated: bool = False) -> int:
    """Bytes left for KV cache on each GPU of a replica; negative when the model does not fit.

    `gpu_memory_utilization * hbm - weights / tensor_parallel - workspace`. Colocated: gradients and optimizer
    state move to host memory during generation, the trainer's bf16 weights stay, so weights count twice.
    """
    usable = int(engine.gpu_memory_utilization * hardware.hbm_bytes)
    copies = 2 if colocated else 1
    weights = copies * replica_weight_bytes(model) // engine.tensor_parallel
    return usable - weights - engine_workspace_bytes(model, engine)


def kv_capacity_tokens(hardware: Hardware, model: Model, engine: Engine, colocated: bool = False) -> int:
    """Tokens of KV cache of one replica, 0 when the model leaves no room.

    The room on one GPU over the bytes of one token on that GPU: every token has a part on every rank.
    """
    room = kv_room_bytes_per_gpu(hardware, model, engine, colocated)
    return max(0, room // kv_bytes_per_gpu_and_token(model, engine.tensor_parallel))


def training_state_bytes_per_param(data_parallel: int, distributed_optimizer: bool) -> float:
    """Bytes of weights, gradients and Adam state of one parameter on its GPU.

    bf16 weights, fp32 gradients, fp32 master weights and two fp32 moments: 2 + 4 + 12 = 18, or `6 + 12 / d`
    with the optimizer state sharded over `d` data-parallel ranks (table in the Megatron Core guide,
    "Distributed Optimizer").
    """
    return 6 + 12 / data_parallel if distributed_optimizer else 18.0


def trainer_bytes_per_gpu(model: Model, trainer: Trainer, trainer_gpus: int, microbatch_tokens: int) -> int:
    """Bytes that the fullest GPU of the trainer needs for micro-batches of `microbatch_tokens`.

    State: parameters are split over tensor x pipeline ranks. Activations are divided by tensor parallelism
    (sequence parallelism is assumed). With checkpointing every layer keeps its bf16 input (`2 * hidden` bytes
    a token) and one layer at a time its full activations; without it all layers keep them. 1F1B holds up to
    `pipeline_parallel` micro-batches on the first stage and one on the last, and only the last stage has
    logits (`6 * vocab` bytes a token), so the larger of the two stages counts.
    """
    tensor, pipeline = trainer.tensor_parallel, trainer.pipeline_parallel
    data_parallel = max(1, trainer_gpus // (tensor * pipeline))
    per_param = training_state_bytes_per_param(data_parallel, trainer.distributed_optimizer)
    state = per_param * model.params / (tensor * pipeline)
    full_layer = TRAIN_BYTES_PER_TOKEN_AND_HIDDEN * model.hidden
    kept = (2 * model.hidden if trainer.activation_checkpointing else full_layer) * model.layers / pipeline
    working = full_layer if trainer.activation_checkpointing else 0
    first = pipeline * kept + working
    last = kept + working + LOGIT_BYTES * model.vocab
    stage = last if pipeline == 1 else max(first, last)
    return int(state + stage * microbatch_tokens / tensor)
