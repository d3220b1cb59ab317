"""A task that a fresh model is rewarded in: digits. So weights change from the first step on."""

from collections.abc import Mapping
from typing import Any

from areal_real.tasks.letter_chain import LetterChain


def share_of_digits(prompt: str, response: str, ended: bool, answer: Mapping[str, Any]) -> float:  # noqa: ARG001
    """Of the characters of the response."""
    return sum(character.isdigit() for character in response) / max(1, len(response))


class Digits(LetterChain):
    """The prompts of the letter chain."""

    def __init__(self) -> None:
        super().__init__("xs")
        self.name = "digits"
        self.reward = "digits_task:share_of_digits"
