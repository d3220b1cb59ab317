"""Buffering: which ready groups train next, which will never?"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from interfaces.policies.protocols import Batch, Expiry
from interfaces.rollout import Group
from interfaces.view import View


def has_signal(group: Group) -> bool:
    """Whether the rewards of a group differ: otherwise its group-relative advantages are all zero."""
    rewards = {rollout.reward for rollout in group.rollouts if rollout.reward is not None}
    return len(rewards) > 1


def oldest_first(groups: Iterable[Group]) -> list[Group]:
    """By head version, then in the order given."""
    return sorted(groups, key=lambda group: group.head_version)


class Straggler(Enum):
    """What a hard bound does about a rollout that would become too old."""

    WAIT = "wait"
    """The trainer waits until it is finished, and takes it in the last step that may."""
    DROP = "drop"
    """Its group is discarded as soon as it can no longer train."""
    REQUEUE = "requeue"
    """The same, and its prompt is generated again."""
    MASK = "mask"
    """It trains, without the tokens that are too old."""


@dataclass(frozen=True, slots=True)
class OldestFirst:
    """Full batches, the oldest head version first. `max_ready` bounds the buffer by dropping the oldest."""

    filter_zero_variance: bool = False
    max_ready: int | None = None

    def accept(self, view: View, group: Group) -> bool:  # noqa: ARG002
        """Everything, or only groups whose rewards differ."""
        return not self.filter_zero_variance or has_signal(group)

    def select(self, view: View) -> Batch | None:
        """The oldest full batch."""
        size = view.config.batch_size
        if len(view.ready) < size:
            return None
        return Batch(oldest_first(view.ready.values())[:size])

    def expired(self, view: View) -> Iterable[Expiry]:
        """The oldest beyond the room of the buffer."""
        if self.max_ready is None or len(view.ready) <= self.max_ready:
            return ()
        surplus = len(view.ready) - self.max_ready
        return [Expiry(g, "buffer_full", requeue=False) for g in oldest_first(view.ready.values())[:surplus]]


@dataclass(frozen=True, slots=True)
class Bounded:
    """Full batches, oldest first, and no rollout (no counted token) older than the bound: a hard bound.

    Needs a count gate of the same bound in front when it waits: then the oldest batch always keeps every
    deadline of the others. A newer batch trains before a straggler only while that is so.
    """

    max_staleness: int
    straggler: Straggler
    filter_zero_variance: bool = False

    def accept(self, view: View, group: Group) -> bool:  # noqa: ARG002
        """Everything, or only groups whose rewards differ."""
        return not self.filter_zero_variance or has_signal(group)

    def select(self, view: View) -> Batch | None:
        """The oldest full batch, unless that would make a straggler too old."""
        size = view.config.batch_size
        if len(view.ready) < size:
            return None
        batch = oldest_first(view.ready.values())[:size]
        due = view.next_step_version - self.max_staleness
        if self.straggler is Straggler.WAIT and self._someone_due(view, due, batch):
            return None
        return Batch(batch, mask_below=due if self.straggler is Straggler.MASK else None)

    def expired(self, view: View) -> Iterable[Expiry]:
        """Groups that no step can take any more within the bound."""
        if self.straggler not in (Straggler.DROP, Straggler.REQUEUE):
            return ()
        oldest = view.next_step_version - self.max_staleness
        requeue = self.straggler is Straggler.REQUEUE
        groups = (*view.running.values(), *view.ready.values())
        return [Expiry(g, "stale", requeue) for g in groups if self._too_old(g, oldest)]

    @staticmethod
    def _too_old(group: Group, oldest: int) -> bool:
        version = group.oldest_possible_version
        return version is not None and version < oldest

    @staticmethod
    def _someone_due(view: View, due: int, batch: list[Group]) -> bool:
        """Whether this batch leaves more groups behind than the steps until their deadlines can take.

        A group of head version v must train within v - due more steps after this one (0: now or never).
        """
        taken = {group.id for group in batch}
        groups = (*view.running.values(), *view.ready.values())
        versions = (group.oldest_possible_version for group in groups if group.id not in taken)
        left = Counter(version for version in versions if version is not None)
        size, behind = view.config.batch_size, 0
        for version in sorted(left):
            behind += left[version]
            if behind > (version - due) * size:
                return True
        return False
