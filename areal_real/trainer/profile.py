"""Times of the trainer, measured alone: training steps and publishing; rows of `interfaces.profile`."""

import random
import tempfile
import time
from pathlib import Path

from areal_real.directory import MEMORY
from areal_real.tokens import Sample
from areal_real.trainer.learner import Learner
from areal_real.weight_file import read_manifest, weights_path
from interfaces.profile import Measurement, PublishRow, TrainRow
from interfaces.rollout import Trajectory
from interfaces.scenario import Scenario

BATCHES = (16, 64, 256)
REPEATS = 2


def measure(
    model: Path, scenario: Scenario, prompt_tokens: int, response_limit_tokens: int
) -> list[Measurement]:
    """Train and publish a fresh learner on made-up rollouts of several lengths and numbers."""
    learner = Learner(model, scenario)
    lengths = sorted({max(2, response_limit_tokens // share) for share in (8, 3, 1)})
    grid = [(count, length) for count in BATCHES for length in lengths for _ in range(REPEATS)]
    rows: list[Measurement] = [
        _train(learner, _samples(learner, count, prompt_tokens, length, version), version)
        for version, (count, length) in enumerate(grid)
    ]
    return [*rows, *_publish(learner, len(grid))]


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
