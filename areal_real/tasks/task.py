"""What a real run trains on: prompts by index, their tokens, and how an answer is scored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Item:
    """One prompt of a task."""

    text: str
    prompt_ids: tuple[int, ...]
    answer: Mapping[str, Any] = field(default_factory=dict)
    """What the reward needs beside the response, as plain JSON data."""


class Task(Protocol):
    """A source of prompts with its tokenizer. The same index gives the same item, in every process."""

    name: str
    eos_id: int
    pad_id: int
    reward: str
    """`module:function`, called in a worker process as `function(prompt, response, ended, answer) -> float`:
    texts, whether the response ended by itself (rather than by its limit), and `Item.answer`."""

    def item(self, index: int) -> Item:
        """The prompt of this position in the dataset."""

    def heldout(self, index: int) -> Item:
        """A prompt for evaluation, never one of `item`."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of response tokens, special tokens left out."""

    def warm_start(self, directory: Path) -> None:
        """Write the model that training starts from, in Hugging Face format, unless it is there already.

        Raises:
            ScenarioError: this task has no model of its own; the scenario must name one (`real.model`).
        """
