"""One rollout as a replica holds it."""

from typing import NamedTuple

from areal_sim.workload import TurnDraw
from interfaces.rollout import Segment


class ToolCall(NamedTuple):
    """A point at which a rollout leaves the engine for a tool."""

    length: int
    """Response tokens by then."""
    time_s: float
    tokens: int
    """Tokens the tool adds to the context."""


class Outcome(NamedTuple):
    """What becomes of a rollout at its end; drawn before, told only then."""

    reward: float
    reward_latency_s: float
    fails: bool


class Sequence:
    """A rollout on a replica. Tokens are response tokens unless named otherwise."""

    __slots__ = (
        "context", "done", "finish_clock", "first_token_at", "kv_kept", "limit", "log_index", "outcome",
        "prompt", "prompt_tokens", "rollout", "segments", "start_clock", "stops", "total",
    )  # fmt: skip

    def __init__(  # noqa: PLR0917 (keywords cost, once a rollout)
        self,
        rollout: int,
        prompt: int,
        prompt_tokens: int,
        total: int,
        done: int,
        outcome: Outcome,
        kv_kept: bool = False,
    ) -> None:
        self.rollout = rollout
        self.prompt = prompt
        """Rollouts of one prompt share its KV."""
        self.prompt_tokens = prompt_tokens
        self.total = total
        """Length at which it ends."""
        self.limit = total
        """Length at which it is handed back, if that comes before the end (token budget)."""
        self.done = done
        """Tokens at the last (re)start of decoding, those of earlier replicas included."""
        self.outcome = outcome
        self.context = prompt_tokens + done
        """Context at the last (re)start: prompt, tool output and response."""
        self.segments: tuple[Segment, ...] = ()
        """Versions of the tokens generated on this replica before the last (re)start."""
        self.stops: list[ToolCall] | None = None
        """Where a turn ends and a tool works, the next one last; None: single-turn."""
        self.start_clock = 0
        self.finish_clock = -1
        """Clock at which it stops decoding; -1 while it does not decode."""
        self.log_index = 0
        self.kv_kept = kv_kept
        """It brings its KV along: its next prefill has nothing to compute."""
        self.first_token_at = -1.0
        """When its first prefill here ended; -1 before."""

    @property
    def has_history(self) -> bool:
        """Whether its context was computed before: prefill is *re*computation then."""
        return self.first_token_at >= 0.0 or self.done > 0

    @property
    def lost_tokens(self) -> int:
        """Tokens generated here that are gone if it is; it does not decode now."""
        return sum(tokens for _, tokens in self.segments)

    def plan_turns(self, turns: TurnDraw) -> None:
        """Stop for a tool after every turn but the last, leaving out those that lie behind."""
        length = 0
        self.stops = []
        for tokens, time_s, tool_tokens in zip(
            turns.tokens, turns.tool_time_s, turns.tool_tokens, strict=False
        ):
            length += tokens
            if length > self.done:
                self.stops.append(ToolCall(length, time_s, tool_tokens))
            else:
                self.context += tool_tokens
        self.stops.reverse()

    def pause_length(self) -> int:
        """The length at which decoding stops next: the end, a tool call, or the end of the budget."""
        return min(self.stops[-1].length, self.limit) if self.stops else self.limit
