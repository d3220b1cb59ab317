"""Facts a backend reports. `at` is seconds since the run began; the core has no other clock.

Events are named tuples: immutable, without a dict, and cheap enough for millions a run.

Events of the same instant are fed in the order of `ORDER` (documented, tested): finished work first, then
what changes versions, then what changes the pool, then timers. Within one rank: in the order they arose.
"""

from typing import NamedTuple

from interfaces.rollout import PolicyVersion, Segment


class RunStarted(NamedTuple):
    """The backend is ready: these replicas serve this version."""

    at: float
    replicas: tuple[int, ...]
    version: PolicyVersion


class RolloutFinished(NamedTuple):
    """A rollout ended by itself. `segments` hold what was generated since it was last dispatched."""

    at: float
    rollout: int
    replica: int
    prompt_tokens: int
    segments: tuple[Segment, ...]
    first_token_at: float
    reward: float | None
    """None: a `RewardReady` or `RewardFailed` follows."""


class RolloutAborted(NamedTuple):
    """A rollout left its replica unfinished: aborted, moved, or at the end of its token budget."""

    at: float
    rollout: int
    replica: int
    segments: tuple[Segment, ...]


class RolloutFailed(NamedTuple):
    """A rollout was lost; none of its tokens since the last dispatch survive."""

    at: float
    rollout: int
    replica: int
    reason: str
    lost_tokens: int = 0
    """Those tokens, as far as they are known."""


class RewardReady(NamedTuple):
    """The reward of a finished rollout is known."""

    at: float
    rollout: int
    reward: float


class RewardFailed(NamedTuple):
    """The reward function hung, crashed or returned no finite number."""

    at: float
    rollout: int
    reason: str


class TrainingFinished(NamedTuple):
    """The trainer is done with one `Train` action; the version rises if that was the last of its step."""

    at: float
    step: int
    last: bool


class WeightsPublished(NamedTuple):
    """A version is available to the replicas."""

    at: float
    version: PolicyVersion


class WeightsLoaded(NamedTuple):
    """A replica serves a new version; it may be given work again."""

    at: float
    replica: int
    version: PolicyVersion


class ReplicaDown(NamedTuple):
    """A replica died. Its rollouts that were not reported aborted just before are lost from token 0."""

    at: float
    replica: int
    reason: str
    lost_tokens: int = 0
    """Generated there since the dispatch of each of them, as far as they are known."""


class ReplicaUp(NamedTuple):
    """A replica serves again (or for the first time), with this version."""

    at: float
    replica: int
    version: PolicyVersion


class RoleSwitched(NamedTuple):
    """The colocated GPUs now generate or train."""

    at: float
    role: str


class EngineLoad(NamedTuple):
    """How full a replica is; reported at the start, after each step and at each preemption.

    Only for a policy that `reads_engine_load`.
    """

    at: float
    replica: int
    kv_tokens: int
    """KV cache in use."""
    kv_capacity_tokens: int
    preemptions: int
    """Rollouts that lost their KV for want of room since the last report."""


class CheckpointFinished(NamedTuple):
    """The checkpoint after this step is whole on disk."""

    at: float
    step: int


class EvaluationFinished(NamedTuple):
    """The evaluation after this step is over."""

    at: float
    step: int


class TimerFired(NamedTuple):
    """A time that a policy asked for (`SetTimer`) has come."""

    at: float


class StopRequested(NamedTuple):
    """The user wants the run to end now."""

    at: float


Event = (
    RunStarted | RolloutFinished | RolloutAborted | RolloutFailed | RewardReady | RewardFailed
    | TrainingFinished | WeightsPublished | WeightsLoaded | ReplicaDown | ReplicaUp | RoleSwitched
    | EngineLoad | CheckpointFinished | EvaluationFinished | TimerFired | StopRequested
)  # fmt: skip

ORDER: tuple[type[Event], ...] = (
    RunStarted, RolloutFinished, RolloutAborted, RolloutFailed, RewardReady, RewardFailed,
    TrainingFinished, WeightsPublished, WeightsLoaded, ReplicaDown, ReplicaUp, RoleSwitched,
    EngineLoad, CheckpointFinished, EvaluationFinished, TimerFired, StopRequested,
)  # fmt: skip
"""Rank of simultaneous events."""

RANK: dict[type[Event], int] = {kind: rank for rank, kind in enumerate(ORDER)}
