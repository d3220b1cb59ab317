"""Rollouts, groups and trajectories, and the one definition of staleness."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

PolicyVersion = int
"""Number of completed training steps: training at version v yields v + 1."""


class Segment(NamedTuple):
    """A run of consecutive response tokens that one policy version generated."""

    version: PolicyVersion
    tokens: int


class RolloutState(Enum):
    """Where a rollout is; `TrainingLoop` is the only one to change it."""

    PENDING = "pending"
    RUNNING = "running"
    REWARDING = "rewarding"
    FINISHED = "finished"
    GONE = "gone"


PENDING, RUNNING, REWARDING, FINISHED, GONE = RolloutState
"""For what happens once a rollout: to look a member up in its class is a slow call in Python 3.11."""


class GroupState(Enum):
    """Where a group is. Its credit is returned exactly once, on entering TRAINED or DISCARDED."""

    RUNNING = "running"
    READY = "ready"
    TRAINING = "training"
    TRAINED = "trained"
    DISCARDED = "discarded"


class Rollout:
    """One unit of generation work: a member of a group, possibly generated in several segments."""

    __slots__ = (
        "attempt", "dispatch_version", "failures", "group", "head_version", "id", "member", "replica",
        "response_tokens", "reward", "segments", "state", "tail_version",
    )  # fmt: skip

    def __init__(self, rollout_id: int, group: "Group", member: int) -> None:
        self.id = rollout_id
        self.group = group
        self.member = member
        self.attempt = group.attempt
        self.failures = 0
        self.state = PENDING
        self.replica = -1
        self.dispatch_version: PolicyVersion = -1
        """Version that the replica had when this rollout was (last) dispatched without earlier tokens."""
        self.head_version: PolicyVersion = -1
        """Oldest version over the generated tokens; -1 before the first is reported."""
        self.tail_version: PolicyVersion = -1
        self.response_tokens = 0
        """Tokens reported so far, earlier segments included."""
        self.segments: tuple[Segment, ...] = ()
        self.reward: float | None = None

    @property
    def oldest_possible_version(self) -> PolicyVersion | None:
        """A version that no token of it is older than; None while nothing can have been generated."""
        if self.head_version >= 0:
            return self.head_version
        return self.dispatch_version if self.dispatch_version >= 0 else None

    def add_segments(self, segments: tuple[Segment, ...]) -> None:
        """Append what a replica generated since the last dispatch."""
        for version, tokens in segments:
            self.response_tokens += tokens
            self.tail_version = version
        if self.segments:
            self.segments = (*self.segments, *segments)
        elif segments:
            self.segments = segments
            self.head_version = segments[0][0]

    def forget(self) -> None:
        """Start again from token 0: nothing generated so far counts."""
        self.segments = ()
        self.response_tokens = 0
        self.head_version = self.tail_version = self.dispatch_version = -1


class Group:
    """The rollouts of one prompt: admitted together, ready together, trained whole."""

    __slots__ = (
        "attempt", "finished", "head_version", "id", "needed", "prompt", "replica", "rollout_ids", "rollouts",
        "state", "tail_version",
    )  # fmt: skip

    def __init__(self, group_id: int, prompt: int, attempt: int, needed: int) -> None:
        self.id = group_id
        self.prompt = prompt
        """Index of the prompt in the run: epoch * dataset_size + position."""
        self.attempt = attempt
        """How often this prompt was admitted before."""
        self.needed = needed
        """Finished rollouts that make the group ready; more may have been launched (redundancy)."""
        self.replica = -1
        """Where its last member was placed; -1 before."""
        self.finished = 0
        self.state = GroupState.RUNNING
        self.rollouts: list[Rollout] = []
        self.rollout_ids: tuple[int, ...] = ()
        self.head_version: PolicyVersion = -1
        """Oldest version over the finished members."""
        self.tail_version: PolicyVersion = -1

    @property
    def oldest_possible_version(self) -> PolicyVersion | None:
        """A version that no token of the group is older than; None while nothing was generated."""
        if self.head_version >= 0 and self.state is not GroupState.RUNNING:
            return self.head_version
        versions = [v for r in self.rollouts if (v := r.oldest_possible_version) is not None]
        return min(versions, default=None)


def staleness(step_version: PolicyVersion, head_version: PolicyVersion) -> int:
    """Off-policyness in versions of what a training step consumes.

    Args:
        step_version: the version the training step starts from.
        head_version: the oldest version over the *generated* tokens (prompt tokens have none).

    Raises:
        ValueError: the rollout is newer than the step, or has no generated token.
    """
    if head_version < 0:
        raise ValueError(f"head version {head_version}: no generated token, so no staleness")
    if head_version > step_version:
        raise ValueError(f"head version {head_version} is newer than the step's version {step_version}")
    return step_version - head_version


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Tokens of one finished rollout, with the behaviour log-prob and version of every generated token.

    `response_logprobs[i]` and `response_versions[i]` belong to `response_ids[i]`: whatever shift a
    trainer needs is applied to all three at once (AReaL at 4aef98d shifted two of them).
    """

    rollout: int
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    response_logprobs: tuple[float, ...]
    response_versions: tuple[PolicyVersion, ...]

    def __post_init__(self) -> None:
        lengths = {len(self.response_ids), len(self.response_logprobs), len(self.response_versions)}
        if len(lengths) != 1:
            raise ValueError(f"rollout {self.rollout}: tokens, log-probs and versions differ in length")

    @property
    def head_version(self) -> PolicyVersion:
        """Oldest version over the generated tokens."""
        return min(self.response_versions)

    @property
    def tail_version(self) -> PolicyVersion:
        """Newest version over the generated tokens."""
        return max(self.response_versions)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Versions run-length encoded, in the order of generation."""
        runs: list[Segment] = []
        for version in self.response_versions:
            if runs and runs[-1].version == version:
                runs[-1] = Segment(version, runs[-1].tokens + 1)
            else:
                runs.append(Segment(version, 1))
        return tuple(runs)
