"""What the simulator asks a cost model: how long do things take? All answers in seconds."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from areal_sim.cost.floor import Floor

Ints = NDArray[np.int64]


class TrainingTime(NamedTuple):
    """One training step, taken apart."""

    total_s: float
    """`forward_s` and all of `minibatch_s`."""
    forward_s: float
    """Recomputing the proximal log-probs, before the first optimizer step; 0 when switched off."""
    minibatch_s: tuple[float, ...]
    """Each optimizer step: its slowest rank, then `update_s`."""
    update_s: float
    """Of one optimizer step: gradients reduced, weights updated and gathered."""
    imbalance: float
    """Busiest over mean data-parallel rank, 1.0 when equal."""
    microbatches: int
    """Of all ranks and optimizer steps."""
    fill: float
    """Tokens per micro-batch over `max_tokens_per_microbatch` (packed sequences: there is no padding)."""


class CostModel(Protocol):
    """How long everything takes. Answers depend on the arguments alone."""

    @property
    def provenance(self) -> str:
        """Where the numbers come from, for the report."""

    @property
    def floor(self) -> Floor | None:
        """The physical bounds that no answer undercuts; None where the numbers are not physical."""

    @property
    def decode_per_context_token_s(self) -> float:
        """Part of a decode step for each token in the contexts of its sequences."""

    def decode_base_s(self, n: int) -> float:
        """Part of a decode step of `n` running sequences that their contexts do not change.

        The whole step takes `decode_base_s(n) + decode_per_context_token_s * context_tokens`: linear in the
        context, so that many steps have a closed form.
        """

    def prefill_s(self, tokens: int, squared_tokens: float, sequences: int = 1) -> float:
        """Prefill of `tokens` tokens in total over `sequences` sequences on one replica.

        `squared_tokens` is the sum over sequences of end^2 - start^2, each context growing from start to end.
        """

    def training_step_s(
        self, lengths: Ints, *, minibatches: int | None = None, update: bool = True
    ) -> TrainingTime:
        """One training step over sequences of these lengths (prompt + response), in training order.

        `minibatches` replaces the scenario's number of optimizer steps; `update = False` only adds up
        gradients (a part of a streamed step: `minibatches = 1`, and the last part updates).
        """

    def publish_s(self) -> float:
        """Trainer side of a publish: weights written to storage, or gathered for a broadcast."""

    def load_s(self, replicas_loading: int) -> float:
        """Replica side, with the fixed overhead, when so many replicas load at the same time."""

    def switch_s(self) -> float:
        """Colocated GPUs change their role once, from generation to training or back."""
