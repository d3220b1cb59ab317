"""Callbacks on the SimPy clock, with one order for what happens at the same instant."""

from collections.abc import Callable

import simpy
from simpy.events import Event as SimPyEvent

from interfaces.events import RANK, Event

MECHANICS = 10 + len(RANK)
"""Priority of what is not an event of the core: after all events of the instant."""


def priority_of(kind: type[Event]) -> int:
    """SimPy priority of a callback that reports this kind of event."""
    return 10 + RANK[kind]


def call_later(
    env: simpy.Environment, delay_s: float, priority: int, callback: Callable[[SimPyEvent], None]
) -> None:
    """Run a callback `delay_s` from now; at the same time, lower priorities first, then first come."""
    event = SimPyEvent(env)
    event._ok = True  # as simpy.Timeout does: triggered from the start
    event._value = None
    event.callbacks.append(callback)
    env.schedule(event, priority, delay_s)  # type: ignore[arg-type]
