"""A plain loop in one process on the project's own learner and sampler: sample, reward, train, repeat.

No engine, no scheduler, no buffer. It emulates staleness by sampling with weights that are k versions old, and
it is what the real backend's benchmarks are compared with.
"""

import copy
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from areal_real.tasks import letter_chain as chain
from areal_real.tasks.letter_chain import LetterChain
from areal_real.tokens import Sample
from areal_real.trainer.learner import Learner
from areal_real.trainer.policy_model import weights_of
from areal_real.trainer.sampler import sample
from areal_real.trainer.step_stats import StepStats
from interfaces.rollout import Trajectory
from interfaces.scenario import Scenario

PROMPTS, MEMBERS, MAX_NEW_TOKENS, MINIBATCHES = 32, 8, 100, 4
HELDOUT = 256


@dataclass(frozen=True)
class Loop:
    """One training run."""

    objective: str = "decoupled_ppo"
    staleness: int = 0
    """Rollouts are sampled with weights that are so many versions old (fewer in the first steps)."""
    seed: int = 0
    steps: int = 30
    learning_rate: float = 3e-4
    cap: float | None = None
    """Of the weight pi_prox / pi_behav."""
    evaluate_at: tuple[int, ...] = field(default=())
    """Numbers of finished steps after which held-out accuracy is measured."""

    def scenario(self) -> Scenario:
        return Scenario.model_validate_json(json.dumps({
            "run": {"steps": self.steps, "seed": self.seed},
            "cluster": {"hardware": "h800", "rollout_gpus": 1, "trainer_gpus": 1},
            "model": {"name": "qwen2.5-1.5b"},
            "trainer": {"minibatches": MINIBATCHES, "activation_checkpointing": False,
                        "max_tokens_per_microbatch": 4096},
            "workload": {"batch_size": PROMPTS, "group_size": MEMBERS, "response_tokens": {
                "type": "lognormal", "median": 20.0, "sigma": 1.0, "max": float(MAX_NEW_TOKENS)}},
            "policy": {"name": "sync"},
            "real": {"loss": {"objective": self.objective, "behaviour_weight_cap": self.cap},
                     "optimizer": {"learning_rate": self.learning_rate}},
        }))  # fmt: skip


def rollouts(model: Any, task: LetterChain, step: int, seed: int, version: int) -> list[Sample]:
    """One batch of groups with their rewards, sampled from `model`."""
    first = (seed * 100_000 + step) * PROMPTS
    items = [task.item(first + group) for group in range(PROMPTS) for _ in range(MEMBERS)]
    answers = sample(
        model, [item.prompt_ids for item in items], eos_id=task.eos_id, max_new_tokens=MAX_NEW_TOKENS,
        seed=seed * 100_000 + step,
    )  # fmt: skip
    return [
        Sample(
            index // MEMBERS,
            Trajectory(index, item.prompt_ids, tuple(a.ids), tuple(a.logprobs), (version,) * len(a.ids)),
            chain.reward(item.text, task.decode(a.ids), a.ended, item.answer),
        )
        for index, (item, a) in enumerate(zip(items, answers, strict=True))
    ]


def heldout_accuracy(model: Any, task: LetterChain) -> float:
    """Share of `HELDOUT` fixed problems answered rightly at temperature 1; standard error about 0.03."""
    items = [task.heldout(index) for index in range(HELDOUT)]
    answers = sample(
        model, [item.prompt_ids for item in items], eos_id=task.eos_id, max_new_tokens=MAX_NEW_TOKENS, seed=7
    )
    right = [
        chain.reward(item.text, task.decode(a.ids), a.ended, item.answer)
        for item, a in zip(items, answers, strict=True)
    ]
    return sum(right) / HELDOUT


def run(loop: Loop, model_dir: Path) -> Iterator[tuple[StepStats, float | None]]:
    """Statistics of each step, and the held-out accuracy after those of `evaluate_at`."""
    learner, task = Learner(model_dir, loop.scenario()), LetterChain()
    old = copy.deepcopy(learner.model) if loop.staleness else learner.model
    kept: deque[tuple[int, dict[str, Any]]] = deque(maxlen=loop.staleness + 1)
    for step in range(loop.steps):
        if loop.staleness:
            kept.append((step, {name: weight.clone() for name, weight in weights_of(learner.model).items()}))
            old.load_state_dict(kept[0][1], strict=False)
        version = kept[0][0] if kept else step
        stats = learner.step(rollouts(old, task, step, loop.seed, version), step)
        assert stats is not None
        measured = step + 1 in loop.evaluate_at
        yield stats, heldout_accuracy(learner.model, task) if measured else None
