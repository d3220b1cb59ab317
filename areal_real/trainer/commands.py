"""What the trainer process is asked to do, in which order, and the event that answers it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from numpy.typing import NDArray

from interfaces.events import Event

OPEN, TRAIN, PUBLISH, CHECKPOINT, EVALUATE, CLOSE = (
    "open", "train", "publish", "checkpoint", "evaluation", "close",
)  # fmt: skip
"""Kinds of commands; those that take trainer time are named as in `interfaces.telemetry.Usage.trainer_s`."""
DEFERRABLE = frozenset({CHECKPOINT, EVALUATE})
"""A publish asked for after these overtakes them: replicas wait for it, and they change no weights."""


class Command(NamedTuple):
    """One order to the trainer process."""

    kind: str
    arguments: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]
    finished: Callable[[float, Mapping[str, Any]], Event]
    """The event to report, from the time and the answer."""


@dataclass
class CommandQueue:
    """First in, first out, but that a publish overtakes checkpoints and evaluations."""

    pending: list[Command] = field(default_factory=list)

    def put(self, command: Command) -> None:
        """Add a command."""
        place = len(self.pending)
        if command.kind == PUBLISH:
            while place and self.pending[place - 1].kind in DEFERRABLE:
                place -= 1
        self.pending.insert(place, command)

    def pop(self) -> Command | None:
        """The next command to carry out; None: there is none."""
        return self.pending.pop(0) if self.pending else None
