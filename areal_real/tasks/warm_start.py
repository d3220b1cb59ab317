"""The model that the letter chain starts from: trained here in about a minute, the same every time.

It has seen both kinds of answers, so it can do the steps when it begins with one; but it mostly answers
directly, which is a guess. Reinforcement learning has something to find, and the answers grow long by it.
"""

import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.utils import logging

from areal_real.tasks import letter_chain as task
from areal_real.tokens import Sample
from areal_real.trainer.packing import pack, rows_of
from areal_real.trainer.policy_model import load_model, token_logits
from areal_real.trainer.sampler import sample
from interfaces.errors import TestbedError
from interfaces.rollout import Trajectory
from interfaces.scenario import Loss

SIZES = {"s": (128, 4), "xs": (64, 2)}
"""Hidden size and heads; 302 k and 86 k parameters. Heads of 32, the smallest that vLLM takes on a CPU."""
LEARNING_RATE = 2e-3
BATCH = 64
STEP_BY_STEP_SHARE = 0.6
CORRUPTED_SHARE = 0.05
"""Of the steps in an answer: their result is wrong, and the chain goes on from it."""
ENOUGH = 0.6
"""Accuracy of forced step-by-step answers that ends the first phase: there is a plateau and then a jump, so a
number of steps would not do."""
EVALUATE_EVERY = 10
EVALUATION_PROMPTS = 128
MOST_STEPS = 2000
DIRECT_STEPS = 40
DIRECT_STEP_BY_STEP_SHARE = 0.2
MAX_NEW_TOKENS = 100


@dataclass(frozen=True, slots=True)
class WarmStart:
    """How a warm start went."""

    steps: int
    forced_accuracy: float
    accuracy: float
    """Sampled at temperature 1, on held-out prompts."""


def new_model(size: str, seed: int = 0) -> Any:
    """An untrained model of the task, from `seed`."""
    hidden, heads = SIZES[size]
    config = Qwen2Config(
        vocab_size=task.VOCABULARY, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=2,
        num_attention_heads=heads, num_key_value_heads=max(1, heads // 2), tie_word_embeddings=True,
        initializer_range=0.08, max_position_embeddings=512, pad_token_id=task.PAD, eos_token_id=task.EOS,
        bos_token_id=task.BOS, dtype="float32",
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(config)


def warm_start(directory: Path, size: str = "s", seed: int = 0) -> None:
    """Write the warm start to `directory` unless it is there; it appears whole or not at all.

    Raises:
        TestbedError: the directory cannot be written, or the training found no way off its plateau.
    """
    if (directory / "config.json").exists():
        return
    temporary = directory.with_name(f".{directory.name}.tmp")
    logging.disable_progress_bar()
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        new_model(size, seed).save_pretrained(temporary)
        model = load_model(temporary, torch.device("cpu"))
        result = train_warm_start(model, seed)
        model.save_pretrained(temporary)
        (temporary / "warm_start.json").write_text(
            json.dumps({"size": size, "seed": seed, "steps": result.steps, "accuracy": result.accuracy})
        )
        shutil.rmtree(directory, ignore_errors=True)
        temporary.rename(directory)
    except OSError as error:
        raise TestbedError(
            f"{directory}: the model cannot be written ({error}); choose another directory"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def train_warm_start(model: Any, seed: int = 0) -> WarmStart:
    """Train both kinds of answers until forced step-by-step ones are good enough, then mostly direct ones.

    Raises:
        TestbedError: they were not within `MOST_STEPS`; another seed may.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.0)
    numbers = random.Random(f"letter chain warm start {seed}")
    for step in range(1, MOST_STEPS + 1):
        _train(model, optimizer, numbers, STEP_BY_STEP_SHARE)
        if step % EVALUATE_EVERY == 0 and (forced := accuracy(model, forced=True)) >= ENOUGH:
            for _ in range(DIRECT_STEPS):
                _train(model, optimizer, numbers, DIRECT_STEP_BY_STEP_SHARE)
            return WarmStart(step + DIRECT_STEPS, forced, accuracy(model))
    raise TestbedError(f"the warm start stayed on its plateau for {MOST_STEPS} steps; try another seed")


def accuracy(model: Any, prompts: int = EVALUATION_PROMPTS, *, forced: bool = False) -> float:
    """Share of held-out prompts answered rightly at temperature 1.

    Args:
        model: from `load_model`.
        prompts: how many.
        forced: the first token of the step-by-step answer is given.
    """
    terms = [task.draw(index, heldout=True) for index in range(prompts)]
    begun = [task.step_by_step_answer(t)[0] if forced else "" for t in terms]
    asked = [
        (task.BOS, *task.encode(task.prompt_text(t) + begin)) for t, begin in zip(terms, begun, strict=True)
    ]
    answers = sample(model, asked, eos_id=task.EOS, max_new_tokens=MAX_NEW_TOKENS)
    right = [
        task.reward("", begin + task.decode(answer.ids), answer.ended, {"sum": task.direct_answer(t)[1:]})
        for t, begin, answer in zip(terms, begun, answers, strict=True)
    ]
    return sum(right) / prompts


def _train(
    model: Any, optimizer: torch.optim.Optimizer, numbers: random.Random, step_by_step_share: float
) -> None:
    packed = pack(rows_of(_demonstrations(numbers, step_by_step_share), Loss(), None), model.device)
    loss = cross_entropy(token_logits(model, packed), packed.targets_N)
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def _demonstrations(numbers: random.Random, step_by_step_share: float) -> Sequence[Sample]:
    samples = []
    for index in range(BATCH):
        terms = task.draw_terms(numbers)
        if numbers.random() < step_by_step_share:
            answer = _corrupted_steps(terms, numbers)
        else:
            answer = task.direct_answer(terms)
        ids = (*task.encode(answer), task.EOS)
        prompt = (task.BOS, *task.encode(task.prompt_text(terms)))
        zeros = (0,) * len(ids)
        samples.append(Sample(index, Trajectory(index, prompt, ids, tuple(map(float, zeros)), zeros), 0.0))
    return samples


def _corrupted_steps(terms: Sequence[tuple[str, int]], numbers: random.Random) -> str:
    total, steps = terms[0][1], []
    for letter, digit in terms[1:]:
        new = (total + digit) % task.MODULUS
        if numbers.random() < CORRUPTED_SHARE:
            new = (new + numbers.randrange(1, task.MODULUS)) % task.MODULUS
        steps.append(f"{letter}{total}+{digit}={new}")
        total = new
    return "".join(steps) + f"#{total}"
