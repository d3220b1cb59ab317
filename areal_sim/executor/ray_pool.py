"""Where tasks run on a Ray cluster. The package must be installed on its machines; nothing else is shared."""

import os
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from areal_sim.executor.task import DEFECT, Outcome, Task, attempt_text
from interfaces.errors import TestbedError
from interfaces.scenario_file import to_json

AUTO = "auto"
"""The cluster that this machine belongs to, or else `LOCAL`."""
LOCAL = "local"
"""One started here, which ends with the command; on the loopback interface."""
RETRIES = 3
"""Times a task is started again after its worker or its machine died."""
_LOOK_S = 0.5


class RayError(TestbedError):
    """Ray is not there, or does not answer."""

    exit_code = 10


class RayPool:
    """Tasks as Ray tasks: one core each, tried again when their worker dies."""

    def __init__(self, address: str, workers: int | None = None) -> None:
        """Connect to `address`, `AUTO` or `LOCAL`; a cluster started here has so many workers.

        Raises:
            RayError: Ray is not installed, or there is no cluster at that address.
        """
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            import ray  # noqa: PLC0415 (takes a second, and is an extra)
        except ImportError:
            raise RayError("--ray: Ray is not installed; pip install 'areal-testbed[ray]'") from None
        self._ray: Any = ray
        self._connect(address, workers)
        self._attempt = ray.remote(num_cpus=1, max_retries=RETRIES)(attempt_text)

    def _connect(self, address: str, workers: int | None) -> None:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        try:
            if address != LOCAL:
                self._ray.init(address=address, **quiet)
                return
        except (ConnectionError, ValueError, RuntimeError) as error:
            if address != AUTO:
                reason = str(error).splitlines()[0]
                raise RayError(
                    f"--ray: no Ray cluster at {address!r}: {reason}; start one with `ray start --head`, "
                    "or leave the address out"
                ) from None
        self._ray.init(
            address=LOCAL, num_cpus=workers, include_dashboard=False, _node_ip_address="127.0.0.1", **quiet
        )

    def __enter__(self) -> "RayPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ray.shutdown()

    def results(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Outcome]]:
        """See `Pool`. Traces are not written: the machines may share no disk."""
        place = {self._attempt.remote(to_json(task.resolved)): index for index, task in enumerate(tasks)}
        pending = list(place)
        while pending:
            finished, pending = self._ray.wait(pending, num_returns=1, timeout=_LOOK_S)
            for reference in finished:
                yield place[reference], self._outcome(reference)

    def _outcome(self, reference: Any) -> Outcome:
        try:
            return Outcome(*self._ray.get(reference))
        except self._ray.exceptions.RayError as error:
            reason = str(error).splitlines()[0]
            return Outcome(None, f"its Ray worker died {RETRIES + 1} times: {reason}", DEFECT)
