"""A small model, samples and a scenario for tests of the trainer."""

import json
from pathlib import Path

import numpy as np
import torch

from areal_real.tasks.warm_start import new_model
from areal_real.tokens import Sample
from interfaces.rollout import Trajectory
from interfaces.scenario import Scenario

VOCABULARY = 48
torch.set_num_threads(1)  # as in the trainer process; two spinning threads are slower on a busy machine


def model_directory(directory: Path, seed: int = 0) -> Path:
    """An untrained model of 86 k parameters, in Hugging Face format."""
    path = directory / f"model-{seed}"
    if not path.exists():
        new_model("xs", seed).save_pretrained(path)
    return path


def scenario(**changes) -> Scenario:
    """32 tokens at most, one minibatch, no activation checkpointing; `section__key=value` changes it."""
    tables = {
        "run": {"steps": 4},
        "cluster": {"hardware": "h800", "rollout_gpus": 1, "trainer_gpus": 1},
        "model": {"name": "qwen2.5-1.5b"},
        "trainer": {
            "minibatches": 1,
            "activation_checkpointing": False,
            "max_tokens_per_microbatch": 64,
        },
        "workload": {
            "batch_size": 2,
            "group_size": 4,
            "response_tokens": {"type": "lognormal", "median": 8.0, "sigma": 1.0, "max": 32.0},
        },
        "policy": {"name": "sync"},
        "real": {"loss": {}, "optimizer": {}, "evaluation_prompts": 8, "deadline_s": 60.0},
    }
    for path, value in changes.items():
        *sections, key = path.split("__")
        table = tables
        for section in sections:
            table = table[section]
        table[key] = value
    return Scenario.model_validate_json(json.dumps(tables))


def random_samples(groups: int = 2, members: int = 4, version: int = 0, seed: int = 0) -> list[Sample]:
    """Tokens, log-probs, rewards and lengths at random; versions rise along a rollout up to `version`."""
    numbers = np.random.default_rng(seed)
    samples = []
    for rollout in range(groups * members):
        prompt, response = int(numbers.integers(1, 9)), int(numbers.integers(1, 20))
        versions = np.sort(numbers.integers(0, version + 1, response))
        trajectory = Trajectory(
            rollout,
            tuple(numbers.integers(0, VOCABULARY, prompt).tolist()),
            tuple(numbers.integers(0, VOCABULARY, response).tolist()),
            tuple(
                (-numbers.uniform(3.4, 4.4, response)).tolist()
            ),  # an untrained model says log(1/48) = -3.9
            tuple(versions.tolist()),
        )
        samples.append(Sample(rollout // members, trajectory, float(numbers.integers(0, 2))))
    return samples
