"""The replay buffer of a simulation: sizes of finished rollouts."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class SizeBuffer:
    """Total tokens (prompt + response) of finished rollouts, until they are trained or discarded."""

    def __init__(self) -> None:
        self._tokens: dict[int, int] = {}
        self._unwanted: set[int] = set()
        """Discarded while a replica still held them."""

    def put(self, rollout: int, tokens: int) -> None:
        """A rollout finished; one that is not wanted any more is not kept."""
        if rollout in self._unwanted:
            self._unwanted.discard(rollout)
        else:
            self._tokens[rollout] = tokens

    def take(self, rollouts: Sequence[int]) -> NDArray[np.int64]:
        """Sizes of a batch, in its order; they leave the buffer."""
        pop = self._tokens.pop
        return np.array([pop(rollout) for rollout in rollouts], dtype=np.int64)

    def discard(self, rollouts: Sequence[int], running: Sequence[int] = ()) -> None:
        """Forget rollouts; unknown ids are ignored. Those still `running` will not be kept either."""
        for rollout in rollouts:
            self._tokens.pop(rollout, None)
        self._unwanted.update(running)

    def left(self, rollout: int) -> None:
        """A rollout left its replica unfinished: nothing of it will come."""
        self._unwanted.discard(rollout)

    def __len__(self) -> int:
        return len(self._tokens)
