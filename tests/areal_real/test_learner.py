"""The learner: on-policy ratios, denominators, parts of a step, refusals, checkpoints."""

import gc
import resource
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_training import model_directory, random_samples, scenario

from areal_real.tokens import Sample
from areal_real.trainer import checkpoint
from areal_real.trainer.errors import CheckpointError, TrainingError
from areal_real.trainer.learner import Learner
from areal_real.trainer.sampler import sample
from interfaces.rollout import Trajectory

SMOOTH = {"learning_rate": 1.0, "epsilon": 1.0}
"""AdamW whose first step is g / (|g| + 1): weights differ as much as gradients do."""


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    return model_directory(tmp_path_factory.mktemp("learner"))


def weights(learner):
    return {name: weight.detach().clone() for name, weight in learner.model.named_parameters()}


def distance(one, other):
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def sampled(learner, groups=2, members=4, temperature=1.0):
    """Rollouts of the learner's own policy, rewarded by chance."""
    prompts = [(2, 3 + group, 9) for group in range(groups) for _ in range(members)]
    answers = sample(learner.model, prompts, eos_id=1, max_new_tokens=24, temperature=temperature, seed=5)
    return [
        Sample(
            index // members,
            Trajectory(index, prompt, tuple(a.ids), tuple(a.logprobs), (learner.version,) * len(a.ids)),
            float(index % 3 == 0),
        )
        for index, (prompt, a) in enumerate(zip(prompts, answers, strict=True))
    ]


def changed(samples, index, **changes):
    """Samples with one trajectory changed."""
    samples = list(samples)
    samples[index] = replace(samples[index], trajectory=replace(samples[index].trajectory, **changes))
    return samples


@pytest.mark.parametrize("objective", ["decoupled_ppo", "ppo", "unweighted_proximal"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_on_policy_is_on_policy(model_dir, objective, temperature):
    learner = Learner(model_dir, scenario(real__loss={"objective": objective}, real__temperature=temperature))
    for _ in range(2):
        stats = learner.step(sampled(learner, temperature=temperature), learner.version)
        assert stats.ratio_min == pytest.approx(1.0, abs=1e-4)
        assert stats.ratio_max == pytest.approx(1.0, abs=1e-4)
        assert stats.behaviour_weight_mean == pytest.approx(1.0, abs=1e-4)
        assert stats.behaviour_weight_max == pytest.approx(1.0, abs=1e-4)
        assert stats.kl_behaviour == pytest.approx(0.0, abs=1e-6)
        assert stats.staleness_max == 0
        assert stats.clip_fraction == 0
        assert stats.optimizer_steps == 1


def test_one_minibatch_of_old_data_has_the_present_policy_in_the_centre(model_dir):
    # AReaL at 4aef98d: v_prox was the version before; it is the version that the step starts from
    learner = Learner(model_dir, scenario())
    for version in range(3):
        stats = learner.step(random_samples(version=version, seed=version), version)
        assert stats.ratio_min == pytest.approx(1.0, abs=1e-4)
        assert stats.ratio_max == pytest.approx(1.0, abs=1e-4)
        assert stats.behaviour_weight_max > 1.01
    assert stats.staleness_max == 2
    assert 0 < stats.staleness_mean < 2


def test_bfloat16_rounds_products_and_keeps_weights(model_dir):
    learner = Learner(model_dir, scenario(real__dtype="bfloat16"))
    exact = Learner(model_dir, scenario())
    samples = sampled(learner)
    rounded, plain = learner.step(samples, 0), exact.step(samples, 0)
    assert rounded.ratio_max == pytest.approx(1.0, abs=0.05)
    assert 1e-5 < abs(rounded.kl_behaviour - plain.kl_behaviour) < 1e-2
    assert {weight.dtype for weight in weights(learner).values()} == {torch.float32}
    assert 0 < distance(weights(learner), weights(exact)) < 1e-3


def test_step_raises_what_was_rewarded(model_dir):
    learner = Learner(model_dir, scenario(real__optimizer={"learning_rate": 1e-3}))
    samples = sampled(learner)
    stats = [learner.step(samples, version) for version in range(3)]
    assert stats[2].loss < stats[1].loss < stats[0].loss
    assert stats[2].reward == stats[0].reward == pytest.approx(3 / 8)
    assert stats[0].entropy > 0


@pytest.mark.parametrize("parts", [(1, 3), (2, 1, 1)])
def test_parts_of_a_step_give_the_gradient_of_the_whole(model_dir, parts):
    samples = random_samples(groups=4)
    whole = Learner(model_dir, scenario(real__optimizer=SMOOTH))
    expected = whole.step(samples, 0)
    learner = Learner(model_dir, scenario(real__optimizer=SMOOTH))
    first = 0
    for part in parts:
        before = weights(learner)
        last = first + part == 4
        found = learner.step(samples[4 * first : 4 * (first + part)], 0, last=last)
        assert (found is None) is not last
        assert (distance(weights(learner), before) == 0) is not last
        first += part
    assert learner.version == 1
    assert found.rollouts == expected.rollouts == 16
    assert found.loss == pytest.approx(expected.loss, abs=1e-6)
    assert found.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-5)
    assert distance(weights(learner), weights(whole)) < 1e-5


def test_masked_versions_train_nothing_and_count_in_the_denominator(model_dir):
    samples = random_samples(version=1)
    old = sum(v < 1 for s in samples for v in s.trajectory.response_versions)
    start, plain, masked = (Learner(model_dir, scenario(real__optimizer=SMOOTH)) for _ in range(3))
    plain.version = masked.version = 1
    whole, rest = plain.step(samples, 1), masked.step(samples, 1, mask_below=1)
    assert rest.response_tokens == whole.response_tokens
    assert (whole.masked_tokens, rest.masked_tokens) == (0, old)
    assert rest.gradient_norm < whole.gradient_norm
    nothing = Learner(model_dir, scenario(real__optimizer=SMOOTH))
    nothing.version = 2
    stats = nothing.step(random_samples(version=1), 2, mask_below=2)
    assert stats.masked_tokens == stats.response_tokens
    assert stats.loss == 0
    assert distance(weights(nothing), weights(start)) == 0


def test_minibatches_take_every_rollout_once(model_dir):
    learner = Learner(model_dir, scenario(trainer__minibatches=3))
    samples = random_samples(groups=5)
    stats = learner.step(samples, 0)
    assert stats.optimizer_steps == 3
    assert stats.response_tokens == sum(len(s.trajectory.response_ids) for s in samples)
    assert stats.trained_tokens == stats.response_tokens + sum(len(s.trajectory.prompt_ids) for s in samples)


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda s: changed(s, 3, response_logprobs=(NAN,) * len(s[3].trajectory.response_ids)),
         "rollout 3 .*behaviour log-prob of a token is nan"),
        (lambda s: changed(s, 3, response_logprobs=(-INFINITE,) * len(s[3].trajectory.response_ids)),
         "rollout 3 .*behaviour log-prob of a token is -inf"),
        (lambda s: changed(s, 3, response_logprobs=(-1e4,) * len(s[3].trajectory.response_ids)),
         "rollout 3: loss of a token is -?inf.*behaviour_weight_cap"),
        (lambda s: changed(s, 2, response_versions=(1,) * len(s[2].trajectory.response_ids)),
         "rollout 2 .*token of version 1 cannot be trained from version 0"),
        (lambda s: changed(s, 1, prompt_ids=(48,)), "rollout 1 .*token 48 is not in the model's vocabulary"),
        (lambda s: changed(s, 1, prompt_ids=()), "rollout 1 .*no prompt token"),
        (lambda s: changed(s, 1, prompt_ids=(3,) * 600), "rollout 1 .*more than the model's 512 positions"),
        (lambda s: [*s[:5], replace(s[5], reward=NAN), *s[6:]], "rollout 5 .*reward is nan"),
        (lambda s: [], "none of 0 rollouts has a token"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused_by_name_and_moves_nothing(model_dir, spoil, says):
    learner = Learner(model_dir, scenario())
    before = weights(learner)
    with pytest.raises(TrainingError, match=says):
        learner.step(spoil(random_samples(seed=4)), 0)
    assert distance(weights(learner), before) == 0
    assert learner.version == 0
    learner.step(random_samples(), 0)
    assert learner.version == 1


def test_infinite_gradient_is_refused_before_it_moves_weights(model_dir):
    learner = Learner(model_dir, scenario())
    weight = next(iter(learner.model.parameters()))
    hook = weight.register_hook(lambda gradient: gradient * INFINITE)
    before = weights(learner)
    with pytest.raises(TrainingError, match=r"gradient norm is (nan|inf) over rollouts"):
        learner.step(random_samples(), 0)
    hook.remove()
    assert distance(weights(learner), before) == 0


def test_other_version_than_that_of_the_weights_is_refused(model_dir):
    with pytest.raises(TrainingError, match="asked to train from version 3, but the weights have version 0"):
        Learner(model_dir, scenario()).step(random_samples(), 3)


def test_contradicting_scenario_is_refused(model_dir):
    with pytest.raises(TrainingError, match=r"trainer\.recompute_proximal = false"):
        Learner(model_dir, scenario(trainer__recompute_proximal=False))
    with pytest.raises(TrainingError, match="trains on 8 GPUs, but the real trainer is one process"):
        Learner(model_dir, scenario(cluster__trainer_gpus=8))
    Learner(model_dir, scenario(trainer__recompute_proximal=False, real__loss={"objective": "ppo"}))


def test_directory_without_model_is_refused(tmp_path):
    with pytest.raises(TrainingError, match="no causal language model"):
        Learner(tmp_path, scenario())


def test_capped_weights_are_counted(model_dir):
    learner = Learner(model_dir, scenario(real__loss={"behaviour_weight_cap": 1.0}))
    stats = learner.step(random_samples(), 0)
    assert stats.behaviour_weight_max == 1.0
    assert 0 < stats.behaviour_weight_capped_fraction < 1


def test_resumed_learner_trains_as_the_first_would_have(model_dir, tmp_path):
    learner = Learner(model_dir, scenario(trainer__minibatches=2))
    for version in range(2):
        learner.step(random_samples(seed=version, version=version), version)
    learner.save_checkpoint(tmp_path / "step-1")
    resumed = Learner(model_dir, scenario(trainer__minibatches=2), resume_from=tmp_path / "step-1")
    assert resumed.version == 2
    assert distance(weights(resumed), weights(learner)) == 0
    for version in (2, 3):
        samples = random_samples(seed=version, version=version)
        assert resumed.step(samples, version) == learner.step(samples, version)
    assert distance(weights(resumed), weights(learner)) == 0


def test_checkpoint_is_a_model_for_others(model_dir, tmp_path):
    learner = Learner(model_dir, scenario())
    learner.step(random_samples(), 0)
    learner.save_checkpoint(tmp_path / "step-0")
    again = Learner(tmp_path / "step-0", scenario())
    assert (again.version, distance(weights(again), weights(learner))) == (0, 0)


def test_two_latest_checkpoints_stay(model_dir, tmp_path):
    learner = Learner(model_dir, scenario())
    for step in (0, 9, 10, 11):
        learner.save_checkpoint(tmp_path / f"step-{step}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-10", "step-11"]
    learner.step(random_samples(), 0)
    learner.save_checkpoint(tmp_path / "step-11")
    assert checkpoint.check_whole(tmp_path / "step-11").version == 1


@contextmanager
def files_at_most(size_bytes):
    """Writing further fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size_bytes", [0, 100_000, 500_000])
def test_full_disk_leaves_the_last_checkpoint_whole(model_dir, tmp_path, size_bytes):
    # the three sizes end in the configuration, in the model, and in the optimizer's state
    learner = Learner(model_dir, scenario())
    learner.step(random_samples(), 0)
    learner.save_checkpoint(tmp_path / "step-0")
    learner.step(random_samples(version=1), 1)
    with (
        files_at_most(size_bytes),
        pytest.raises(CheckpointError, match="step-1: checkpoint cannot be"),
    ):
        learner.save_checkpoint(tmp_path / "step-1")
    assert [path.name for path in tmp_path.iterdir()] == ["step-0"]
    assert Learner(model_dir, scenario(), resume_from=tmp_path / "step-0").version == 1


@pytest.mark.parametrize("call", range(9))
def test_checkpoint_killed_anywhere_leaves_a_whole_one(model_dir, tmp_path, monkeypatch, call):
    # AReaL at 4aef98d: a crash during a checkpoint left new weights with an old step number
    learner = Learner(model_dir, scenario())
    learner.save_checkpoint(tmp_path / "step-0")
    learner.step(random_samples(), 0)
    calls = iter(range(100))

    def until(function):
        """It, until the process dies at one of the calls that reach the disk."""

        def crashing(*arguments):
            if next(calls) == call:
                raise KeyboardInterrupt
            return function(*arguments)

        return crashing

    monkeypatch.setattr(checkpoint, "_sync", until(checkpoint._sync))
    monkeypatch.setattr(Path, "rename", until(Path.rename))
    with pytest.raises(KeyboardInterrupt):
        learner.save_checkpoint(tmp_path / "step-0")
    monkeypatch.undo()
    found = checkpoint.check_whole(tmp_path / "step-0").version
    resumed = Learner(model_dir, scenario(), resume_from=tmp_path / "step-0")
    assert resumed.version == found
    assert (distance(weights(resumed), weights(learner)) == 0) is (found == 1)


def test_unwritable_directory_is_a_clear_error(model_dir, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot be written \(.*\); earlier ones are whole"):
        Learner(model_dir, scenario()).save_checkpoint(tmp_path / "file" / "step-0")


def test_torn_checkpoint_is_refused(model_dir, tmp_path):
    learner = Learner(model_dir, scenario())
    learner.step(random_samples(), 0)
    learner.save_checkpoint(tmp_path / "step-0")
    file = tmp_path / "step-0" / "optimizer.state"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="use another checkpoint"):
        Learner(model_dir, scenario(), resume_from=tmp_path / "step-0")
    with pytest.raises(CheckpointError, match="no whole checkpoint"):
        Learner(model_dir, scenario(), resume_from=tmp_path / "step-7")


def test_version_can_be_published_while_the_next_step_has_begun(model_dir, tmp_path):
    learner = Learner(model_dir, scenario())
    learner.step(random_samples(), 0)
    first = weights(learner)
    learner.step(random_samples(version=1)[:4], 1, last=False)
    learner.save_weights(tmp_path / "during", 1)
    learner.step(random_samples(version=1)[4:], 1)
    learner.save_weights(tmp_path / "after", 1)
    learner.save_weights(tmp_path / "present", 2)
    assert distance(load_file(tmp_path / "during"), first) == 0
    assert distance(load_file(tmp_path / "after"), first) == 0
    assert distance(load_file(tmp_path / "present"), weights(learner)) == 0
    with pytest.raises(TrainingError, match="version 0 cannot be published"):
        learner.save_weights(tmp_path / "gone", 0)


def test_weights_are_published_in_the_type_of_the_engine(model_dir, tmp_path):
    learner = Learner(model_dir, scenario(real__dtype="bfloat16"))
    learner.save_weights(tmp_path / "weights", 0)
    assert {weight.dtype for weight in load_file(tmp_path / "weights").values()} == {torch.bfloat16}


def test_sampler_is_repeatable_and_stops_at_the_end_token(model_dir):
    learner = Learner(model_dir, scenario())
    answers = sample(learner.model, [(2, 5), (2, 5, 6, 7, 8)] * 4, eos_id=1, max_new_tokens=20, seed=1)
    assert answers == sample(
        learner.model, [(2, 5), (2, 5, 6, 7, 8)] * 4, eos_id=1, max_new_tokens=20, seed=1
    )
    assert all(answer.ended == (answer.ids[-1] == 1) for answer in answers)
    assert all(1 <= len(answer.ids) == len(answer.logprobs) <= 20 for answer in answers)
    greedy = sample(learner.model, [(2, 5)] * 2, eos_id=1, max_new_tokens=20, temperature=0)
    assert greedy[0].ids == greedy[1].ids


def test_memory_does_not_grow_with_the_steps(model_dir):
    # AReaL#1209, #1296, #1714
    learner = Learner(model_dir, scenario(trainer__minibatches=2))

    def tensors_after(steps):
        for _ in range(steps):
            learner.step(random_samples(version=learner.version), learner.version)
        gc.collect()
        found = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]
        return len(found), sum(tensor.nbytes for tensor in found)

    assert tensors_after(5) == tensors_after(100)


def test_later_minibatches_are_centred_on_the_policy_the_step_started_from(model_dir):
    # the first minibatch needs no second forward pass; that of the others must agree with it to rounding
    learner = Learner(model_dir, scenario(trainer__minibatches=4, real__optimizer={"learning_rate": 1e-12}))
    stats = learner.step(random_samples(), 0)
    assert stats.optimizer_steps == 4
    assert stats.ratio_min == pytest.approx(1.0, abs=1e-4)
    assert stats.ratio_max == pytest.approx(1.0, abs=1e-4)
    moved = Learner(model_dir, scenario(trainer__minibatches=4, real__optimizer={"learning_rate": 1e-2}))
    assert moved.step(random_samples(), 0).ratio_max > 1.01
