"""What must hold of samples and numbers before they move weights; the offending rollout is named."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from areal_real.tokens import Sample
from areal_real.trainer.errors import TrainingError
from areal_real.trainer.packing import Row
from interfaces.rollout import PolicyVersion


def check_samples(
    samples: Sequence[Sample], version: PolicyVersion, vocabulary: int, positions: int | None
) -> None:
    """Refuse samples that cannot be trained.

    Raises:
        TrainingError: a number is not finite, a token is not in the vocabulary, a sequence is longer than the
            model's positions, a token is newer than the step; or there is nothing to train.
    """
    if not any(sample.trajectory.response_ids for sample in samples):
        raise TrainingError(
            f"step from version {version}: none of {len(samples)} rollouts has a token to train"
        )
    for sample in samples:
        problem = _problem(sample, version, vocabulary, positions)
        if problem:
            raise TrainingError(f"rollout {sample.trajectory.rollout} (group {sample.group}): {problem}")


def _problem(sample: Sample, version: PolicyVersion, vocabulary: int, positions: int | None) -> str | None:
    trajectory = sample.trajectory
    tokens = (*trajectory.prompt_ids, *trajectory.response_ids)
    if not math.isfinite(sample.reward):
        return f"reward is {sample.reward}; the reward function must return a finite number"
    if not trajectory.prompt_ids:
        return "has no prompt token; give the task a first token that every prompt begins with"
    strange = [token for token in tokens if not 0 <= token < vocabulary]
    if strange:
        return f"token {strange[0]} is not in the model's vocabulary of {vocabulary}"
    if positions is not None and len(tokens) > positions:
        return f"{len(tokens)} tokens are more than the model's {positions} positions"
    missing = [p for p in trajectory.response_logprobs if not math.isfinite(p)]
    newer = [v for v in trajectory.response_versions if not 0 <= v <= version]
    if missing:
        return f"behaviour log-prob of a token is {missing[0]}; the engine must report finite numbers"
    return f"a token of version {newer[0]} cannot be trained from version {version}" if newer else None


def check_finite(name: str, values_N: Tensor, rows: Sequence[Row], owners: NDArray[np.int64]) -> None:
    """Refuse numbers that are not finite.

    Args:
        name: of the numbers, for the message.
        values_N: one a response token.
        rows: of the micro-batch.
        owners: index of the row of each token.

    Raises:
        TrainingError: names the first rollout with such a number.
    """
    if bool(values_N.isfinite().all()):
        return
    first = int((~values_N.isfinite()).nonzero()[0, 0])
    row = rows[int(owners[first])]
    raise TrainingError(
        f"rollout {row.rollout}: {name} is {float(values_N[first])} (advantage {row.advantage:g}, "
        f"{len(row.response_ids)} response tokens); the weights are as they were before this optimizer step. "
        "Set real.loss.behaviour_weight_cap, or lower real.optimizer.learning_rate"
    )
