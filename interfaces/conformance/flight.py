"""A rollout under way, as a test backend holds it."""

from interfaces import actions
from interfaces.rollout import PolicyVersion, Segment


class Flight:
    """A rollout on a replica."""

    __slots__ = ("action", "replica", "segments", "started_at")

    def __init__(self, action: actions.Generate, started_at: float) -> None:
        self.action = action
        self.replica = action.replica
        self.segments: list[Segment] = []
        """Made since it was dispatched."""
        self.started_at = started_at

    @property
    def made(self) -> int:
        """Tokens since it was dispatched."""
        return sum(segment.tokens for segment in self.segments)

    def make(self, version: PolicyVersion, tokens: int) -> None:
        """Generate so many tokens under this version, within the budget."""
        budget = self.action.token_budget
        if budget is not None:
            tokens = min(tokens, budget - self.made)
        if tokens <= 0:
            return
        if self.segments and self.segments[-1].version == version:
            tokens += self.segments.pop().tokens
        self.segments.append(Segment(version, tokens))
