"""Buffering by order of arrival: first finished first, or first admitted first within a window."""

from collections.abc import Iterable
from dataclasses import dataclass

from interfaces.policies.buffering import has_signal
from interfaces.policies.protocols import Batch, Expiry
from interfaces.rollout import Group
from interfaces.view import View


@dataclass(frozen=True, slots=True)
class FirstFinished:
    """Full batches in the order of finishing, whatever the version: a plain queue.

    With `max_staleness` a group that is older when it would be used is dropped: a hard bound. Nothing is
    done about rollouts that still run.
    """

    max_staleness: int | None = None
    filter_zero_variance: bool = False

    def accept(self, view: View, group: Group) -> bool:  # noqa: ARG002
        """Everything, or only groups whose rewards differ."""
        return not self.filter_zero_variance or has_signal(group)

    def select(self, view: View) -> Batch | None:
        """The first full batch."""
        size = view.config.batch_size
        if len(view.ready) < size:
            return None
        ready = view.ready.values()
        return Batch([group for group, _ in zip(ready, range(size), strict=False)])

    def expired(self, view: View) -> Iterable[Expiry]:
        """Ready groups that no step can use any more."""
        if self.max_staleness is None:
            return ()
        oldest = view.next_step_version - self.max_staleness
        return [Expiry(g, "stale", requeue=False) for g in view.ready.values() if g.head_version < oldest]


@dataclass(frozen=True, slots=True)
class Window:
    """First admitted first, within a window: a group may be overtaken by fewer than `width` later ones.

    `width` = batch size is strict order of admission: the trainer waits for every straggler.
    A count gate of eta in front bounds staleness by eta in strict order, else by
    eta + 1 + floor((width - 2) / batch size): the window lets that many batches pass a straggler.
    """

    width: int

    def accept(self, view: View, group: Group) -> bool:  # noqa: ARG002
        """Everything."""
        return True

    def select(self, view: View) -> Batch | None:
        """The first ready groups of the window, if they fill a batch."""
        size = view.config.batch_size
        if len(view.ready) < size:
            return None
        waiting = sorted((*view.running, *view.ready))
        # All below the first that waits are gone; what is gone above it has overtaken it.
        overtook = view.trained_groups + len(view.training) + view.discarded_groups - waiting[0]
        window = waiting[: max(size, self.width - overtook)]
        batch = [group for number in window if (group := view.ready.get(number)) is not None][:size]
        return Batch(batch) if len(batch) == size else None

    def expired(self, view: View) -> Iterable[Expiry]:  # noqa: ARG002
        """None."""
        return ()
