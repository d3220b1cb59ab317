"""Policy-gradient objectives, token by token: pure functions of log-probs and advantages.

Symbols, for one generated token `a` after its prefix `s` (AReaL, arXiv 2505.24298, section 5.2):

- `behaviour`: log pi_behav(a|s), recorded when the token was sampled, under the version that made it;
- `proximal`: log pi_prox(a|s), under the weights that the training step starts from;
- `current`: log pi_theta(a|s), the only one that gradients flow through;
- `A`: the advantage, `clip(u) = min(max(u, 1 - clip_low), 1 + clip_high)`.

Every objective is minimised. With `u` the ratio that is clipped and `w` a weight without gradient:

    loss = -w * min(u A, clip(u) A)                                                             (5)

| objective             | u                   | w                            |
|-----------------------|---------------------|------------------------------|
| `decoupled_ppo`       | pi_theta / pi_prox  | min(pi_prox / pi_behav, cap) |
| `ppo`                 | pi_theta / pi_behav | 1                            |
| `unweighted_proximal` | pi_theta / pi_prox  | 1                            |

`decoupled_ppo` is eq. (5) of the paper, `ppo` its eq. (2); `clip_low != clip_high` is clip-higher (DAPO,
arXiv 2503.14476). With `dual_clip = c` (arXiv 1912.09729) the minimum has a floor where A < 0:
`loss = -w * max(min(u A, clip(u) A), c A)`.

A batch has one denominator, its number of generated tokens before any was masked, so neither masks nor
the cut into micro-batches change the weight of a token.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from interfaces.scenario import Loss

NEEDS_PROXIMAL = frozenset({"decoupled_ppo", "unweighted_proximal"})
"""Objectives whose centre is the policy that the step starts from."""


@dataclass(frozen=True, slots=True)
class TokenLosses:
    """What an objective says about each of N tokens; all but `losses_N` without gradient."""

    losses_N: Tensor
    """0 where masked."""
    ratio_N: Tensor
    """`u` above; 1 where masked."""
    weight_N: Tensor
    """`w` above; 1 where masked."""
    clipped_N: Tensor
    """Bool: the clip took this token's gradient."""
    dual_clipped_N: Tensor
    """Bool: the dual clip took it."""
    capped_N: Tensor
    """Bool: the cap of the behaviour weight bound."""


def token_losses(
    current_N: Tensor,
    *,
    proximal_N: Tensor | None,
    behaviour_N: Tensor,
    advantages_N: Tensor,
    mask_N: Tensor,
    loss: Loss,
) -> TokenLosses:
    """Loss of each token under `loss.objective`; the equations are on top of this module.

    Args:
        current_N: log-probs under the weights in training; gradients flow through these.
        proximal_N: log-probs under the weights that the step started from; may be None for `ppo`.
        behaviour_N: log-probs as sampled.
        advantages_N: one value a token.
        mask_N: bool; False leaves a token out, whatever its numbers.
        loss: objective and its constants.

    Raises:
        ValueError: the objective needs proximal log-probs and there are none.
    """
    if loss.objective in NEEDS_PROXIMAL and proximal_N is None:
        raise ValueError(f"objective {loss.objective} needs proximal log-probs")
    centre_N = behaviour_N if proximal_N is None or loss.objective == "ppo" else proximal_N
    weight_N, capped_N = torch.ones_like(behaviour_N), torch.zeros_like(mask_N)
    if loss.objective == "decoupled_ppo":
        weight_N, capped_N = behaviour_weight(centre_N, behaviour_N, mask_N, loss.behaviour_weight_cap)
    # masked before exp: inf * 0 would be NaN, in the gradient too
    ratio_N = torch.where(mask_N, current_N - centre_N.detach(), 0.0).exp()
    clip_N = ratio_N.clamp(1.0 - loss.clip_low, 1.0 + loss.clip_high)
    plain_N, bounded_N = ratio_N * advantages_N, clip_N * advantages_N
    gain_N = torch.minimum(plain_N, bounded_N)
    clipped_N = (bounded_N < plain_N) & mask_N
    dual_clipped_N = torch.zeros_like(mask_N)
    if loss.dual_clip is not None:
        floor_N = loss.dual_clip * advantages_N
        dual_clipped_N = (advantages_N < 0) & (gain_N < floor_N) & mask_N
        gain_N = torch.where(advantages_N < 0, torch.maximum(gain_N, floor_N), gain_N)
    losses_N = torch.where(mask_N, -weight_N * gain_N, 0.0)
    return TokenLosses(losses_N, ratio_N.detach(), weight_N, clipped_N, dual_clipped_N, capped_N)


def behaviour_weight(
    proximal_N: Tensor, behaviour_N: Tensor, mask_N: Tensor, cap: float | None
) -> tuple[Tensor, Tensor]:
    """`pi_prox / pi_behav` of each token, at most `cap`, without gradient; and where the cap bound."""
    weight_N = torch.where(mask_N, proximal_N - behaviour_N, 0.0).exp().detach()
    if cap is None:
        return weight_N, torch.zeros_like(mask_N)
    return weight_N.clamp(max=cap), weight_N > cap


def token_mean(losses_N: Tensor, denominator: int) -> Tensor:
    """Sum over tokens divided by the generated tokens of the whole batch, masked ones included."""
    return losses_N.sum() / denominator


def kl_k3(logprobs_N: Tensor, other_N: Tensor) -> Tensor:
    """Estimate of KL(p || q) from tokens sampled from p: `exp(q - p) - 1 - (q - p)` in log-probs, >= 0.

    Source: J. Schulman, "Approximating KL divergence" (estimator k3).
    """
    difference_N = other_N - logprobs_N
    return difference_N.exp() - 1.0 - difference_N
