"""Capacity: limits and roles."""

from collections.abc import Iterable
from dataclasses import dataclass

from interfaces.rollout import Rollout
from interfaces.view import View


@dataclass(frozen=True, slots=True)
class FixedPools:
    """Rollout and trainer GPUs are apart (or one colocated set takes turns); nothing moves."""

    colocated: bool = False
    redundancy: int = 0

    def moves(self, view: View) -> Iterable[Rollout]:  # noqa: ARG002
        """None."""
        return ()
