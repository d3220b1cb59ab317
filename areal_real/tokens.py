"""Tokens of rollouts, kept between the engine that makes them and the trainer that takes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from interfaces.rollout import PolicyVersion, Trajectory


@dataclass(frozen=True, slots=True)
class Sample:
    """A finished rollout as the trainer takes it."""

    group: int
    trajectory: Trajectory
    reward: float


class TokenStore(Protocol):
    """Tokens by rollout id. Engines append what they generated *before* they report the event about it."""

    def prompt_ids(self, prompt: int) -> tuple[int, ...]:
        """Tokens of a prompt (index in the run: epoch * dataset_size + position)."""

    def trajectory(self, rollout: int, prompt: int) -> Trajectory:
        """What was generated of a rollout so far; empty response if nothing was."""

    def extend(
        self, rollout: int, ids: Sequence[int], logprobs: Sequence[float], versions: Sequence[PolicyVersion],
        *, ended: bool,
    ) -> None:  # fmt: skip
        """Append what an engine generated since the last dispatch; `ended`: the model itself stopped."""

    def restart(self, rollout: int) -> None:
        """Forget what was generated of a rollout: it begins again from token 0."""
