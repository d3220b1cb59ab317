"""From samples to packed micro-batches: sequences end to end, no padding, one shift for everything.

A response token at packed position p is predicted by the logits at p - 1. All that belongs to response
tokens (target, behaviour and proximal log-prob, version, advantage, mask) is kept in arrays over the N
response tokens; the shift happens once, in `predict_N`, so nothing can be shifted differently.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from areal_real.tokens import Sample
from areal_real.trainer.advantages import group_advantages
from interfaces.microbatch import dynamic_microbatches
from interfaces.rollout import PolicyVersion
from interfaces.scenario import Loss, Trainer


@dataclass(slots=True)
class Row:
    """One rollout, ready to train; the arrays are over its response tokens."""

    rollout: int
    prompt_ids: NDArray[np.int64]
    response_ids: NDArray[np.int64]
    behaviour: NDArray[np.float32]
    mask: NDArray[np.bool_]
    """False: left out of the loss, though it counts in the denominator."""
    advantage: float
    proximal: NDArray[np.float32] | None = None

    @property
    def length(self) -> int:
        """Tokens, prompt and response."""
        return len(self.prompt_ids) + len(self.response_ids)


def rows_of(
    samples: Sequence[Sample], loss: Loss, mask_below: PolicyVersion | None, *, last_segment: bool = False
) -> list[Row]:
    """Samples with their advantages; tokens of versions below `mask_below` are masked.

    With `last_segment` those of any version but the newest of their rollout.

    Advantages are taken over all samples, also those without a response token, which have no row.
    """
    advantages = group_advantages(
        [sample.reward for sample in samples], [sample.group for sample in samples], loss.advantage
    )
    rows = []
    for sample, advantage in zip(samples, advantages.tolist(), strict=True):
        trajectory = sample.trajectory
        versions = np.asarray(trajectory.response_versions, np.int64)
        oldest = versions.max() if last_segment and len(versions) else mask_below
        row = Row(
            rollout=trajectory.rollout,
            prompt_ids=np.asarray(trajectory.prompt_ids, np.int64),
            response_ids=np.asarray(trajectory.response_ids, np.int64),
            behaviour=np.asarray(trajectory.response_logprobs, np.float32),
            mask=np.ones(len(versions), np.bool_) if oldest is None else versions >= oldest,
            advantage=advantage,
        )
        if len(row.response_ids):
            rows.append(row)
    return rows


def microbatches(rows: Sequence[Row], trainer: Trainer) -> list[list[Row]]:
    """Cut rows into micro-batches, by Algorithm 1 or into a fixed number."""
    lengths = [row.length for row in rows]
    if trainer.microbatching == "dynamic":
        indices = dynamic_microbatches(lengths, trainer.max_tokens_per_microbatch)
    else:
        parts = np.array_split(np.arange(len(rows)), min(trainer.fixed_microbatches, len(rows)))
        indices = [part.tolist() for part in parts]
    return [[rows[index] for index in batch] for batch in indices]


@dataclass(frozen=True, slots=True)
class Packed:
    """A micro-batch on the device: T tokens end to end, N of them response tokens."""

    ids_T: Tensor
    positions_T: Tensor
    """Position within the document."""
    boundaries: Tensor
    """int32, (documents + 1,)."""
    longest: int
    predict_N: Tensor
    """Where the logits that predict each response token are: one before it."""
    targets_N: Tensor
    behaviour_N: Tensor
    proximal_N: Tensor | None
    advantages_N: Tensor
    mask_N: Tensor
    owners: NDArray[np.int64]
    """Index of the row of each response token."""


def pack(rows: Sequence[Row], device: torch.device) -> Packed:
    """Lay rows end to end.

    Raises:
        ValueError: a row has no prompt token, so nothing predicts its first response token.
    """
    if any(not len(row.prompt_ids) for row in rows):
        raise ValueError("a rollout without prompt tokens cannot be trained")
    lengths = np.asarray([row.length for row in rows])
    responses = np.asarray([len(row.response_ids) for row in rows])
    ends = np.cumsum(lengths)

    def tensor(parts: Sequence[NDArray[Any]]) -> Tensor:
        return torch.from_numpy(np.concatenate(parts)).to(device)

    proximal = [row.proximal for row in rows if row.proximal is not None]
    return Packed(
        ids_T=tensor([part for row in rows for part in (row.prompt_ids, row.response_ids)]),
        positions_T=tensor([np.arange(length) for length in lengths]),
        boundaries=torch.from_numpy(np.concatenate([[0], ends]).astype(np.int32)).to(device),
        longest=int(lengths.max()),
        predict_N=tensor([np.arange(end - n, end) - 1 for end, n in zip(ends, responses, strict=True)]),
        targets_N=tensor([row.response_ids for row in rows]),
        behaviour_N=tensor([row.behaviour for row in rows]),
        proximal_N=tensor(proximal) if len(proximal) == len(rows) else None,
        advantages_N=tensor([np.full(len(row.response_ids), row.advantage, np.float32) for row in rows]),
        mask_N=tensor([row.mask for row in rows]),
        owners=np.repeat(np.arange(len(rows)), responses),
    )
