"""One rollout as a replica holds it."""

from areal_sim.workload import TurnDraw
from interfaces.rollout import Segment


class Sequence:
    """A rollout on a replica. Tokens are response tokens unless named otherwise."""

    __slots__ = (
        "budget", "context", "done", "fails", "finish_clock", "first_token_at", "fresh", "gone", "log_index",
        "prompt", "prompt_tokens", "reward", "reward_latency_s", "rollout", "segments", "since_dispatch",
        "start_clock", "stops", "tool_times", "tool_tokens", "total",
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
        self.segments: list[Segment] = []
        """Versions of the tokens generated on this replica before the last (re)start."""
        self.stops: list[int] = []
        """Lengths at which a turn ends and a tool works, descending (the next one last)."""
        self.tool_times: list[float] = []
        self.tool_tokens: list[int] = []
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
        plan = []
        for tokens, time_s, tool_tokens in zip(turns.tokens, turns.tool_time_s, turns.tool_tokens, strict=False):
            length += tokens
            if length > self.done:
                plan.append((length, time_s, tool_tokens))
            else:
                self.context += tool_tokens
        for length, time_s, tool_tokens in reversed(plan):
            self.stops.append(length)
            self.tool_times.append(time_s)
            self.tool_tokens.append(tool_tokens)

    def pause_length(self) -> int:
        """The length at which decoding stops next: the end, a tool call, or the end of the budget."""
        length = self.stops[-1] if self.stops else self.total
        if self.budget is not None:
            length = min(length, self.done - self.since_dispatch + self.budget)
        return length
