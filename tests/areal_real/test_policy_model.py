"""Any causal LM of transformers: packed exactly, or refused with a reason."""

import pytest
import torch
from small_training import random_samples, scenario
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    Qwen3Config,
)

from areal_real.trainer.errors import TrainingError
from areal_real.trainer.learner import Learner
from areal_real.trainer.packing import pack, rows_of
from areal_real.trainer.policy_model import generating, load_model, token_logits, weights_of
from areal_real.trainer.sampler import sample
from interfaces.scenario import Loss

CPU = torch.device("cpu")
SMALL = {
    "vocab_size": 48, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
CONFIGURATIONS = {
    "llama": LlamaConfig(**SMALL),
    "qwen3": Qwen3Config(**SMALL, head_dim=8),
    "mistral, window of 4": MistralConfig(**SMALL, sliding_window=4),
    "gemma3, windows in some layers": Gemma3TextConfig(**SMALL, head_dim=8, sliding_window=4),
    "gpt2, dropout": GPT2Config(vocab_size=48, n_embd=32, n_layer=2, n_head=4, n_positions=64),
}


def directory_of(config, path):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(path)
    return path


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_packed_documents_are_computed_as_if_alone(name, tmp_path):
    model = load_model(directory_of(CONFIGURATIONS[name], tmp_path), CPU)
    samples = random_samples(groups=1)
    packed = pack(rows_of(samples, Loss(), None), CPU)
    with torch.no_grad():
        ours = token_logits(model, packed)
    with generating(model):
        alone = []
        for sample_ in samples:
            trajectory = sample_.trajectory
            ids = torch.tensor([[*trajectory.prompt_ids, *trajectory.response_ids]])
            logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits[0]
            alone.append(logits[len(trajectory.prompt_ids) - 1 : -1])
    torch.testing.assert_close(ours, torch.cat(alone), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["llama", "gpt2, dropout", "mistral, window of 4"])
def test_other_architectures_train_and_generate(name, tmp_path):
    learner = Learner(directory_of(CONFIGURATIONS[name], tmp_path), scenario())
    before = {name: weight.clone() for name, weight in weights_of(learner.model).items()}
    stats = learner.step(random_samples(), 0)
    assert stats.ratio_max == pytest.approx(1.0, abs=1e-4)  # dropout would show here
    after = weights_of(learner.model)
    assert all(not torch.equal(before[name], after[name]) for name in before if "weight" in name)
    answers = sample(learner.model, [(3, 4), (5,)], eos_id=1, max_new_tokens=8)
    assert all(answer.ids for answer in answers)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (Gemma2Config(**SMALL, head_dim=8), "does not support softcap"),
        (
            MambaConfig(vocab_size=48, hidden_size=32, num_hidden_layers=2, state_size=4),
            "cannot be trained on packed",
        ),
    ],
)
def test_architecture_that_cannot_be_packed_is_refused(config, says, tmp_path):
    with pytest.raises(TrainingError, match=says):
        load_model(directory_of(config, tmp_path), CPU)
