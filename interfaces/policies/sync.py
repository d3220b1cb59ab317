"""Sync: when is a version published, when does a replica load it, what becomes of work in flight?"""

from collections.abc import Iterable
from dataclasses import dataclass

from interfaces.actions import InFlight
from interfaces.pool import Replica
from interfaces.view import View


@dataclass(frozen=True, slots=True)
class EveryStep:
    """Publish every `every`-th version; replicas load as soon as it is published, at most some at a time."""

    in_flight: InFlight
    every: int = 1
    max_loading: int | None = None
    """Replicas that may load at once (rolling update); None: all."""

    def publish(self, view: View) -> bool:
        """Every `every` versions."""
        return view.version - view.published >= self.every

    def load(self, view: View, replica: Replica) -> InFlight | None:
        """Now, unless enough others are loading."""
        if self.max_loading is not None:
            busy = sum(1 for r in view.pool if r is not replica and (r.loading or r.draining))
            if busy >= self.max_loading:
                return None
        return self.in_flight

    def exceptions(self, view: View, replica: Replica) -> Iterable[tuple[int, InFlight]]:  # noqa: ARG002
        """None."""
        return ()

    def on_batch_taken(self, view: View) -> InFlight | None:  # noqa: ARG002
        """Work in flight goes on."""
        return None


@dataclass(frozen=True, slots=True)
class StopAtBatch(EveryStep):
    """Rounds: the moment a batch is taken, what is still in flight is aborted in the way `at_batch` says."""

    at_batch: InFlight = InFlight.ABORT_RESUME

    def on_batch_taken(self, view: View) -> InFlight | None:  # noqa: ARG002
        """The round is over."""
        return self.at_batch
