"""Physical bounds: what no schedule, kernel or engine can beat on this hardware.

Every bound uses 100 % of a peak. HBM: bytes that must be read / bandwidth. FLOP: useful operations / peak
FLOP/s. Latencies, communication, overheads and imbalance are left out, so the bounds are lower than any
real time.
"""

from typing import NamedTuple

from areal_sim.cost import work
from interfaces.feasibility import replicas
from interfaces.scenario import Resolved


class Totals(NamedTuple):
    """What a run did, summed over all replicas and training steps."""

    generated_tokens: float = 0.0
    context_token_steps: float = 0.0
    """Sum over decode steps of the context tokens read."""
    decode_steps: float = 0.0
    prefill_tokens: float = 0.0
    """Tokens prefilled, those prefilled again included."""
    prefill_squared: float = 0.0
    """Sum over prefills of end^2 - start^2; 0 where unknown, the bound stays valid."""
    trained_tokens: float = 0.0
    trained_squared: float = 0.0
    """Sum of squared lengths of trained sequences; 0 where unknown, the bound stays valid."""


class RunFloor(NamedTuple):
    """The least time for given totals; a run takes at least each (colocated: their sum)."""

    rollout_s: float
    """Of the rollout pool with work spread evenly over all replicas and no idle time."""
    rollout_bound: str
    """"hbm" or "flop": which of the two decides."""
    trainer_s: float
    """Of the trainer pool, no idle time; the bound is always "flop"."""


class Floor:
    """Bounds for one scenario.

    A decode step reads its weights and KV cache once and multiplies once. Of a mixture of experts it reads at
    least the experts of one token: more are usual, but routing is data, not physics.
    """

    def __init__(self, resolved: Resolved) -> None:
        model, hardware = resolved.model, resolved.hardware
        ranks = resolved.scenario.engine.tensor_parallel
        self._model = model
        self._bandwidth, self._peak = hardware.hbm_bytes_per_s, hardware.flops_per_s
        self._ranks, self._replicas = ranks, replicas(resolved.scenario)
        self._trainer_gpus = resolved.scenario.cluster.trainer_gpus
        self._passes = 3 + int(resolved.scenario.trainer.recompute_proximal)
        self._weight_bytes = work.decode_weight_bytes(model) / ranks
        self._kv_bytes = work.decode_kv_bytes(model, ranks)
        self._token_flops = work.decode_matmul_flops(model) / ranks
        self._context_flops = work.decode_attention_flops(model) / ranks
        self.decode_per_context_token_s = max(
            self._kv_bytes / self._bandwidth, self._context_flops / self._peak
        )
        """Bound of the part that grows with the context; with `decode_base_s` at least `decode_floor_s`."""

    def decode_base_s(self, n: int) -> float:
        """Bound of a decode step of `n` sequences without context: read weights or multiply, the longer."""
        return max(self._weight_bytes / self._bandwidth, n * self._token_flops / self._peak)

    def decode_floor_s(self, n: int, context_tokens: float) -> float:
        """Bound of one decode step of a replica: all bytes or all FLOPs, the longer, in seconds."""
        read = (self._weight_bytes + self._kv_bytes * context_tokens) / self._bandwidth
        multiply = (n * self._token_flops + self._context_flops * context_tokens) / self._peak
        return max(read, multiply)

    def prefill_floor_s(self, tokens: float, squared_tokens: float) -> float:
        """FLOP bound of a prefill on one replica; see `CostModel.prefill_s` for the arguments."""
        return work.prefill_flops(self._model, tokens, squared_tokens) / (self._ranks * self._peak)

    def training_floor_s(self, tokens: float, squared: float) -> float:
        """FLOP bound of training on all trainer GPUs: forward, backward (twice), proximal forward if used.

        `tokens` are prompt and response, `squared` the sum of squared lengths. Recomputed activations are
        left out: they save memory and need not be.
        """
        flops = self._passes * work.forward_flops(self._model, tokens, squared)
        return flops / (self._trainer_gpus * self._peak)

    def run(self, totals: Totals) -> RunFloor:
        """The least time of both pools for a whole run.

        Prefill may hide behind the memory traffic of decode steps (chunked prefill), so its FLOPs add to
        the FLOPs of decoding only.
        """
        read = totals.decode_steps * self._weight_bytes + totals.context_token_steps * self._kv_bytes
        multiply = (
            totals.generated_tokens * self._token_flops
            + totals.context_token_steps * self._context_flops
            + work.prefill_flops(self._model, totals.prefill_tokens, totals.prefill_squared) / self._ranks
        )
        hbm_s, flop_s = read / self._bandwidth, multiply / self._peak
        return RunFloor(
            rollout_s=max(hbm_s, flop_s) / self._replicas,
            rollout_bound="hbm" if hbm_s >= flop_s else "flop",
            trainer_s=self.training_floor_s(totals.trained_tokens, totals.trained_squared),
        )
