"""One rollout in an engine: how it is asked for, and what came of it."""

import asyncio
import hashlib
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from areal_real.engine.config import EngineConfig
from interfaces.actions import Generate
from interfaces.rollout import PolicyVersion, Segment


def seed_of(run_seed: int, action: Generate, resume_tokens: int) -> int:
    """Seed of one submission. It holds where the rollout stands, so no two draw the same random numbers."""
    name = f"{run_seed}/{action.prompt}/{action.member}/{action.attempt}/{resume_tokens}"
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=7).digest(), "big")


@dataclass(slots=True)
class Generated:
    """Tokens that came since the last dispatch, each with its log-prob and version."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[PolicyVersion] = field(default_factory=list)

    def take(self, completion: Any) -> None:
        """Append what vLLM's final output of a request holds.

        Raises:
            ValueError: tokens, log-probs and version spans do not cover each other.
        """
        ids = list(completion.token_ids)
        logprobs = [entry[token].logprob for entry, token in zip(completion.logprobs or (), ids, strict=True)]
        versions = [
            int(span.version)
            for span in completion.weight_versions or ()
            for _ in range(span.start, span.end)
        ]
        if len(versions) != len(ids):
            raise ValueError(f"{len(ids)} tokens, but versions of {len(versions)}")
        self.ids += ids
        self.logprobs += logprobs
        self.versions += versions

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Versions run-length encoded."""
        return tuple(Segment(version, len(list(run))) for version, run in groupby(self.versions))


@dataclass(slots=True)
class Flight:
    """A rollout that this replica holds."""

    action: Generate
    prompt_ids: tuple[int, ...]
    before: tuple[int, ...]
    """Response tokens of earlier dispatches."""
    generated: Generated = field(default_factory=Generated)
    task: "asyncio.Task[None]" = field(init=False)
    request_id: str = ""
    """The running submission; empty while it is not with the engine."""
    submissions: int = 0
    again: bool = False
    """Taken off only to be submitted again by this replica itself: its KV is to be computed anew."""
    first_token_at: float | None = None

    @property
    def context(self) -> list[int]:
        """All tokens so far, prompt first."""
        return [*self.prompt_ids, *self.before, *self.generated.ids]

    def room(self, config: EngineConfig) -> int:
        """New tokens it may still have."""
        total = config.response_limit_tokens - len(self.before)
        budget = self.action.token_budget
        return (total if budget is None else min(total, budget)) - len(self.generated.ids)

    def full(self, config: EngineConfig) -> bool:
        """Whether the response has reached its longest length."""
        return len(self.before) + len(self.generated.ids) >= config.response_limit_tokens


def sampling(flight: Flight, config: EngineConfig) -> Any:
    """Parameters of the next submission, for vLLM: the log-probs are those of the tokens as sampled."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams  # noqa: PLC0415

    resume_tokens = len(flight.before) + len(flight.generated.ids)
    return SamplingParams(
        max_tokens=flight.room(config),
        temperature=config.temperature,
        seed=seed_of(config.seed, flight.action, resume_tokens),
        logprobs=0,
        stop_token_ids=[] if config.eos_id is None else [config.eos_id],
        ignore_eos=True,  # the task says what ends a response, not the model's generation_config.json
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
