"""Seconds since the run began: the only clock whose readings enter the core."""

import time


class Clock:
    """Monotonic, and continued by a resumed run where the earlier one stopped."""

    def __init__(self, started_at_s: float = 0.0) -> None:
        self._origin = time.monotonic() - started_at_s

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._origin
