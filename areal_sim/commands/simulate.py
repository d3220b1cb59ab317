"""What the commands that simulate share: checks, and the end by Ctrl-C."""

import contextlib
import os
import signal
from collections.abc import Iterator

from areal_sim.simulation import Simulation
from interfaces.scenario import Resolved

INTERRUPTED = 130
"""Exit code after Ctrl-C, as a shell reports it."""


def validate(resolved: Resolved) -> None:
    """Refuse what `Simulation` would refuse, without simulating.

    Raises:
        ScenarioError: what is wrong, and what to do.
    """
    Simulation(resolved)


@contextlib.contextmanager
def stop_on_interrupt(simulation: Simulation) -> Iterator[None]:
    """Ctrl-C ends the simulation between two events; a second one ends the program at once."""

    def handle(_signal: int, _frame: object) -> None:
        if simulation.interrupted:
            raise KeyboardInterrupt
        simulation.interrupted = True
        os.write(2, b"\ninterrupted: writing what there is; press again to end at once\n")

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
