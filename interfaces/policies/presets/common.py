"""Parameter types and small helpers that the named systems share."""

from typing import Annotated

from pydantic import Field

from interfaces.actions import InFlight

Staleness = Annotated[int, Field(ge=0)]
StalenessOrInf = Annotated[float, Field(ge=0)]
Groups = Annotated[int, Field(ge=1)]
Positive = Annotated[int, Field(ge=1)]
Factor = Annotated[float, Field(ge=1)]
Ratio = Annotated[float, Field(ge=0, allow_inf_nan=False)]
ShareOrNone = Annotated[float | None, Field(gt=0, lt=1)]
Count = Annotated[int, Field(ge=0)]


def in_flight(*actions: InFlight) -> frozenset[InFlight]:
    """What a policy may ask for, as it declares it."""
    return frozenset(actions)


def versions_of_syncs(syncs: int, every: int) -> int:
    """Largest lag in versions of what is at most `syncs` weight syncs old, with one sync every `every` steps.

    A rollout that starts right after sync j has head version j * every; it is `syncs` old until the step
    before sync j + syncs + 1.
    """
    return (syncs + 1) * every - 1
