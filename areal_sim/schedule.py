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


class _Call(SimPyEvent):
    """An event that is triggered from the start, as a timeout is, and runs one callback."""

    def __init__(self, env: simpy.Environment, callback: Callable[[SimPyEvent], None]) -> None:
        self.env = env
        self.callbacks = [callback]
        self._ok = True
        self._value = None


class Alarm(_Call):
    """A callback that is set again and again: no new event each time."""

    def __init__(self, env: simpy.Environment, priority: int, callback: Callable[[SimPyEvent], None]) -> None:
        super().__init__(env, callback)
        self._priority = priority
        self._callbacks = [callback]

    def set(self, delay_s: float) -> None:
        """Run the callback `delay_s` from now; it must have run since the last time."""
        self.callbacks = self._callbacks
        self.env.schedule(self, self._priority, delay_s)  # type: ignore[arg-type]


def call_later(
    env: simpy.Environment, delay_s: float, priority: int, callback: Callable[[SimPyEvent], None]
) -> SimPyEvent:
    """Run a callback `delay_s` from now; at the same time, lower priorities first, then first come.

    Returns the event that the callback will be given.
    """
    call = _Call(env, callback)
    env.schedule(call, priority, delay_s)  # type: ignore[arg-type]
    return call
