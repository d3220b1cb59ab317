"""Admission that sets prompts aside which did not finish, or that follows the use of the KV cache."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from interfaces.policies.buffering import OldestFirst
from interfaces.policies.protocols import Admission, Expiry, Quota
from interfaces.view import View


@dataclass(frozen=True, slots=True)
class ShortAndLongRounds:
    """Short rounds start more new prompts than a batch; what they leave over fills long rounds.

    A long round starts when a batch of left-over prompts waits, with just those, and all of them train.
    """

    over_provision: float
    """Groups of a short round over groups trained."""

    def quota(self, view: View) -> Quota:
        """What the round lacks; nothing between the end of a round and the load of the new weights."""
        if view.training or view.role != "generate" or view.serving_version < view.version:
            return Quota(0, "round")
        size = view.config.batch_size
        long = any(group.attempt for group in (*view.running.values(), *view.ready.values()))
        if long or (len(view.requeued) >= size and not view.untaken):
            return Quota(size - view.untaken, "round")
        return Quota(ceil(self.over_provision * size) - view.untaken, "round", new_first=True)


@dataclass(frozen=True, slots=True)
class BatchAlone(OldestFirst):
    """What a batch leaves over never trains with these tokens: its prompts are generated again, later."""

    def expired(self, view: View) -> Iterable[Expiry]:
        """All that is not in the batch, once there is one."""
        if not view.training:
            return ()
        return [Expiry(g, "left_over", requeue=True) for g in (*view.running.values(), *view.ready.values())]


@dataclass(frozen=True, slots=True)
class TailBatch:
    """What `limit` allows; prompts that come again wait until there are `trigger` of them, then go first."""

    limit: Admission
    trigger: int

    def quota(self, view: View) -> Quota:
        """As `limit`, with the word on which prompts come first."""
        quota = self.limit.quota(view)
        if not view.requeued:
            return quota
        tail = len(view.requeued) >= self.trigger or any(group.attempt for group in view.running.values())
        return quota._replace(new_first=not tail)


@dataclass(frozen=True, slots=True)
class AdaptiveConcurrency:
    """Rollouts in flight rise slowly while no replica runs out of KV cache, and fall at once when one does.

    Additive increase, multiplicative decrease as a function of what the view knows: since the last overload
    (or the start) every version raised the limit by the factor `growth`; an overload sets it to `backoff` of
    what was running, at most once a version.
    """

    initial_rollouts: float
    max_rollouts: float
    growth: float
    backoff: float
    floor_rollouts: int

    def quota(self, view: View) -> Quota:
        """Groups below the limit."""
        overload = view.overload
        start, since = self.initial_rollouts, 0
        if overload is not None:
            start, since = self.backoff * overload.running_rollouts, overload.version
        limit = start * self.growth ** (view.version - since)
        limit = min(max(limit, self.floor_rollouts), self.max_rollouts)
        return Quota(limit / view.config.group_size - len(view.running), "kv_cache")
