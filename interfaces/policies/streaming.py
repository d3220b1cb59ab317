"""Buffering without a full batch: the optimizer step takes its groups in parts, as they become ready."""

from collections.abc import Iterable
from dataclasses import dataclass

from interfaces.policies.buffering import has_signal, oldest_first
from interfaces.policies.protocols import Batch, Expiry
from interfaces.rollout import Group
from interfaces.view import View


@dataclass(frozen=True, slots=True)
class Streaming:
    """The step begins with the first `part_groups` that are ready and ends when it has taken a batch."""

    part_groups: int
    filter_zero_variance: bool = False

    def accept(self, view: View, group: Group) -> bool:  # noqa: ARG002
        """Everything, or only groups whose rewards differ."""
        return not self.filter_zero_variance or has_signal(group)

    def select(self, view: View) -> Batch | None:
        """The next part, the oldest head version first; the last part takes what the batch lacks."""
        missing = view.config.batch_size - view.taken_in_step
        size = min(self.part_groups, missing)
        if len(view.ready) < size:
            return None
        return Batch(oldest_first(view.ready.values())[:size], last=size == missing)

    def expired(self, view: View) -> Iterable[Expiry]:  # noqa: ARG002
        """None."""
        return ()


@dataclass(frozen=True, slots=True)
class WhatIsFinished:
    """An iteration ends when nothing runs any more; it trains what is finished, up to a batch.

    Of each rollout only the last segment counts in the loss: the tokens of the iteration in which it ended.
    """

    def accept(self, view: View, group: Group) -> bool:  # noqa: ARG002
        """Everything."""
        return True

    def select(self, view: View) -> Batch | None:
        """All ready groups, once no rollout runs and none is about to."""
        size = view.config.batch_size
        if not view.ready or (len(view.ready) < size and (view.running_rollouts or not self._spent(view))):
            return None
        return Batch(oldest_first(view.ready.values())[:size], last_segment=True)

    def expired(self, view: View) -> Iterable[Expiry]:  # noqa: ARG002
        """None."""
        return ()

    @staticmethod
    def _spent(view: View) -> bool:
        """Whether every unfinished rollout has had its budget of this version (or waits for its reward)."""
        unfinished = (rollout for group in view.running.values() for rollout in group.rollouts)
        return all(
            rollout.reward is not None or rollout.tail_version >= view.serving_version
            for rollout in unfinished
        )  # fmt: skip
