"""Evaluation of the policy in training, on prompts that never train."""

import importlib
from collections.abc import Callable
from typing import Any

from areal_real.tasks.task import Task
from areal_real.trainer.errors import TrainingError
from areal_real.trainer.sampler import sample
from interfaces.scenario import Scenario

BATCH = 64


def response_limit_tokens(scenario: Scenario, where: str) -> int:
    """Longest response of a real run: the upper end of `workload.response_tokens`.

    Raises:
        TrainingError: it has none.
    """
    longest = scenario.workload.response_tokens.largest
    if longest is None or longest < 1:
        raise TrainingError(
            f"{where}: workload.response_tokens has no upper end; give the distribution a `max`"
        )
    return int(longest)


def evaluate(
    model: Any, task: Task, scenario: Scenario, limit_tokens: int, progress: Callable[[], None]
) -> dict[str, float]:
    """Sample one answer to each of `real.evaluation_prompts` held-out prompts, at the run's temperature.

    Returns:
        `evaluation_reward` (mean), `evaluation_response_tokens` (mean), `evaluation_ended` (share of answers
        that ended by themselves). The same seed samples alike after every step.
    """
    module, _, name = task.reward.partition(":")
    reward = getattr(importlib.import_module(module), name)
    items = [task.heldout(index) for index in range(scenario.real.evaluation_prompts)]
    rewards, tokens, ended = 0.0, 0, 0
    for first in range(0, len(items), BATCH):
        batch = items[first : first + BATCH]
        answers = sample(
            model, [item.prompt_ids for item in batch], eos_id=task.eos_id, max_new_tokens=limit_tokens,
            temperature=scenario.real.temperature, seed=scenario.run.seed + first,
            progress=progress,
        )  # fmt: skip
        for item, answer in zip(batch, answers, strict=True):
            ids = answer.ids[:-1] if answer.ended else answer.ids
            rewards += reward(item.text, task.decode(ids), answer.ended, item.answer)
            tokens += len(answer.ids)
            ended += answer.ended
    return {
        "evaluation_reward": rewards / len(items),
        "evaluation_response_tokens": tokens / len(items),
        "evaluation_ended": ended / len(items),
    }
