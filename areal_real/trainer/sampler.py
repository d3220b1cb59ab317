"""A small sampler on the model in training: for evaluation, and for single-process loops in benchmarks.

The rollouts of a run come from the engine, never from here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from areal_real.trainer.policy_model import generating


@dataclass(slots=True)
class Sampled:
    """What was generated after one prompt."""

    ids: list[int]
    """The end token included, if the model stopped by itself."""
    logprobs: list[float]
    """Of each token under the distribution it was drawn from (greedy: at temperature 1)."""
    ended: bool


def sample(
    model: Any,
    prompts: Sequence[Sequence[int]],
    *,
    eos_id: int,
    max_new_tokens: int,
    temperature: float = 1.0,
    seed: int = 0,
    batch_size: int = 256,
    progress: Callable[[], None] = lambda: None,
) -> list[Sampled]:
    """Continue each prompt until its end token or `max_new_tokens`.

    Args:
        model: from `policy_model.load_model`.
        prompts: token ids, none empty.
        eos_id: the end token.
        max_new_tokens: longest response.
        temperature: of sampling; 0: greedy.
        seed: the same seed and batch size give the same tokens.
        batch_size: prompts at once.
        progress: called after each token of a batch.
    """
    generator = torch.Generator(model.device).manual_seed(seed)
    results: list[Sampled] = []
    with generating(model):
        for first in range(0, len(prompts), batch_size):
            batch = _Batch(model, prompts[first : first + batch_size], eos_id, temperature, generator)
            for _ in range(max_new_tokens):
                if not batch.rows:
                    break
                batch.advance()
                progress()
            results += batch.results
    return results


class _Batch:
    """Prompts that are continued together; finished ones leave it when a quarter of it has finished."""

    def __init__(
        self,
        model: Any,
        prompts: Sequence[Sequence[int]],
        eos_id: int,
        temperature: float,
        generator: torch.Generator,
    ) -> None:
        self.model, self.eos_id, self.temperature, self.generator = model, eos_id, temperature, generator
        self.results = [Sampled([], [], ended=False) for _ in prompts]
        self.rows = list(range(len(prompts)))
        """Index of the result that each row of the tensors continues."""
        longest = max(len(prompt) for prompt in prompts)
        padding = [longest - len(prompt) for prompt in prompts]
        device = model.device
        self._inputs = torch.tensor(
            [[0] * gap + list(prompt) for gap, prompt in zip(padding, prompts, strict=True)], device=device
        )
        self._mask = torch.arange(longest, device=device) >= torch.tensor(padding, device=device)[:, None]
        self._mask = self._mask.long()
        self._positions = (self._mask.cumsum(-1) - 1).clamp(min=0)
        self._cache = DynamicCache(config=model.config)

    def advance(self) -> None:
        """One more token for every row."""
        logits = self.model(
            input_ids=self._inputs, attention_mask=self._mask, position_ids=self._positions,
            past_key_values=self._cache, use_cache=True, logits_to_keep=1,
        ).logits[:, -1].float()  # fmt: skip
        tokens_B, logprobs_B = self._draw(logits)
        going = []
        drawn = zip(self.rows, tokens_B.tolist(), logprobs_B.tolist(), strict=True)
        for place, (row, token, logprob) in enumerate(drawn):
            result = self.results[row]
            if result.ended:
                continue
            result.ids.append(token)
            result.logprobs.append(logprob)
            result.ended = token == self.eos_id
            if not result.ended:
                going.append(place)
        self._inputs = tokens_B[:, None]
        self._positions = self._positions[:, -1:] + 1
        self._mask = torch.cat([self._mask, torch.ones_like(self._mask[:, :1])], dim=1)
        if len(going) <= 0.75 * len(self.rows):
            self._keep(going)

    def _draw(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens and their log-probs, shape (B,)."""
        logprobs = torch.log_softmax(logits / (self.temperature or 1.0), -1)
        if self.temperature:
            tokens = torch.multinomial(logprobs.exp(), 1, generator=self.generator)
        else:
            tokens = logprobs.argmax(-1, keepdim=True)
        return tokens.squeeze(-1), logprobs.gather(-1, tokens).squeeze(-1)

    def _keep(self, places: list[int]) -> None:
        """Shrink the batch to these rows."""
        self.rows = [self.rows[place] for place in places]
        if not places:
            return
        indices = torch.tensor(places, device=self._inputs.device)
        self._inputs, self._positions = self._inputs[indices], self._positions[indices]
        self._mask = self._mask[indices]
        self._cache.batch_select_indices(indices)
