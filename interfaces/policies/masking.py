"""Buffering that bounds whole rollouts and single tokens by two different ages."""

from dataclasses import dataclass

from interfaces.policies.buffering import Bounded
from interfaces.policies.protocols import Batch
from interfaces.view import View


@dataclass(frozen=True, slots=True)
class BoundedAndMasked(Bounded):
    """As `Bounded`; besides, tokens older than `mask_staleness` versions are left out of the loss."""

    mask_staleness: int | None = None

    def select(self, view: View) -> Batch | None:
        """The batch of `Bounded`, masked."""
        batch = Bounded.select(self, view)
        if batch is None or self.mask_staleness is None:
            return batch
        return batch._replace(mask_below=view.next_step_version - self.mask_staleness)
