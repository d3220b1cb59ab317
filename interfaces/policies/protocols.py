"""A scheduling policy is five small decisions: frozen values, pure functions of the view."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from interfaces.actions import InFlight
from interfaces.pool import Replica
from interfaces.rollout import Group, PolicyVersion, Rollout
from interfaces.view import View


class Quota(NamedTuple):
    """How many groups may start now, and what keeps more from starting."""

    groups: float
    """May be negative (over budget) or infinite."""
    limited_by: str
    """"concurrency", "staleness_gate", or a policy's own word."""
    new_first: bool = False
    """Take prompts never tried before, as long as there are any, and let those wait that come again."""


class Batch(NamedTuple):
    """Groups that train next."""

    groups: Sequence[Group]
    mask_below: PolicyVersion | None = None
    last: bool = True
    """Whether the optimizer step ends with them; False under streaming while more follow."""
    last_segment: bool = False
    """Of each rollout only the tokens of its newest version count."""


class Expiry(NamedTuple):
    """A group that must not train any more."""

    group: Group
    reason: str
    requeue: bool
    """Queue its prompt again, in front."""


class Admission(Protocol):
    """How many groups may start now?"""

    def quota(self, view: View) -> Quota:
        """Groups that may be admitted on top of those in the view."""


class Dispatch(Protocol):
    """Which rollout next, on which replica?"""

    def priority(self, view: View, rollout: Rollout) -> float:
        """Place in the queue, asked once on entering it; lower goes first, equals in order of arrival.

        Members of a newly admitted group enter together: it is asked for the first of them.
        """

    def place(self, view: View, rollout: Rollout) -> Replica | None:
        """An open replica for the first of the queue; None: none now."""

    def token_budget(self, view: View, rollout: Rollout) -> int | None:
        """New tokens after which it comes back unfinished; None: run to the end."""


class Sync(Protocol):
    """When is a version published, when does each replica load it, what becomes of work in flight?"""

    def publish(self, view: View) -> bool:
        """Whether to publish `view.version` now. The last version of a run is published in any case."""

    def load(self, view: View, replica: Replica) -> InFlight | None:
        """For a replica behind `view.published`: load now, treating its rollouts so; None: not now."""

    def exceptions(self, view: View, replica: Replica) -> Iterable[tuple[int, InFlight]]:
        """Rollouts on it that are treated otherwise."""

    def on_batch_taken(self, view: View) -> InFlight | None:
        """What becomes of rollouts in flight the moment a batch is taken; None: they go on."""


class Buffering(Protocol):
    """Which ready groups train next, which will never?"""

    def accept(self, view: View, group: Group) -> bool:
        """Whether a finished group may train (False: filtered, its credit returns)."""

    def select(self, view: View) -> Batch | None:
        """The next batch, or None while there is none."""

    def expired(self, view: View) -> Iterable[Expiry]:
        """Groups, running or ready, to discard now."""


class Capacity(Protocol):
    """Limits and roles."""

    @property
    def colocated(self) -> bool:
        """Whether one set of GPUs both generates and trains, in turns."""

    @property
    def redundancy(self) -> int:
        """Members launched in a group beyond its size; the first to finish count."""

    def moves(self, view: View) -> Iterable[Rollout]:
        """Running rollouts to abort and resume elsewhere now (repacking the tail)."""


@dataclass(frozen=True, slots=True)
class Guarantees:
    """What a policy promises; the conformance kit and the loop's users hold it to that."""

    max_staleness: float | None = None
    """Bound on staleness at consumption, in versions; None: no bound named."""
    hard: bool = False
    """Whether the bound holds for every rollout, not only for the count of groups outstanding."""
    per_token: bool = False
    """Whether a hard bound holds for the tokens that count in the loss, rather than for whole rollouts."""
    single_version: bool = False
    """Whether all tokens of a rollout come from one version."""
    whole_groups: bool = True
    full_batches: bool = True
    """Whether every step takes exactly a batch (but for what is left at the end of the data)."""
    last_segment: bool = False
    """Whether of each rollout only the tokens of its newest version count."""
    no_drops: bool = True
    """Whether every admitted group that does not fail is trained."""

    def mask_below(self, step_version: PolicyVersion) -> PolicyVersion | None:
        """Oldest version whose tokens may count in a step; None unless the bound is one on tokens."""
        if not self.per_token or self.max_staleness is None:
            return None
        return step_version - int(self.max_staleness)


@dataclass(frozen=True, slots=True)
class Policy:
    """A named product of the five decisions, with what it promises and what it needs."""

    name: str
    admission: Admission
    dispatch: Dispatch
    sync: Sync
    buffering: Buffering
    capacity: Capacity
    guarantees: Guarantees = field(default_factory=Guarantees)
    in_flight: frozenset[InFlight] = frozenset()
    """Every in-flight action it may ask for: a backend must be capable of them."""
    min_outstanding_groups: int = 0
    """Groups that must fit between admission and training, or it can never fill a batch."""
    moves_keep_kv: bool = False
    """A rollout that goes on under the same version, wherever, brings its KV along."""
    reads_engine_load: bool = False
    """It decides by how full the replicas are: the backend reports `EngineLoad`."""
