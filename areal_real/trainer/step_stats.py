"""What one training step reports, summed over its micro-batches."""

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from areal_real.tokens import Sample
from areal_real.trainer.losses import TokenLosses, kl_k3
from areal_real.trainer.packing import Packed
from interfaces.rollout import PolicyVersion, staleness


@dataclass(frozen=True, slots=True)
class StepStats:
    """Statistics of one training step. Means are over unmasked tokens unless said otherwise."""

    version: PolicyVersion
    """That the step started from."""
    rollouts: int
    trained_tokens: int
    """Prompt + response."""
    response_tokens: int
    masked_tokens: int
    """Response tokens left out for their version."""
    reward: float
    """Mean over rollouts."""
    loss: float
    """Of all optimizer steps together, as a mean over response tokens."""
    entropy: float
    """Nats a token, under the policy in training."""
    kl_behaviour: float
    """KL(behaviour || policy in training), estimator k3."""
    ratio_mean: float
    """Importance ratio to the centre of the clip: the proximal policy, or the behaviour policy for `ppo`."""
    ratio_min: float
    ratio_max: float
    clip_fraction: float
    dual_clip_fraction: float
    behaviour_weight_mean: float
    """`pi_prox / pi_behav` after its cap; 1 for the objectives without it."""
    behaviour_weight_max: float
    behaviour_weight_capped_fraction: float
    gradient_norm: float
    """Before clipping, mean over optimizer steps."""
    staleness_mean: float
    """Versions, over rollouts: the step's minus the oldest over the generated tokens."""
    staleness_max: float
    optimizer_steps: int
    microbatches: int
    microbatch_fill: float
    """Tokens of the micro-batches divided by their capacity."""

    def numbers(self) -> dict[str, float]:
        """All of it, by name."""
        return {name: float(value) for name, value in asdict(self).items()}


class StepTotals:
    """Sums over the micro-batches of one step."""

    def __init__(self, version: PolicyVersion, capacity_tokens: int) -> None:
        self.version = version
        self.tokens = 0
        """Response tokens of the step so far, masked ones included."""
        self._capacity = capacity_tokens
        self._rewards: list[float] = []
        self._staleness: list[int] = []
        self._sums: NDArray[np.float64] = np.zeros(8)
        self._extremes = [float("inf"), -float("inf"), -float("inf")]
        self._gradient_norms: list[float] = []
        self._trained_tokens = self._kept = self._microbatches = self._packed_tokens = 0

    def add_samples(self, samples: list[Sample]) -> None:
        """Take in the rollouts of the step, or of a part of it."""
        for sample in samples:
            trajectory = sample.trajectory
            self._rewards.append(sample.reward)
            self._trained_tokens += len(trajectory.prompt_ids) + len(trajectory.response_ids)
            self.tokens += len(trajectory.response_ids)
            if trajectory.response_versions:
                self._staleness.append(staleness(self.version, trajectory.head_version))

    def add_microbatch(
        self, packed: Packed, losses: TokenLosses, current_N: Tensor, entropy_N: Tensor
    ) -> None:
        """Take in what one micro-batch gave."""
        mask_N = packed.mask_N
        kept = int(mask_N.sum())
        self._kept += kept
        self._microbatches += 1
        self._packed_tokens += len(packed.ids_T)
        if not kept:
            return
        columns = (
            losses.losses_N.detach(), entropy_N, kl_k3(packed.behaviour_N, current_N.detach()),
            losses.ratio_N, losses.clipped_N, losses.dual_clipped_N, losses.weight_N, losses.capped_N,
        )  # fmt: skip
        self._sums += np.asarray([float(column[mask_N].double().sum()) for column in columns])
        ratio, weight = losses.ratio_N[mask_N], losses.weight_N[mask_N]
        low, high, heaviest = self._extremes
        self._extremes = [
            min(low, float(ratio.min())), max(high, float(ratio.max())), max(heaviest, float(weight.max())),
        ]  # fmt: skip

    def add_optimizer_step(self, gradient_norm: float) -> None:
        """Take in the norm of the gradient before clipping."""
        self._gradient_norms.append(gradient_norm)

    def stats(self) -> StepStats:
        """Of all that was taken in."""
        kept = max(1, self._kept)
        loss, *means = (self._sums / kept).tolist()
        entropy, kl, ratio, clipped, dual_clipped, weight, capped = means
        low, high, heaviest = self._extremes if self._kept else (1.0, 1.0, 1.0)
        return StepStats(
            version=self.version,
            rollouts=len(self._rewards),
            trained_tokens=self._trained_tokens,
            response_tokens=self.tokens,
            masked_tokens=self.tokens - self._kept,
            reward=_mean(self._rewards),
            loss=loss * self._kept / max(1, self.tokens),
            entropy=entropy,
            kl_behaviour=kl,
            ratio_mean=ratio if self._kept else 1.0,
            ratio_min=low,
            ratio_max=high,
            clip_fraction=clipped,
            dual_clip_fraction=dual_clipped,
            behaviour_weight_mean=weight if self._kept else 1.0,
            behaviour_weight_max=heaviest,
            behaviour_weight_capped_fraction=capped,
            gradient_norm=_mean(self._gradient_norms),
            staleness_mean=_mean(self._staleness),
            staleness_max=float(max(self._staleness, default=0)),
            optimizer_steps=len(self._gradient_norms),
            microbatches=self._microbatches,
            microbatch_fill=self._packed_tokens / (self._capacity * max(1, self._microbatches)),
        )


def _mean(values: list[float] | list[int]) -> float:
    return sum(values) / len(values) if values else 0.0
