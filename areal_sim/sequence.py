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


class Sequence:
    """A rollout on a replica. Tokens are response tokens unless named otherwise."""

    __slots__ = (
        "budget", "context", "done", "fails", "finish_clock", "first_token_at", "fresh", "gone", "log_index",
        "prompt", "prompt_tokens", "reward", "reward_latency_s", "rollout", "segments", "since_dispatch",
        "start_clock", "stops", "total",
    )  # fmt: skip

    def __init__(self, rollout: int, prompt: int, prompt_tokens: int, total: int, done: int) -> None:
        self.rollout = rollout
        self.prompt = prompt
        """Rollouts of one prompt share its KV."""
        self.prompt_tokens = prompt_tokens
        self.total = total
        """Length at which it ends."""
        self.done = done
        """Tokens at the last (re)start of decoding, earlier replicas included."""
        self.since_dispatch = 0
        """Tokens generated on this replica before the last (re)start."""
        self.context = prompt_tokens + done
        """Context at the last (re)start: prompt, tool output and response."""
        self.budget: int | None = None
        """New tokens on this replica after which it is handed back."""
        self.segments: tuple[Segment, ...] = ()
        """Versions of the tokens generated on this replica before the last (re)start."""
        self.stops: list[ToolCall] | None = None
        """Where a turn ends and a tool works, the next one last; None: single-turn."""
        self.start_clock = 0
        self.finish_clock = 0
        self.log_index = 0
        self.first_token_at = -1.0
        self.fresh = True
        """No KV was ever computed here: prefill is not *re*computation."""
        self.gone = False
        self.reward = 0.0
        self.reward_latency_s = 0.0
        self.fails = False
        """It will fail at its end."""

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
        length = self.stops[-1].length if self.stops else self.total
        if self.budget is not None:
            length = min(length, self.done - self.since_dispatch + self.budget)
        return length
