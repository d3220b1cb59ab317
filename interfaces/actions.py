"""Intents that a backend carries out. The order within one answer of the core is the order to apply them."""

from enum import Enum
from typing import NamedTuple

from interfaces.rollout import PolicyVersion


class InFlight(Enum):
    """What becomes of a rollout that is in flight when its replica gets new weights."""

    DRAIN = "drain"
    """It finishes under the old weights; the load waits, the replica gets no new work."""
    DEFER = "defer"
    """It finishes under the old weights; the load waits, the replica goes on taking work."""
    KEEP_RECOMPUTE = "keep_recompute"
    """It stays; its KV is discarded and computed again under the new weights (AReaL)."""
    KEEP_STALE = "keep_stale"
    """It stays and keeps the KV of the old weights (PipelineRL)."""
    ABORT_RESUME = "abort_resume"
    """It is aborted and submitted again with its tokens so far, to any replica."""
    ABORT_RESTART = "abort_restart"
    """It is aborted and submitted again from token 0."""
    ABORT_DROP = "abort_drop"
    """It is aborted and its group is discarded."""


KEEPS = frozenset({InFlight.KEEP_RECOMPUTE, InFlight.KEEP_STALE})
ABORTS = frozenset({InFlight.ABORT_RESUME, InFlight.ABORT_RESTART, InFlight.ABORT_DROP})
WAITS = frozenset({InFlight.DRAIN, InFlight.DEFER})


class Generate(NamedTuple):
    """Start (or resume) one rollout on one replica."""

    rollout: int
    prompt: int
    member: int
    attempt: int
    replica: int
    resume_tokens: int
    """Response tokens that exist already and count towards the limit."""
    token_budget: int | None
    """Report `RolloutAborted` after so many new tokens; None: run to the end."""
    kv_kept: bool = False
    """The KV of its tokens so far is still there (a pool that replicas share): nothing is recomputed."""


class Abort(NamedTuple):
    """Take a rollout off its replica; answered by `RolloutAborted` (or by its finish, if that was first)."""

    rollout: int
    replica: int


class Publish(NamedTuple):
    """Make a trained version available."""

    version: PolicyVersion


class LoadWeights(NamedTuple):
    """Interrupt a replica, load a published version, resume.

    `in_flight` is what becomes of every rollout on it, but for those listed in `exceptions`; None when the
    replica has none. It is never DRAIN or DEFER: the core waits before it sends this.
    """

    replica: int
    version: PolicyVersion
    in_flight: InFlight | None
    exceptions: tuple[tuple[int, InFlight], ...]


class Train(NamedTuple):
    """Train on these rollouts (all of the listed groups), starting from `version`."""

    step: int
    version: PolicyVersion
    groups: tuple[int, ...]
    rollouts: tuple[int, ...]
    mask_below: PolicyVersion | None
    """Tokens of an older version are left out of the loss; None: all tokens count."""
    last: bool
    """The optimizer step ends here; False: more groups of the same step follow (streaming)."""
    last_segment: bool = False
    """Of each rollout only the tokens of its newest version count in the loss."""


class Discard(NamedTuple):
    """Forget a group: it will never train. Its prompt may have been queued again."""

    group: int
    rollouts: tuple[int, ...]
    """All its members."""
    running: tuple[int, ...]
    """Those that a replica still holds: `RolloutAborted` (or their finish) follows."""
    reason: str


class Dismiss(NamedTuple):
    """Redundant members are not needed: enough others of their group finished, and it trains without them."""

    rollouts: tuple[int, ...]
    running: tuple[int, ...]
    """Those that a replica still holds."""


class SwitchRole(NamedTuple):
    """Let the colocated GPUs generate or train."""

    role: str


class Checkpoint(NamedTuple):
    """Write a checkpoint of what this step left."""

    step: int


class Evaluate(NamedTuple):
    """Evaluate what this step left."""

    step: int


class SetTimer(NamedTuple):
    """Report `TimerFired` at this time."""

    at: float


class AdmissionBlocked(NamedTuple):
    """Nothing more may start until this cause goes away (None: admission is open). Nothing to carry out."""

    by: str | None


class EndRun(NamedTuple):
    """The run is over; no work is left anywhere."""

    reason: str


Action = (
    Generate | Abort | Publish | LoadWeights | Train | Discard | Dismiss | SwitchRole | Checkpoint
    | Evaluate | SetTimer | AdmissionBlocked | EndRun
)  # fmt: skip
