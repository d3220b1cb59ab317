"""Packed micro-batches: the same as padded ones, however they are cut; one shift for everything."""

import copy

import numpy as np
import pytest
import torch
from small_training import model_directory, random_samples, scenario

from areal_real.tokens import Sample
from areal_real.trainer.learner import Learner
from areal_real.trainer.losses import token_losses, token_mean
from areal_real.trainer.packing import microbatches, pack, rows_of
from areal_real.trainer.policy_model import generating, load_model, token_logits, token_logprobs
from interfaces.rollout import Trajectory
from interfaces.scenario import Loss, Trainer

CPU = torch.device("cpu")
SMOOTH = {"learning_rate": 1.0, "epsilon": 1.0}
"""AdamW whose first step is g / (|g| + 1): weights differ as much as gradients do."""


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    return model_directory(tmp_path_factory.mktemp("packing"))


@pytest.fixture(scope="module")
def model(model_dir):
    return load_model(model_dir, CPU)


def gradients(model):
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def padded_logprobs(model, samples):
    """Log-probs of response tokens as transformers computes them from a padded batch, in sample order."""
    longest = max(len(s.trajectory.prompt_ids) + len(s.trajectory.response_ids) for s in samples)
    ids = torch.zeros(len(samples), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, sample in enumerate(samples):
        tokens = (*sample.trajectory.prompt_ids, *sample.trajectory.response_ids)
        ids[row, : len(tokens)] = torch.tensor(tokens)
        mask[row, : len(tokens)] = 1
    model.set_attn_implementation("sdpa")
    logprobs = torch.log_softmax(model(input_ids=ids, attention_mask=mask, use_cache=False).logits, -1)
    model.set_attn_implementation("areal_packed")
    parts = []
    for row, sample in enumerate(samples):
        start, count = len(sample.trajectory.prompt_ids), len(sample.trajectory.response_ids)
        places = torch.arange(start, start + count)
        parts.append(logprobs[row, places - 1, ids[row, places]])
    return torch.cat(parts)


def loss_of(current, packed):
    losses = token_losses(
        current, proximal_N=packed.proximal_N, behaviour_N=packed.behaviour_N,
        advantages_N=packed.advantages_N, mask_N=packed.mask_N, loss=Loss(objective="ppo"),
    )  # fmt: skip
    return token_mean(losses.losses_N, len(current))


def test_packed_equals_padded_in_loss_and_gradient(model):
    samples = random_samples(groups=3)
    packed = pack(rows_of(samples, Loss(), None), CPU)
    model.zero_grad()
    ours = token_logprobs(token_logits(model, packed), packed.targets_N, 1.0)
    loss = loss_of(ours, packed)
    loss.backward()
    found = gradients(model)
    model.zero_grad()
    theirs = padded_logprobs(model, samples)
    expected = loss_of(theirs, packed)
    expected.backward()
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-5)
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(found[name], gradient, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"trainer__max_tokens_per_microbatch": 1},  # every rollout alone
        {"trainer__max_tokens_per_microbatch": 45},
        {"trainer__max_tokens_per_microbatch": 100_000},  # all together
        {"trainer__microbatching": "fixed", "trainer__fixed_microbatches": 3},
        {"trainer__activation_checkpointing": True},
    ],
)
def test_step_does_not_depend_on_the_cut_into_microbatches(model_dir, changes):
    samples = random_samples(groups=3)
    stats, weights = [], []
    for change in ({}, changes):
        learner = Learner(model_dir, scenario(trainer__minibatches=2, real__optimizer=SMOOTH, **change))
        stats.append(learner.step(samples, 0))
        weights.append({k: v.detach().clone() for k, v in learner.model.named_parameters()})
    assert stats[1].loss == pytest.approx(stats[0].loss, abs=1e-6)
    assert stats[1].gradient_norm == pytest.approx(stats[0].gradient_norm, abs=1e-5)
    assert stats[1].response_tokens == stats[0].response_tokens
    for name, weight in weights[0].items():
        torch.testing.assert_close(weights[1][name], weight, atol=1e-5, rtol=0)


def test_microbatches_hold_all_rows_within_capacity():
    rows = rows_of(random_samples(groups=5), Loss(), None)
    cut = microbatches(rows, Trainer(max_tokens_per_microbatch=40))
    assert sorted(row.rollout for batch in cut for row in batch) == [row.rollout for row in rows]
    assert all(sum(row.length for row in batch) <= 40 for batch in cut)


def sample_of(prompt, response, logprobs, versions, rollout=0):
    return Sample(0, Trajectory(rollout, prompt, response, logprobs, versions), 1.0)


def test_only_the_last_segment_of_each_rollout_counts_when_that_is_asked():
    samples = [
        sample_of((10, 11), (12, 13, 14), (-0.1, -0.2, -0.3), (5, 5, 6)),
        sample_of((20,), (21, 22), (-0.4, -0.5), (4, 4), rollout=1),
    ]
    packed = pack(rows_of(samples, Loss(), None, last_segment=True), CPU)
    assert packed.mask_N.tolist() == [False, False, True, True, True]


def test_log_probs_versions_and_masks_stay_with_their_token():
    # AReaL at 4aef98d: log-probs and loss mask were shifted by one, versions [-1, -1, 5, 5, 6] were not
    samples = [
        sample_of((10, 11), (12, 13, 14), (-0.1, -0.2, -0.3), (5, 5, 6)),
        sample_of((20,), (21, 22), (-0.4, -0.5), (6, 4), rollout=1),
    ]
    packed = pack(rows_of(samples, Loss(), mask_below=6), CPU)
    assert packed.ids_T.tolist() == [10, 11, 12, 13, 14, 20, 21, 22]
    assert packed.positions_T.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert packed.targets_N.tolist() == [12, 13, 14, 21, 22]
    assert packed.ids_T[packed.predict_N + 1].tolist() == packed.targets_N.tolist()
    assert packed.behaviour_N.tolist() == pytest.approx([-0.1, -0.2, -0.3, -0.4, -0.5])
    assert packed.mask_N.tolist() == [False, False, True, True, False]
    assert packed.owners.tolist() == [0, 0, 0, 1, 1]


def test_documents_do_not_see_each_other(model):
    samples = random_samples(groups=1, members=2)
    first = rows_of(samples, Loss(), None)
    other = copy.deepcopy(first)
    other[0].prompt_ids = (other[0].prompt_ids + 1) % 48
    with torch.no_grad():
        one, two = (token_logits(model, pack(rows, CPU)) for rows in (first, other))
    own = np.repeat([0, 1], [len(row.response_ids) for row in first])
    assert not torch.allclose(one[own == 0], two[own == 0])
    torch.testing.assert_close(one[own == 1], two[own == 1])


def test_model_generates_again_after_it_trained_packed(model):
    ids = torch.tensor([[1, 5, 7]])
    with generating(model):
        model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False)
    assert model.config._attn_implementation == "areal_packed"
