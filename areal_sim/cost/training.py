"""How long a training step takes: FLOPs, micro-batches, pipeline, ranks that wait, optimizer.

What `training_flops_share` means. It is the useful-FLOP share (forward + backward = 3 forwards) that one
stage reaches on a full micro-batch *with activation checkpointing*, which is how trainers of this size are
measured and run: such a stage really does 4 forwards, so it works at 4/3 of the share, capped at the peak.
Without checkpointing a micro-batch takes 3/4 of the time; a forward pass alone a quarter. Communication of
tensor parallelism is inside the share. Outside it, and modelled here: micro-batch overhead, pipeline
bubble, imbalance, gradient exchange and optimizer. A share taken from an end-to-end measurement contains
some of these already and makes the prediction slow by as much.
"""

import numpy as np
from numpy.typing import NDArray

from areal_sim import microbatch
from areal_sim.cost import pipeline, work
from areal_sim.cost.protocol import Ints, TrainingTime
from areal_sim.microbatch import Microbatches
from interfaces import memory
from interfaces.feasibility import data_parallel, longest_rollout_tokens
from interfaces.scenario import Resolved

Floats = NDArray[np.float64]

GRADIENT_BYTES = 4
"""fp32 gradients, as in `interfaces.memory`."""
OPTIMIZER_BYTES = 30
"""HBM traffic of Adam for one parameter: gradient, master weight and two moments read (16), the last three
written (12), the bf16 weight written (2)."""


class TrainerCost:
    """Times of the trainer of one scenario."""

    def __init__(self, resolved: Resolved) -> None:
        trainer, hardware, model = resolved.scenario.trainer, resolved.hardware, resolved.model
        self._trainer = trainer
        self._stages = trainer.pipeline_parallel
        self._ranks = data_parallel(resolved.scenario)
        gpus = trainer.tensor_parallel * trainer.pipeline_parallel
        rate = min(1.0, 4 / 3 * hardware.efficiencies.training_flops_share) * hardware.flops_per_s * gpus
        self._token_s = work.forward_flops(model, 1.0, 0.0) / rate
        self._squared_s = work.forward_flops(model, 0.0, 1.0) / rate
        self._passes = 4 if trainer.activation_checkpointing else 3
        self._overhead_s = hardware.efficiencies.microbatch_overhead_s
        self._k_min = 1 if self._stages == 1 else 2 * self._stages
        self._limit = _memory_limit_tokens(resolved)
        self._update_s = _update_s(resolved, self._ranks)

    def training_step_s(
        self, lengths: Ints, *, minibatches: int | None = None, update: bool = True
    ) -> TrainingTime:
        """See `CostModel.training_step_s`.

        Optimizer steps take equally many sequences in training order; each deals them to the ranks in snake
        order, and every rank cuts its share into micro-batches. With a pipeline a rank opens at least 2
        micro-batches a stage (AReaL's `PipelineRunner.default_train_mbs`). The proximal forward runs over
        the same micro-batches; its ranks wait for each other once.
        """
        steps = minibatches or self._trainer.minibatches
        cut = self._cut(_in_steps(np.asarray(lengths, dtype=np.int64), steps))
        forwards = self._token_s * cut.tokens + self._squared_s * cut.squared
        exists = cut.sequences > 0
        train_s = self._passes * forwards + self._overhead_s * exists
        train = pipeline.one_f_one_b(train_s, cut.opened, self._stages, 1 / self._passes)
        train = train.reshape(steps, self._ranks)
        forward_s = 0.0
        if self._trainer.recompute_proximal:
            forward_s = self._forward_s(forwards + self._overhead_s / 4 * exists, steps)
        update_s = self._update_s if update else 0.0
        minibatch_s = tuple((train.max(axis=1) + update_s).tolist())
        count = int(cut.opened.sum())
        return TrainingTime(
            total_s=forward_s + sum(minibatch_s),
            forward_s=forward_s,
            minibatch_s=minibatch_s,
            update_s=update_s,
            imbalance=microbatch.imbalance(train),
            microbatches=count,
            fill=float(cut.tokens.sum()) / max(1, count * self._trainer.max_tokens_per_microbatch),
        )

    def _cut(self, by_step: Ints) -> Microbatches:
        """Micro-batches of every rank; rows are (optimizer step, rank), ranks of one step together."""
        trainer = self._trainer
        fixed = trainer.microbatching == "fixed"
        shares = microbatch.deal_to_ranks(by_step, self._ranks, keep_order=fixed)
        if fixed:
            return microbatch.fixed_microbatches_many(shares, trainer.fixed_microbatches, self._limit)
        return microbatch.dynamic_microbatches_many(shares, trainer.max_tokens_per_microbatch, self._k_min)

    def _forward_s(self, microbatch_s: Floats, steps: int) -> float:
        """Slowest rank of one forward pass over the micro-batches of all optimizer steps."""
        by_rank = microbatch_s.reshape(steps, self._ranks, -1).transpose(1, 0, 2).reshape(self._ranks, -1)
        return float(pipeline.forward_only(by_rank, self._stages).max())


def _in_steps(lengths: Ints, steps: int) -> Ints:
    """Lengths in training order as rows of optimizer steps, equally many (within one), padded with 0."""
    edges = np.arange(steps + 1) * len(lengths) // steps
    rows = np.zeros((steps, max(1, int(np.diff(edges).max()))), dtype=np.int64)
    for row, start, end in zip(rows, edges[:-1], edges[1:], strict=True):
        row[: end - start] = lengths[start:end]
    return rows


def _memory_limit_tokens(resolved: Resolved) -> int:
    """Tokens of the largest micro-batch that the trainer's memory holds, at least one longest rollout."""
    scenario, hardware = resolved.scenario, resolved.hardware

    def needed(tokens: int) -> int:
        gpus = scenario.cluster.trainer_gpus
        return memory.trainer_bytes_per_gpu(resolved.model, scenario.trainer, gpus, tokens)

    per_token = (needed(2**20) - needed(0)) / 2**20
    free = memory.TRAINER_USABLE_SHARE * hardware.hbm_bytes - needed(0)
    return max(int(free / per_token), int(longest_rollout_tokens(scenario)))


def _update_s(resolved: Resolved, ranks: int) -> float:
    """One optimizer step after the last backward pass, nothing overlapped.

    With a distributed optimizer gradients (fp32) are reduce-scattered and bf16 weights all-gathered, else
    gradients all-reduced; a ring moves (d - 1)/d of the bytes once a phase, over NVLink inside a node, else
    the network. Adam then streams its state through HBM.
    """
    trainer, hardware, model = resolved.scenario.trainer, resolved.hardware, resolved.model
    params = model.params / (trainer.tensor_parallel * trainer.pipeline_parallel)
    inside = resolved.scenario.cluster.trainer_gpus <= hardware.gpus_per_node
    link = hardware.nvlink_bytes_per_s if inside else hardware.network_bytes_per_s
    sharded = trainer.distributed_optimizer
    moved = GRADIENT_BYTES + work.ACTIVATION_BYTES if sharded else 2 * GRADIENT_BYTES
    exchange_s = (ranks - 1) / ranks * moved * params / link
    stream = hardware.hbm_bytes_per_s * hardware.efficiencies.decode_weight_bandwidth_share
    return exchange_s + OPTIMIZER_BYTES * params / (ranks if sharded else 1) / stream
