"""Laminar: every replica updates when it is done, and the tails of old versions are packed together."""

from dataclasses import dataclass

from interfaces.actions import InFlight
from interfaces.policies.admission import Concurrency
from interfaces.policies.capacity import FixedPools
from interfaces.policies.order import FirstFinished
from interfaces.policies.presets.common import Count, Groups, in_flight
from interfaces.policies.protocols import Capacity, Guarantees, Policy
from interfaces.policies.registry import register
from interfaces.policies.sync import EveryStep
from interfaces.policies.tails import NewestReplicas, Repack
from interfaces.view import LoopConfig


@register("laminar")
@dataclass(frozen=True, slots=True)
class Laminar:
    """Laminar: no global sync. A replica pulls the newest weights when its last rollout is finished.

    A replica behind the newest version gets no new work; when few rollouts are left on it they move to
    another replica of the same version (repack), and it is free to update. Rollouts have one version, unless
    their version disappears while they move. Staleness has no bound; the paper sees 4 at most. A pull from a
    relay costs here what any load costs. Source: arXiv 2510.12633.
    """

    max_concurrent_groups: Groups | None = None
    """Default: two batches."""
    repack_below: Count = 4
    """Rollouts on a replica under which it counts as a tail; 0: no repack."""

    def build(self, config: LoopConfig) -> Policy:
        """A concurrency, replicas on their own, whatever is finished first."""
        moves = self.repack_below > 0
        capacity: Capacity = Repack(self.repack_below) if moves else FixedPools()
        return Policy(
            name="laminar",
            admission=Concurrency(self.max_concurrent_groups or 2 * config.batch_size),
            dispatch=NewestReplicas(),
            sync=EveryStep(InFlight.DEFER),
            buffering=FirstFinished(),
            capacity=capacity,
            guarantees=Guarantees(single_version=not moves),
            in_flight=in_flight(InFlight.DEFER, InFlight.ABORT_RESUME)
            if moves
            else in_flight(InFlight.DEFER),
            min_outstanding_groups=config.batch_size,
        )
