"""Advantages from the rewards of a group: GRPO, Dr. GRPO and RLOO."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["grpo", "dr_grpo", "rloo"]


def group_advantages(
    rewards: Sequence[float], groups: Sequence[int], kind: Kind, epsilon: float = 1e-6
) -> NDArray[np.float64]:
    """One advantage a rollout, from the rewards of the rollouts that name the same group.

    With n rewards r of a group, mean m and (unbiased) standard deviation s:

    - `grpo`: (r - m) / (s + epsilon)   (arXiv 2402.03300)
    - `dr_grpo`: r - m   (arXiv 2503.20783)
    - `rloo`: r - mean of the others = (r - m) n / (n - 1)   (arXiv 2402.14740)

    Groups travel as ids, so they may lie in any order and have any size. A group of one has no baseline:
    its advantage is 0 and it trains nothing. So has a group whose rewards are all alike.
    """
    values = np.asarray(rewards, np.float64)
    members = defaultdict(list)
    for index, group in enumerate(groups):
        members[group].append(index)
    advantages = np.zeros(len(values))
    for indices in members.values():
        if len(indices) > 1:
            advantages[indices] = _of_one_group(values[indices], kind, epsilon)
    return advantages


def _of_one_group(rewards: NDArray[np.float64], kind: Kind, epsilon: float) -> NDArray[np.float64]:
    if rewards.min() == rewards.max():
        return np.zeros(len(rewards))  # exactly: rounding must not become a direction
    centred = rewards - rewards.mean()
    if kind == "grpo":
        return centred / (rewards.std(ddof=1) + epsilon)
    if kind == "rloo":
        return centred * len(rewards) / (len(rewards) - 1)
    return centred
