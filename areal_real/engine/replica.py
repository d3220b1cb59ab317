"""One replica: a vLLM engine behind the contract of `interfaces.backend.RolloutEngine`."""
# ruff: noqa: ARG002

from collections.abc import Callable, Mapping
from pathlib import Path

from areal_real.clock import Clock
from areal_real.engine.config import EngineConfig
from areal_real.engine.usage import EngineUsage
from areal_real.tokens import TokenStore
from interfaces import actions
from interfaces.backend import Report
from interfaces.errors import TestbedError
from interfaces.rollout import PolicyVersion
from interfaces.telemetry import Span


class VllmReplica:
    """Generates under the version it last loaded; every outcome is an event given to `report`.

    All methods belong to one asyncio event loop. `on_error` is told what no event can say and the run cannot
    survive: a published file that does not fit the model, an engine that died too often.
    """

    def __init__(
        self,
        replica_id: int,
        config: EngineConfig,
        tokens: TokenStore,
        report: Report,
        clock: Clock,
        *,
        on_error: Callable[[TestbedError], None],
        span: Callable[[Span], None] | None = None,
    ) -> None:
        self.id = replica_id
        self.config = config

    async def start(self, version: PolicyVersion, weights: Path | None = None) -> None:
        """Serve this version; None: the weights of the model directory. No event is reported for it.

        Raises:
            EngineError: the engine does not start within its deadline.
            WeightFileError: the weights cannot be used for this model.
        """

    async def stop(self) -> None:
        """End the engine and everything that runs for it; no event is reported after this."""

    def generate(self, action: actions.Generate) -> None:
        """Start or resume a rollout; ends in RolloutFinished (no reward), RolloutAborted, RolloutFailed."""

    def abort(self, action: actions.Abort) -> None:
        """Take a rollout off; RolloutAborted follows unless it finished first. Unknown ids are ignored."""

    def load(self, action: actions.LoadWeights) -> None:
        """Interrupt, load, resume; WeightsLoaded follows, after the RolloutAborted of what it aborted."""

    def blame(self, cause: str) -> None:
        """From now on, idle time has this cause."""

    def usage(self) -> EngineUsage:
        """Totals up to now."""
        return EngineUsage()

    @property
    def checksums(self) -> Mapping[PolicyVersion, str]:
        """Checksum of what was loaded, by version; as `weight_file.Manifest.checksum`."""
        return {}
