"""Prompts of the user's own, from a file: `real.task = "jsonl:prompts.jsonl"`.

Each line is `{"prompt": "...", "answer": "..."}`; further keys reach the reward as they are. The reward is 1
if the final answer equals `answer`, but for space and case; `jsonl:prompts.jsonl@module:function` names
another.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from areal_real.tasks.task import Item
from areal_real.tasks.text import TextPrompts, final_answer, is_heldout, refuse_warm_start
from interfaces.errors import ScenarioError


def reward(prompt: str, response: str, ended: bool, answer: Mapping[str, Any]) -> float:  # noqa: ARG001
    """1 if the response ended and its final answer is `answer`, but for space and case; else 0."""
    return float(ended and _plain(final_answer(response)) == _plain(str(answer["answer"])))


class Jsonl:
    """Prompts of a file; one in eight, chosen by its text, is held out for evaluation."""

    def __init__(self, argument: str, model_dir: Path | None, where: str) -> None:
        """Read the file and find the tokenizer.

        Args:
            argument: path, relative to the scenario file; after an `@`, the reward as `module:function`.
            model_dir: of the tokenizer.
            where: path of the scenario file.

        Raises:
            ScenarioError: the file cannot be read, a line is wrong, or one side of the split is empty.
        """
        file, _, named = argument.partition("@")
        self.name = "jsonl"
        self.reward = named or "areal_real.tasks.jsonl:reward"
        self._where = where
        path = Path(where).parent / file
        lines = _read(path, f"jsonl:{argument}", where)
        self._sides: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
        for line in lines:
            self._sides[is_heldout(line["prompt"])].append(line)
        if not all(self._sides.values()):
            raise ScenarioError(
                where, "real.task", f"jsonl:{argument}", f"has {len(lines)} prompts, none to train "
                "or none to hold out", "use a larger file",
            )  # fmt: skip
        self._prompts = TextPrompts(model_dir, where)
        self.eos_id, self.pad_id = self._prompts.eos_id, self._prompts.pad_id

    def item(self, index: int) -> Item:
        """The prompt of this position; after the last the first comes again."""
        return self._item(index, heldout=False)

    def heldout(self, index: int) -> Item:
        """A prompt for evaluation, never one of `item`; after the last the first comes again."""
        return self._item(index, heldout=True)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of response tokens, special tokens left out."""
        return self._prompts.decode(ids)

    def warm_start(self, directory: Path) -> None:  # noqa: ARG002
        """Refuse: the scenario must name a model."""
        raise refuse_warm_start(self._where)

    def _item(self, index: int, *, heldout: bool) -> Item:
        side = self._sides[heldout]
        line = side[index % len(side)]
        rest = {key: value for key, value in line.items() if key != "prompt"}
        return Item(line["prompt"], self._prompts.encode(line["prompt"]), rest)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _read(path: Path, name: str, where: str) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(
            where, "real.task", name, f"cannot be read ({error})", "give a path relative to the scenario file"
        ) from error
    lines = []
    for number, raw in enumerate(text.splitlines(), start=1):
        try:
            line = json.loads(raw)
            whole = isinstance(line["prompt"], str) and "answer" in line
        except (ValueError, KeyError, TypeError):
            whole = False
        if not whole:
            raise ScenarioError(
                where, "real.task", name, f"is wrong in line {number}",
                'write {"prompt": "...", "answer": "..."} on each line',
            )  # fmt: skip
        lines.append(line)
    return lines
