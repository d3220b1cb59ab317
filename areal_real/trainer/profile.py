"""Times of the trainer, measured alone: training steps and publishing; rows of `interfaces.profile`."""

import random
import tempfile
import time
from itertools import product
from pathlib import Path

from areal_real.directory import MEMORY
from areal_real.tokens import Sample
from areal_real.trainer.learner import Learner
from areal_real.weight_file import read_manifest, weights_path
from interfaces.profile import Measurement, PublishRow, TrainRow
from interfaces.rollout import Trajectory
from interfaces.scenario import Scenario

BATCHES = (16, 64, 256)
LENGTH_SHARES = (8, 3, 1)
"""Responses of an eighth, a third and all of the longest."""
CUTS = (1, 4, 16)
"""Micro-batches of the scenario's size, a quarter and a sixteenth of it."""
REPEATS = 2


def measure(
    model: Path, scenario: Scenario, prompt_tokens: int, response_limit_tokens: int
) -> list[Measurement]:
    """Train and publish a fresh learner on made-up rollouts of several lengths and numbers.

    Every step has the minibatches of the scenario: how much of a batch the proximal forward pass covers
    depends on them. The order is random, so that no size is measured only early or late.
    """
    learner = Learner(model, scenario)
    lengths = sorted({max(2, response_limit_tokens // share) for share in LENGTH_SHARES})
    grid = [*product(BATCHES, lengths, CUTS)] * REPEATS
    random.Random(0).shuffle(grid)
    rows: list[Measurement] = []
    _train(learner, _samples(learner, BATCHES[0], prompt_tokens, lengths[-1], 0), 0)  # the first one is slow
    for version, (count, length, cut) in enumerate(grid, start=1):
        learner.scenario = _with_microbatches_cut(scenario, cut)
        rows.append(_train(learner, _samples(learner, count, prompt_tokens, length, version), version))
    return [*rows, *_publish(learner, learner.version)]


def _with_microbatches_cut(scenario: Scenario, cut: int) -> Scenario:
    tokens = max(1, scenario.trainer.max_tokens_per_microbatch // cut)
    update = {"microbatching": "dynamic", "max_tokens_per_microbatch": tokens}
    return scenario.model_copy(update={"trainer": scenario.trainer.model_copy(update=update)})


def _samples(learner: Learner, count: int, prompt: int, response: int, version: int) -> list[Sample]:
    """Rollouts of random tokens; what they say does not matter."""
    numbers = random.Random(version)
    vocabulary = int(learner.model.config.vocab_size)
    samples = []
    for number in range(count):
        ids = tuple(numbers.randrange(vocabulary) for _ in range(prompt + response))
        made = Trajectory(number, ids[:prompt], ids[prompt:], (-1.0,) * response, (version,) * response)
        samples.append(Sample(number // 4, made, float(numbers.randrange(2))))
    return samples


def _train(learner: Learner, samples: list[Sample], version: int) -> TrainRow:
    lengths = [len(s.trajectory.prompt_ids) + len(s.trajectory.response_ids) for s in samples]
    began = time.perf_counter()
    stats = learner.step(samples, version, None)
    seconds = time.perf_counter() - began
    assert stats is not None, "a whole step gives statistics"
    return TrainRow(
        tokens=sum(lengths), squared_tokens=float(sum(n * n for n in lengths)), sequences=len(lengths),
        microbatches=stats.microbatches, optimizer_steps=stats.optimizer_steps, seconds=seconds,
    )  # fmt: skip


def _publish(learner: Learner, version: int) -> list[Measurement]:
    place = str(MEMORY) if MEMORY.is_dir() else None
    rows: list[Measurement] = []
    with tempfile.TemporaryDirectory(dir=place) as directory:
        for _ in range(3):
            path = weights_path(Path(directory), version)
            began = time.perf_counter()
            learner.save_weights(path, version)
            seconds = time.perf_counter() - began
            rows.append(PublishRow(bytes=read_manifest(path).size_bytes, seconds=seconds))
    return rows
