"""Losses against values that AReaL, verl and OpenRLHF computed, in value and in gradient."""

import json
import math
from pathlib import Path

import pytest
import torch

from areal_real.trainer.losses import kl_k3, token_losses, token_mean
from interfaces.scenario import Loss

DATA = Path(__file__).parent / "data"
REFERENCE = json.loads((DATA / "reference_values.json").read_text())
AREAL = json.loads((DATA / "areal_vectors.json").read_text())
AREAL_CASES = {case["case"]: case for case in AREAL["cases"]}
TOLERANCE = 1e-5


def evaluated(loss, *, current, proximal, behaviour, advantages, mask):
    """Loss and gradient with respect to `current`."""
    current = torch.tensor(current, requires_grad=True)
    mask = torch.tensor(mask, dtype=torch.bool)
    losses = token_losses(
        current,
        proximal_N=torch.tensor(proximal),
        behaviour_N=torch.tensor(behaviour),
        advantages_N=torch.tensor(advantages),
        mask_N=mask,
        loss=loss,
    )
    value = token_mean(losses.losses_N, int(mask.sum()))
    value.backward()
    return value.item(), current.grad, losses


def close(found, expected):
    torch.testing.assert_close(found, torch.tensor(expected), atol=TOLERANCE, rtol=0)


PUBLISHED = {
    "verl/ppo_naive_behav_center/token-mean": Loss(objective="ppo"),
    "verl/ppo_prox_center_no_is/token-mean": Loss(objective="unweighted_proximal"),
    "verl/ppo_decoupled_is_raw/token-mean": Loss(),
    "areal/ppo_naive_behav_center": Loss(objective="ppo"),
    "areal/ppo_prox_center_no_is": Loss(objective="unweighted_proximal"),
    "areal/ppo_decoupled_mask_upper1e+09": Loss(),
    "areal/ppo_decoupled_clamp_upper5": Loss(behaviour_weight_cap=5.0),
    "openrlhf/ppo_naive_behav_center/token-mean": Loss(objective="ppo"),
    "openrlhf/ppo_prox_center_no_is/token-mean": Loss(objective="unweighted_proximal"),
    "openrlhf/decoupled_clip_0_5/token-mean": Loss(behaviour_weight_cap=5.0),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_agrees_with_published_systems(name):
    given, expected = REFERENCE["inputs"], REFERENCE["outputs"][name]
    value, gradient, _ = evaluated(
        PUBLISHED[name], current=given["theta_logp"], proximal=given["prox_logp"],
        behaviour=given["behav_logp"], advantages=given["advantages"], mask=given["mask"],
    )  # fmt: skip
    assert value == pytest.approx(expected["loss"], abs=TOLERANCE)
    close(gradient, expected["grad_theta"])


AREAL_LOSSES = {
    "token_plain": Loss(objective="unweighted_proximal"),
    "clip_higher": Loss(objective="unweighted_proximal", clip_high=0.28),
    "dual_clip_3": Loss(objective="unweighted_proximal", dual_clip=3.0),
    "rs_token_ratio_mean_clamp": Loss(behaviour_weight_cap=1.5),
}


@pytest.mark.parametrize("name", AREAL_LOSSES)
def test_agrees_with_areal_vectors(name):
    given, expected = AREAL["inputs"], AREAL_CASES[name]
    value, gradient, losses = evaluated(
        AREAL_LOSSES[name], current=given["logprobs"], proximal=given["proximal_logprobs"],
        behaviour=given["old_logprobs"], advantages=given["advantages"], mask=given["loss_mask"],
    )  # fmt: skip
    assert value == pytest.approx(expected["loss"], abs=TOLERANCE)
    close(gradient, expected["grad"])
    assert losses.clipped_N.int().tolist() == expected["clip_mask"]
    assert losses.dual_clipped_N.int().tolist() == expected["dual"]
    mask = torch.tensor(given["loss_mask"], dtype=torch.bool)
    close(losses.ratio_N[mask], torch.tensor(expected["importance_weight"])[mask].tolist())
    if "behave_imp_weight" in expected:
        close(losses.weight_N[mask], torch.tensor(expected["behave_imp_weight"])[mask].tolist())
        assert losses.capped_N[mask].float().mean() == pytest.approx(expected["filtered_fraction"])


def test_behaviour_weight_is_always_multiplied():
    # AReaL at 4aef98d: "decoupled PPO" without its correction gives -1.005 here, eq. (5) gives -5.054
    tokens = {
        "current": [-1.0, -1.0], "proximal": [-1.1, -0.9], "behaviour": [-3.0, -2.0],
        "advantages": [1.0, 1.0], "mask": [1, 1],
    }  # fmt: skip
    assert evaluated(Loss(), **tokens)[0] == pytest.approx(-5.054, abs=1e-3)
    without = evaluated(Loss(objective="unweighted_proximal"), **tokens)[0]
    assert without == pytest.approx(-1.005, abs=1e-3)


def one_token(loss, ratio_log, advantage):
    """A token whose three policies differ by nothing but the ratio to the proximal one."""
    return evaluated(
        loss, current=[ratio_log], proximal=[0.0], behaviour=[0.0], advantages=[advantage], mask=[1]
    )


def test_dual_clip_bounds_the_loss_of_a_negative_advantage():
    # ratio e^2 = 7.39 with advantage -1: loss 7.39, and at most 3 with the dual clip; then without gradient
    plain, gradient, _ = one_token(Loss(), 2.0, -1.0)
    assert plain == pytest.approx(math.exp(2.0), rel=1e-6)
    bounded, none, losses = one_token(Loss(dual_clip=3.0), 2.0, -1.0)
    assert bounded == pytest.approx(3.0)
    assert gradient.item() == pytest.approx(math.exp(2.0), rel=1e-6)
    assert none.item() == 0.0
    assert losses.dual_clipped_N.tolist() == [True]


def test_clip_higher_lets_a_token_rise_further():
    assert one_token(Loss(), 0.25, 1.0)[1].item() == 0.0  # ratio 1.284
    assert one_token(Loss(clip_high=0.3), 0.25, 1.0)[1].item() < 0.0


def test_masked_tokens_may_hold_any_number():
    logprobs = [-1.0, math.inf, -math.inf, math.nan]
    value, gradient, _ = evaluated(
        Loss(),
        current=logprobs,
        proximal=logprobs,
        behaviour=logprobs,
        advantages=[1.0] * 4,
        mask=[1, 0, 0, 0],
    )
    assert value == pytest.approx(-1.0)
    assert gradient.tolist() == [-1.0, 0.0, 0.0, 0.0]


def test_masking_does_not_inflate_the_gradient():
    # AReaL#1088: 4 tokens, 2 masked: the denominator stays 4
    current = torch.zeros(4, requires_grad=True)
    losses = token_losses(
        current, proximal_N=torch.zeros(4), behaviour_N=torch.zeros(4), advantages_N=torch.ones(4),
        mask_N=torch.tensor([True, True, False, False]), loss=Loss(),
    )  # fmt: skip
    token_mean(losses.losses_N, 4).backward()
    assert current.grad.tolist() == [-0.25, -0.25, 0.0, 0.0]


def test_kl_estimate_agrees_with_areal():
    case = AREAL_CASES["kl_k3"]
    close(kl_k3(torch.tensor(case["lp"]), torch.tensor(case["base"])), case["out"])


def test_objective_without_proximal_is_refused():
    with pytest.raises(ValueError, match="needs proximal"):
        token_losses(
            torch.zeros(1), proximal_N=None, behaviour_N=torch.zeros(1), advantages_N=torch.ones(1),
            mask_N=torch.ones(1, dtype=torch.bool), loss=Loss(),
        )  # fmt: skip


def test_what_is_masked_or_padded_changes_nothing():
    # AReaL#1346: advantages [1, 1, 10, 10] with mask [1, 1, 0, 0]
    tokens = {"current": [-1.0] * 4, "proximal": [-1.0] * 4, "behaviour": [-1.5] * 4, "mask": [1, 1, 0, 0]}
    padded, _, _ = evaluated(Loss(), advantages=[1.0, 1.0, 10.0, 10.0], **tokens)
    short = {name: values[:2] for name, values in tokens.items()}
    assert padded == evaluated(Loss(), advantages=[1.0, 1.0], **short)[0]
