"""Any dataset of reasoning-gym as a task: `real.task = "reasoning_gym:chain_sum"`."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from areal_real.tasks.task import Item
from areal_real.tasks.text import TextPrompts, final_answer, is_heldout, refuse_warm_start
from interfaces.errors import ScenarioError

SEED = 1
STRIDE = 1_000_003
"""Where the next candidate lies when a question falls on the wrong side of the split."""


@lru_cache(maxsize=8)
def dataset(name: str) -> Any:
    """The generator of a dataset, its questions the same in every process."""
    import reasoning_gym  # noqa: PLC0415 (loads slowly)

    return reasoning_gym.create_dataset(name, size=2**31, seed=SEED)


def reward(prompt: str, response: str, ended: bool, answer: Mapping[str, Any]) -> float:  # noqa: ARG001
    """1 if the dataset's own scoring is content with the answer, else 0: there is no credit for mere form."""
    questions = dataset(answer["dataset"])
    score = questions.score_answer(final_answer(response), questions[answer["index"]])
    return float(ended and score >= 1.0)


class ReasoningGym:
    """Questions of one dataset, in the order of its generator, without end."""

    reward = "areal_real.tasks.gym:reward"

    def __init__(self, name: str, model_dir: Path | None, where: str) -> None:
        """Find the dataset and the tokenizer.

        Raises:
            ScenarioError: reasoning-gym is missing or has no such dataset, or the model has no tokenizer.
        """
        self.name = f"reasoning_gym:{name}"
        try:
            dataset(name)
        except ImportError as error:
            raise ScenarioError(
                where, "real.task", self.name, "needs reasoning-gym", "pip install reasoning-gym"
            ) from error
        except ValueError as error:
            raise ScenarioError(
                where, "real.task", self.name, f"is no dataset ({error})",
                "take a name from reasoning_gym.factory.DATASETS",
            ) from error  # fmt: skip
        self._dataset, self._where = name, where
        self._prompts = TextPrompts(model_dir, where)
        self.eos_id, self.pad_id = self._prompts.eos_id, self._prompts.pad_id

    def item(self, index: int) -> Item:
        """The question of this position."""
        return self._draw(index, heldout=False)

    def heldout(self, index: int) -> Item:
        """A question for evaluation, never one of `item`."""
        return self._draw(index, heldout=True)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of response tokens, special tokens left out."""
        return self._prompts.decode(ids)

    def warm_start(self, directory: Path) -> None:  # noqa: ARG002
        """Refuse: the scenario must name a model."""
        raise refuse_warm_start(self._where)

    def _draw(self, index: int, *, heldout: bool) -> Item:
        questions = dataset(self._dataset)
        place = index
        while is_heldout(question := questions[place]["question"]) is not heldout:
            place += STRIDE
        return Item(question, self._prompts.encode(question), {"dataset": self._dataset, "index": place})
