"""Cost from first principles: bytes and FLOPs over peaks times a few named shares, plus engine overheads."""

import math
from typing import Protocol

from areal_sim.cost import work
from areal_sim.cost.floor import Floor
from areal_sim.cost.protocol import Ints, TrainingTime
from areal_sim.cost.training import TrainerCost
from areal_sim.cost.transfer import TransferCost
from interfaces.scenario import Resolved


class DecodeKernels(Protocol):
    """GPU time of one decode step, without what the engine's host adds."""

    @property
    def source(self) -> str:
        """Where the numbers come from."""

    @property
    def per_context_token_s(self) -> float:
        """For each token of context."""

    def base_s(self, n: int) -> float:
        """Without context, for `n` sequences."""


class RooflineKernels:
    """Decode kernels by the roofline: the longer of reading weights and multiplying; KV cache on top.

    `max(weights / bandwidth, FLOPs / peak) + all-reduces`, each with its share of the peak. Weights of a
    mixture of experts: the distinct experts that `n` tokens touch under uniform routing. Tensor
    parallelism: two ring all-reduces of `n * hidden` bf16 values a layer, latency plus bytes over NVLink.
    """

    source = "roofline"

    def __init__(self, resolved: Resolved) -> None:
        hardware, self._model = resolved.hardware, resolved.model
        shares = hardware.efficiencies
        self._ranks = resolved.scenario.engine.tensor_parallel
        self._bandwidth = hardware.hbm_bytes_per_s * shares.decode_weight_bandwidth_share
        self._flops = hardware.flops_per_s * shares.decode_flops_share
        self._latency_s, self._nvlink = hardware.allreduce_latency_s, hardware.nvlink_bytes_per_s
        kv_bandwidth = hardware.hbm_bytes_per_s * shares.decode_kv_bandwidth_share
        attention = work.decode_attention_flops(self._model) / self._ranks
        self.per_context_token_s = max(
            work.decode_kv_bytes(self._model, self._ranks) / kv_bandwidth, attention / self._flops
        )

    def base_s(self, n: int) -> float:
        """Without context, for `n` sequences."""
        multiply_s = n * work.decode_matmul_flops(self._model) / self._ranks / self._flops
        return max(self.weights_s(n), multiply_s) + self.communication_s(n, 1)

    def weights_s(self, tokens: float) -> float:
        """Reading the weights that so many tokens touch once."""
        touched = work.distinct_experts(self._model, tokens)
        return work.decode_weight_bytes(self._model, touched) / self._ranks / self._bandwidth

    def communication_s(self, tokens: float, steps: int) -> float:
        """All-reduces of tensor parallelism over `steps` engine steps with `tokens` tokens in total."""
        if self._ranks == 1:
            return 0.0
        ring = 2 * (self._ranks - 1) / self._ranks
        volume = ring * tokens * self._model.hidden * work.ACTIVATION_BYTES
        return 2 * self._model.layers * (steps * self._latency_s + volume / self._nvlink)


def shares_steps(resolved: Resolved) -> bool:
    """Whether a prefill rides in the decode steps of what runs already, and takes no step of its own.

    So in vLLM, whose V1 scheduler gives every step's token budget to decodes and prefills alike. SGLang by
    default runs a batch of prefills between two decode steps (its `enable_mixed_chunk` is off).
    """
    return resolved.scenario.engine.name == "vllm"


class RooflineCost:
    """Everything from the hardware file; other cost models replace only its decode kernels.

    A decode step is `decode_slowdown * (kernels + overheads)`, overheads being those of the hardware file
    for a step, its layers and its requests, and never less than the physical floor; `decode_slowdown` is that
    of the hardware times that of the engine.
    """

    def __init__(self, resolved: Resolved, kernels: DecodeKernels | None = None) -> None:
        hardware = resolved.hardware
        self._roofline = RooflineKernels(resolved)
        self._kernels: DecodeKernels = kernels or self._roofline
        self.provenance = self._kernels.source
        self.floor = Floor(resolved)
        self._shares = hardware.efficiencies
        self._slowdown = self._shares.decode_slowdown * resolved.scenario.engine.decode_slowdown
        self._step_s = self._shares.step_overhead_s + resolved.model.layers * self._shares.layer_overhead_s
        self._model = resolved.model
        self._prefill_flops_per_s = (
            resolved.scenario.engine.tensor_parallel * hardware.flops_per_s * self._shares.prefill_flops_share
        )
        self._chunk = resolved.scenario.engine.max_num_batched_tokens
        self._prefill_shares_steps = shares_steps(resolved)
        self._training, self._transfer = TrainerCost(resolved), TransferCost(resolved)
        self.decode_per_context_token_s = max(
            self._slowdown * self._kernels.per_context_token_s,
            self.floor.decode_per_context_token_s,
        )
        self._base = [self._compute_base_s(n) for n in range(resolved.scenario.engine.max_num_seqs + 1)]

    def decode_base_s(self, n: int) -> float:
        """See `CostModel`."""
        return self._base[n] if n < len(self._base) else self._compute_base_s(n)

    def _compute_base_s(self, n: int) -> float:
        overheads = self._step_s + n * self._shares.request_overhead_s
        step_s = self._slowdown * (self._kernels.base_s(n) + overheads)
        return max(step_s, self.floor.decode_base_s(n))

    def prefill_s(self, tokens: int, squared_tokens: float, sequences: int = 1) -> float:
        """See `CostModel`; steps of `max_num_batched_tokens` each read the weights and have overheads.

        `max(FLOPs, weights) + all-reduces + overheads`, of steps of its own if the engine takes those
        (`shares_steps`). Logits are needed once a sequence and left out.
        """
        if tokens <= 0:
            return 0.0
        steps = 0 if self._prefill_shares_steps else math.ceil(tokens / self._chunk)
        flops = work.prefill_flops(self._model, tokens, squared_tokens)
        kernels_s = flops / self._prefill_flops_per_s
        if steps:
            kernels_s = max(kernels_s, steps * self._roofline.weights_s(tokens / steps))
        overheads_s = steps * self._step_s + sequences * self._shares.request_overhead_s
        return kernels_s + self._roofline.communication_s(tokens, steps) + overheads_s

    def training_step_s(
        self, lengths: Ints, *, minibatches: int | None = None, update: bool = True
    ) -> TrainingTime:
        """See `CostModel` and `TrainerCost`."""
        return self._training.training_step_s(lengths, minibatches=minibatches, update=update)

    def publish_s(self) -> float:
        """See `CostModel` and `TransferCost`."""
        return self._transfer.publish_s()

    def load_s(self, replicas_loading: int) -> float:
        """See `CostModel` and `TransferCost`."""
        return self._transfer.load_s(replicas_loading)

    def switch_s(self) -> float:
        """See `CostModel` and `TransferCost`."""
        return self._transfer.switch_s()
