"""The laws by number, and the error that tells how one was broken."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from interfaces.actions import Action
from interfaces.errors import TestbedError
from interfaces.events import Event
from interfaces.rollout import PolicyVersion
from interfaces.view import LoopConfig


class Law(NamedTuple):
    """One invariant of the design."""

    number: int
    name: str
    """Name of its check."""
    sentence: str


LAWS: dict[int, Law] = {
    law.number: law
    for law in (
        Law(0, "protocol", "the core and its policy answer every fact that a backend may report"),
        Law(
            1,
            "conservation",
            "admitted = running + ready + training + trained + discarded, and credit returns once",
        ),
        Law(2, "once", "no prompt or rollout trains twice"),
        Law(3, "staleness", "the declared staleness bound holds when a step consumes a rollout"),
        Law(
            4,
            "versions",
            "versions are consecutive, monotone per replica and rollout; loaded <= published <= completed",
        ),
        Law(5, "causality", "submit <= first token <= finish <= train"),
        Law(6, "progress", "while prompts remain and a replica lives, a step happens, and nothing starves"),
        Law(7, "replay", "the same events give the same actions"),
        Law(8, "groups", "a group trains whole, and a step takes exactly its batch"),
        Law(9, "limits", "running groups, rollouts per replica and the buffer stay within declared limits"),
        Law(10, "synchronous", "max_staleness = 0 is exactly synchronous RL"),
        Law(
            12,
            "recovery",
            "kill anywhere, restore: every prompt of the epoch is trained exactly once, within the bound",
        ),
        Law(13, "overlap", "no forward pass overlaps a weight write or the other role of the same GPUs"),
        Law(15, "tightness", "the bound is tight: a fast generator reaches it"),
        Law(16, "end", "a run ends: the last version published, no task, rollout or load left"),
        Law(
            17,
            "budget",
            "resumed + earlier tokens <= the original limit: no token is forgotten or made twice",
        ),
    )
}
"""The laws that the kit checks, by their number in the design."""

NAMES: tuple[str, ...] = tuple(law.name for law in LAWS.values())


class Step(NamedTuple):
    """One event of a run, what the core answered, and where the run stood then."""

    event: Event | None
    """None: the process was killed here and restored from its snapshot."""
    answer: tuple[Action, ...]
    version: PolicyVersion
    """After the event."""
    staleness: int | None
    """Largest staleness of what this event's answer trains."""
    state: dict[str, Any] | None = None
    """The snapshot, where the process was killed."""


class InvariantViolation(TestbedError, AssertionError):  # noqa: N818 (the word of the field)
    """A law was broken; the message is the whole story."""

    exit_code = 8

    def __init__(self, number: int, expected: str, seen: str, likely_cause: str) -> None:
        self.number = number
        self.sentence = LAWS[number].sentence
        self.expected = expected
        self.seen = seen
        self.likely_cause = likely_cause
        self.history: Sequence[Step] = ()
        """The events up to the violation (of a trace: the last few)."""
        self.excerpt = False
        """Whether the history holds only the steps that matter."""
        self.snippet = ""
        """Python that replays it."""
        self.context = ""
        """Policy and configuration under test."""
        self.config: LoopConfig | None = None
        self.origin: Any = None
        """Of a search: the moves that led here, as `interfaces.conformance.moves.Origin`."""
        super().__init__(number, expected, seen, likely_cause)

    @property
    def name(self) -> str:
        """Name of the check that this is a failure of."""
        return LAWS[self.number].name

    @property
    def events(self) -> int:
        """Number of events in the story."""
        return sum(step.event is not None for step in self.history)

    def __str__(self) -> str:
        """The story: law, expected, seen, likely cause, table of events, snippet."""
        from interfaces.conformance.story import tell  # noqa: PLC0415 (the story imports this module)

        return tell(self)
