"""What is generated: prompt and response lengths, rewards, latencies and turns of every rollout.

A draw is a pure function of (seed, prompt, member, attempt). It does not depend on time, on the order of
asking, on the policy or on the number of replicas: those change only *when* things happen.
"""

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from areal_sim.quantiles import Quantile, capped, quantile, whole
from areal_sim.streams import Stream, UInts
from interfaces.distributions import Constant, Distribution
from interfaces.scenario import Reward, Scenario, Turns

K = TypeVar("K")
V = TypeVar("V")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCK = 256
"""Prompts drawn together."""
_BLOCKS_KEPT = 32
_RETRIES_KEPT = 1024

_K = TypeVar("_K")
_V = TypeVar("_V")


class TurnDraw(NamedTuple):
    """How one multi-turn rollout goes on: turns, and what the tool does between two of them."""

    tokens: list[int]
    """Response tokens of each turn; their sum is the rollout's response length."""
    tool_time_s: list[float]
    """After each turn but the last."""
    tool_tokens: list[int]
    """Tokens added to the context, after each turn but the last."""


class GroupDraw(NamedTuple):
    """Everything random about one attempt at one prompt; lists have one entry a member."""

    prompt_tokens: int
    response_tokens: list[int]
    reward_latency_s: list[float] | None
    """None: rewards come at once."""
    rewards: list[float]
    turns: list[TurnDraw] | None
    """None: single-turn."""


class _Draw:
    """Values of one distribution from one stream."""

    def __init__(self, seed: int, name: str, distribution: Distribution, where: str) -> None:
        self.distribution = distribution
        self._stream = Stream(seed, name)
        self._quantile: Quantile = quantile(distribution, where, name)

    def of_prompts(self, prompts: UInts) -> Floats:
        """Shape (prompts,)."""
        return capped(self._quantile(ndtri(self._stream.prompts(prompts))), self.distribution)

    def of_members(self, prompts: UInts, members: int, attempt: int, draw: int = 0) -> Floats:
        """Shape (prompts, members)."""
        u = self._stream.members(prompts, members, attempt, draw)
        return capped(self._quantile(ndtri(u)), self.distribution)


class Workload:
    """The rollouts of a run.

    Response lengths of a group correlate through normal scores: `z = sqrt(rho) z_prompt + sqrt(1 - rho)
    z_member`. Drift multiplies them, before the cap, by the scale of the prompt's *nominal* step `prompt //
    batch_size`. Prompt length, `z_prompt` and difficulty belong to the prompt in the dataset (`prompt %
    dataset_size`): they come again in every epoch and attempt. Lengths are rounded; responses have at least
    one token.

    Rewards are 0 or 1: each prompt has a success rate from Beta(a, b) with mean `success_rate` and
    intra-group correlation `difficulty_spread` = 1 / (a + b + 1), so the successes of a group are
    beta-binomial.
    """

    def __init__(self, scenario: Scenario, where: str = "scenario", redundancy: int = 0) -> None:
        """`where` is the scenario file: for messages, and the start of relative paths.

        `redundancy` members are launched in each group beyond its size.

        Raises:
            ScenarioError: an empirical distribution whose file cannot serve.
        """
        work, reward, seed = scenario.workload, scenario.reward, scenario.run.seed
        self._size, self._batch, self._dataset = (
            work.group_size + redundancy,
            work.batch_size,
            work.dataset_size,
        )
        self._prompt = _Draw(seed, "workload.prompt_tokens", work.prompt_tokens, where)
        self._response = quantile(work.response_tokens, where, "workload.response_tokens")
        self._response_law = work.response_tokens
        self._shared, self._own = Stream(seed, "length/prompt"), Stream(seed, "length/member")
        self._correlation = work.group_correlation
        self._drift_steps = [float(point.step) for point in work.drift]
        self._drift_scales = [point.scale for point in work.drift]
        self._latency = _latency(seed, reward, where)
        self._rewards = _Rewards(seed, reward)
        self._turns = None if work.turns is None else _Turns(seed, work.turns, where)
        self._failure = scenario.faults.rollout_failure_probability
        self._failures = Stream(seed, "failure")
        self._blocks: dict[int, list[GroupDraw]] = {}
        self._retries: dict[tuple[int, int], GroupDraw] = {}

    def group(self, prompt: int, attempt: int = 0) -> GroupDraw:
        """The draw of one attempt at one prompt; treat it as read-only, it is shared.

        `prompt` is the index in the run (epoch * dataset_size + position).
        """
        if attempt:
            return self._retry(prompt, attempt)
        number, position = divmod(prompt, BLOCK)
        block = self._blocks.get(number)
        if block is None:
            first = number * BLOCK
            block = self._draw(np.arange(first, first + BLOCK, dtype=np.uint64), 0)
            _keep(self._blocks, number, block, _BLOCKS_KEPT)
        return block[position]

    def failure(self, prompt: int, member: int, attempt: int = 0) -> bool:
        """Whether this rollout fails at its end instead of finishing."""
        return self._failure > 0 and self._failures.one(prompt, member, attempt) < self._failure

    def _retry(self, prompt: int, attempt: int) -> GroupDraw:
        draw = self._retries.get((prompt, attempt))
        if draw is None:
            draw = self._draw(np.array([prompt], dtype=np.uint64), attempt)[0]
            _keep(self._retries, (prompt, attempt), draw, _RETRIES_KEPT)
        return draw

    def _draw(self, prompts: UInts, attempt: int) -> list[GroupDraw]:
        """The groups of many prompts; each equals what it would be alone."""
        place = prompts if self._dataset is None else prompts % np.uint64(self._dataset)
        responses = self._lengths(prompts, place, attempt)
        rewards = self._rewards.draw(prompts, place, self._size, attempt).tolist()
        prompt_tokens = whole(self._prompt.of_prompts(place), self._prompt.distribution).tolist()
        latency: list[list[float] | None] = [None] * len(prompts)
        if self._latency is not None:
            latency = list(self._latency.of_members(prompts, self._size, attempt).tolist())
        turns: list[list[TurnDraw] | None] = [None] * len(prompts)
        if self._turns is not None:
            turns = list(self._turns.draw(prompts, responses, attempt))
        columns = zip(prompt_tokens, responses.tolist(), latency, rewards, turns, strict=True)
        return [GroupDraw(*row) for row in columns]

    def _lengths(self, prompts: UInts, place: UInts, attempt: int) -> Ints:
        """Response tokens, shape (prompts, members)."""
        z = ndtri(self._own.members(prompts, self._size, attempt))
        if self._correlation:
            shared = ndtri(self._shared.prompts(place))[:, None]
            z = np.sqrt(self._correlation) * shared + np.sqrt(1 - self._correlation) * z
        values = self._response(z)
        if self._drift_steps:
            step = (prompts // np.uint64(self._batch)).astype(np.float64)
            scale = np.interp(step, self._drift_steps, self._drift_scales, left=1.0)
            values = values * scale[:, None]
        return np.maximum(whole(values, self._response_law), 1)


def _latency(seed: int, reward: Reward, where: str) -> _Draw | None:
    law = reward.latency_s
    if isinstance(law, Constant) and law.value == 0:
        return None
    return _Draw(seed, "reward.latency_s", law, where)


def _keep(cache: "dict[K, V]", key: "K", value: "V", most: int) -> None:
    """Add to a cache; the oldest entry makes room."""
    if len(cache) >= most:
        del cache[next(iter(cache))]
    cache[key] = value


class _Rewards:
    """Beta-binomial rewards."""

    def __init__(self, seed: int, reward: Reward) -> None:
        self._rate, self._spread = reward.success_rate, reward.difficulty_spread
        self._difficulty, self._success = Stream(seed, "reward/prompt"), Stream(seed, "reward/member")

    def draw(self, prompts: UInts, place: UInts, members: int, attempt: int) -> Floats:
        """0.0 or 1.0, shape (prompts, members)."""
        u = self._success.members(prompts, members, attempt)
        if not self._spread or self._rate in (0, 1):
            return (u < self._rate).astype(np.float64)
        strength = (1 - self._spread) / self._spread
        a, b = self._rate * strength, (1 - self._rate) * strength
        rate = betaincinv(a, b, self._difficulty.prompts(place))
        successes: Floats = (u < rate[:, None]).astype(np.float64)
        return successes


class _Turns:
    """Cuts a response into turns of equal length (within one token), at most one a token."""

    def __init__(self, seed: int, turns: Turns, where: str) -> None:
        self._number = _Draw(seed, "workload.turns.number", turns.number, where)
        self._time = _Draw(seed, "workload.turns.tool_time_s", turns.tool_time_s, where)
        self._tokens = _Draw(seed, "workload.turns.tool_tokens", turns.tool_tokens, where)

    def draw(self, prompts: UInts, responses: Ints, attempt: int) -> list[list[TurnDraw]]:
        """One list a prompt, one entry a member; `responses` has shape (prompts, members)."""
        members = responses.shape[1]
        number = whole(self._number.of_members(prompts, members, attempt), self._number.distribution)
        number = np.clip(number, 1, responses)
        gaps = range(int(number.max()) - 1)
        shape = (*responses.shape, len(gaps))
        times, tokens = np.zeros(shape), np.zeros(shape, dtype=np.int64)
        for gap in gaps:
            times[..., gap] = self._time.of_members(prompts, members, attempt, gap)
            added = self._tokens.of_members(prompts, members, attempt, gap)
            tokens[..., gap] = whole(added, self._tokens.distribution)
        columns = zip(responses.tolist(), number.tolist(), times.tolist(), tokens.tolist(), strict=True)
        return [[_cut(*member) for member in zip(*row, strict=True)] for row in columns]


def _cut(response: int, number: int, times: list[float], tokens: list[int]) -> TurnDraw:
    base, extra = divmod(response, number)
    lengths = [base + 1] * extra + [base] * (number - extra)
    return TurnDraw(lengths, times[: number - 1], tokens[: number - 1])
