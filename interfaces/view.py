"""What a policy may read. Kept by the core event by event; nothing is rebuilt.

There is no future in it: no response length before the end, no reward before it is known.
"""

from collections.abc import Sized
from dataclasses import dataclass
from typing import NamedTuple

from interfaces.pool import ReplicaPool
from interfaces.rollout import Group, PolicyVersion


@dataclass(frozen=True, slots=True)
class LoopConfig:
    """The training run as the core needs to know it. Sizes in groups, but for `group_size`."""

    batch_size: int
    group_size: int
    steps: int
    dataset_size: int | None = None
    """Prompts of an epoch; None: they never end."""
    epochs: int = 1
    last_batch: str = "drop"
    """"drop" or "train" what the data no longer fill."""
    checkpoint_every_steps: int = 0
    evaluation_every_steps: int = 0
    max_retries: int = 3
    """Failures of one rollout before its group is given up."""

    @property
    def prompts(self) -> int | None:
        """Prompts of the whole run; None: without end."""
        return None if self.dataset_size is None else self.dataset_size * self.epochs


class Overload(NamedTuple):
    """A replica had to throw KV away for want of room."""

    version: PolicyVersion
    """The newest version at that time."""
    running_rollouts: int
    """Rollouts on replicas at that time."""


class View:
    """A live, read-only picture of the run. Policies read; only `TrainingLoop` writes."""

    __slots__ = (
        "config", "discarded_groups", "now", "overload", "pending_rollouts", "pool", "prompts_left",
        "published", "publishing", "ready", "requeued", "role", "running", "running_rollouts",
        "steps_finished", "steps_started", "taken_in_step", "trained_groups", "training", "version",
    )  # fmt: skip

    def __init__(self, config: LoopConfig) -> None:
        self.config = config
        self.now = 0.0
        """Time of the event being handled, in seconds since the run began."""
        self.version: PolicyVersion = 0
        """Training steps completed."""
        self.steps_started = 0
        self.steps_finished = 0
        self.published: PolicyVersion = 0
        self.publishing: PolicyVersion | None = None
        self.role = "generate"
        """What colocated GPUs do; "generate" for ever when the pools are apart."""
        self.pool = ReplicaPool()
        self.running: dict[int, Group] = {}
        """Groups with a member not yet finished, in the order of admission."""
        self.ready: dict[int, Group] = {}
        """Groups that may train, in the order in which they became ready."""
        self.training: dict[int, Group] = {}
        """Groups the trainer holds."""
        self.running_rollouts = 0
        """Rollouts on replicas."""
        self.pending_rollouts = 0
        """Admitted rollouts not yet dispatched."""
        self.taken_in_step = 0
        """Groups that the open step has taken so far (streaming)."""
        self.trained_groups = 0
        self.discarded_groups = 0
        self.prompts_left = True
        self.requeued: Sized = ()
        """Prompts that wait to be generated again."""
        self.overload: Overload | None = None
        """The first of the last version that had any; known only to a policy that `reads_engine_load`."""

    @property
    def untaken(self) -> int:
        """Groups admitted and not yet taken by the trainer."""
        return len(self.running) + len(self.ready)

    @property
    def serving_version(self) -> PolicyVersion:
        """Oldest version that a rollout admitted now may start with."""
        oldest = self.pool.oldest_version
        return self.published if oldest is None else oldest

    @property
    def next_step_version(self) -> PolicyVersion:
        """Version that the next step to start (or the open one, under streaming) starts from."""
        return self.steps_started - 1 if self.taken_in_step else self.steps_started
