"""The letter chain: sums modulo 5 along a chain of letters, small enough to learn on one CPU core.

Prompt `a3b1c4=`: n terms, each a letter (in the order of the alphabet) and a digit below 5, n = 2 +
geometric(0.2), at most 16. The answer step by step names each further term and the running sum,
`b3+1=4c4+4=3#3`; the direct one is `#3`. Reward 1 if the response ended by itself and the text after its
last `#` is the sum modulo 5, else 0 (chance: 0.2). Step-by-step answers have 6 tokens a term: a long tail,
which is what asynchronous training is about, and the policy discovers during training that they pay.
"""

import hashlib
import random
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from areal_real.tasks.task import Item

MODULUS = 5
MOST_TERMS = 16
STOP = 0.2
"""Probability that no further term follows."""
PAD, EOS, BOS = 0, 1, 2
SPECIAL = 3
CHARACTERS = string.digits + "+=#" + string.ascii_lowercase
VOCABULARY = 48
"""Characters and special tokens, filled up to a multiple of 16."""
IDS = {character: SPECIAL + index for index, character in enumerate(CHARACTERS)}
HELDOUT_SHARE = 8
"""One prompt in so many is held out: by its text, so no other index can bring it back into training."""


def encode(text: str) -> tuple[int, ...]:
    """Tokens of a text, one a character."""
    return tuple(IDS[character] for character in text)


def decode(ids: Sequence[int]) -> str:
    """Text of tokens, special and unused ones left out."""
    return "".join(CHARACTERS[i - SPECIAL] for i in ids if SPECIAL <= i < SPECIAL + len(CHARACTERS))


def draw_terms(numbers: random.Random) -> list[tuple[str, int]]:
    """Letters and digits of one prompt."""
    count = 2
    while count < MOST_TERMS and numbers.random() >= STOP:
        count += 1
    return [(letter, numbers.randrange(MODULUS)) for letter in string.ascii_lowercase[:count]]


def prompt_text(terms: Sequence[tuple[str, int]]) -> str:
    """The question."""
    return "".join(f"{letter}{digit}" for letter, digit in terms) + "="


def direct_answer(terms: Sequence[tuple[str, int]]) -> str:
    """Only the result."""
    return f"#{sum(digit for _, digit in terms) % MODULUS}"


def step_by_step_answer(terms: Sequence[tuple[str, int]]) -> str:
    """The running sum along the chain, then the result."""
    total, steps = terms[0][1], []
    for letter, digit in terms[1:]:
        new = (total + digit) % MODULUS
        steps.append(f"{letter}{total}+{digit}={new}")
        total = new
    return "".join(steps) + f"#{total}"


def reward(prompt: str, response: str, ended: bool, answer: Mapping[str, Any]) -> float:  # noqa: ARG001
    """1 if the response ended and what follows its last `#` is the sum, else 0."""
    _, mark, result = response.rpartition("#")
    return float(ended and bool(mark) and result == answer["sum"])


def _is_heldout(text: str) -> bool:
    digest = hashlib.blake2b(text.encode(), digest_size=4).digest()
    return int.from_bytes(digest) % HELDOUT_SHARE == 0


def draw(index: int, *, heldout: bool) -> list[tuple[str, int]]:
    """Terms of the prompt at this place, the same in every process."""
    numbers = random.Random(f"letter chain {'heldout' if heldout else 'train'} {index}")
    while True:
        terms = draw_terms(numbers)
        if _is_heldout(prompt_text(terms)) is heldout:
            return terms


class LetterChain:
    """The built-in task `letter_chain`; `size` is "s" (302 k parameters) or "xs" (86 k) for its model."""

    eos_id = EOS
    pad_id = PAD
    reward = "areal_real.tasks.letter_chain:reward"

    def __init__(self, size: str = "s") -> None:
        self.name = "letter_chain" if size == "s" else f"letter_chain_{size}"
        self._size = size

    def item(self, index: int) -> Item:
        """The prompt of this position in the dataset, which never ends."""
        return _item(draw(index, heldout=False))

    def heldout(self, index: int) -> Item:
        """A prompt for evaluation, never one of `item`."""
        return _item(draw(index, heldout=True))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of response tokens, special tokens left out."""
        return decode(ids)

    def warm_start(self, directory: Path) -> None:
        """Write the model that training starts from; a minute of training, kept for the next time."""
        from areal_real.tasks.warm_start import warm_start  # noqa: PLC0415 (loads torch)

        warm_start(directory, self._size)


def _item(terms: Sequence[tuple[str, int]]) -> Item:
    text = prompt_text(terms)
    return Item(text, (BOS, *encode(text)), {"sum": direct_answer(terms)[1:]})
