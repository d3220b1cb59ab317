"""What tasks made of text share: the tokenizer of a model, prompts, held-out questions, and answers."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from interfaces.errors import ScenarioError

HELDOUT_SHARE = 8
"""One question in so many is held out: by its text, so no other index can bring it back into training."""
INSTRUCTION = "Give the final answer between <answer> and </answer>."


def is_heldout(question: str) -> bool:
    """Whether a question belongs to the evaluation."""
    digest = hashlib.blake2b(question.encode(), digest_size=4).digest()
    return int.from_bytes(digest) % HELDOUT_SHARE == 0


def final_answer(response: str) -> str:
    """What a response answers: in its last `<answer>` tags, after its last "Answer:", or in its last line."""
    tagged = re.findall(r"<answer>(.*?)</answer>", response, re.DOTALL)
    if tagged:
        return str(tagged[-1]).strip()
    said = response.rpartition("Answer:")[2].strip()
    return said.splitlines()[-1].strip() if said else ""


class TextPrompts:
    """Questions to tokens and tokens to text, by the tokenizer in a model directory."""

    def __init__(self, model_dir: Path | None, where: str) -> None:
        """Load the tokenizer.

        Raises:
            ScenarioError: there is no model directory, or no tokenizer with an end token in it.
        """
        if model_dir is None:
            raise ScenarioError(
                where, "real.model", None, "must be given for a task made of text",
                "name the directory of a Hugging Face model with its tokenizer",
            )  # fmt: skip
        from transformers import AutoTokenizer  # noqa: PLC0415 (loads slowly)

        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
        except (OSError, ValueError) as error:
            raise ScenarioError(
                where, "real.model", str(model_dir), f"has no tokenizer ({error})",
                "copy tokenizer.json and tokenizer_config.json there",
            ) from error  # fmt: skip
        if self._tokenizer.eos_token_id is None:
            raise ScenarioError(
                where, "real.model", str(model_dir), "has a tokenizer without an end token",
                "set eos_token in tokenizer_config.json",
            )  # fmt: skip
        self.eos_id = int(self._tokenizer.eos_token_id)
        pad = self._tokenizer.pad_token_id
        self.pad_id = self.eos_id if pad is None else int(pad)

    def encode(self, question: str) -> tuple[int, ...]:
        """Tokens of the prompt that asks a question: by the chat template, if there is one."""
        text = f"{question}\n{INSTRUCTION}"
        if self._tokenizer.chat_template:
            text = self._tokenizer.apply_chat_template(
                [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
            )
            return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])
        return tuple(self._tokenizer(f"{text}\n")["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        """Text of response tokens, special tokens left out."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))


def refuse_warm_start(where: str) -> ScenarioError:
    """The error of a task without a model of its own."""
    return ScenarioError(
        where, "real.model", None, "must be given: this task has no model of its own",
        "name the directory of a Hugging Face model with its tokenizer",
    )  # fmt: skip
