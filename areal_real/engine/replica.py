"""One replica: a vLLM engine behind the contract of `interfaces.backend.RolloutEngine`."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from areal_real.clock import Clock
from areal_real.engine import launch
from areal_real.engine.background import Background
from areal_real.engine.config import EngineConfig
from areal_real.engine.errors import EngineError
from areal_real.engine.live import EngineDiedError, LiveEngine
from areal_real.engine.meter import Meter
from areal_real.engine.roster import Roster
from areal_real.engine.shelf import Shelf
from areal_real.engine.usage import EngineUsage
from areal_real.tokens import TokenStore
from areal_real.weight_file import WeightFileError
from interfaces import actions
from interfaces.actions import ABORTS, InFlight
from interfaces.backend import Report
from interfaces.errors import TestbedError
from interfaces.events import Event, ReplicaDown, ReplicaUp, RolloutFinished, WeightsLoaded
from interfaces.rollout import PolicyVersion
from interfaces.telemetry import Span

WATCH_PERIOD_S = 1.0
SALVAGE_S = 5.0
"""Longest time to collect what rollouts have, before an engine that misbehaves is ended."""
MAX_FAILED_LOADS = 2
"""Of one version."""


class VllmReplica:
    """Generates under the version it last loaded; every outcome is an event given to `report`.

    All methods belong to one asyncio event loop. `on_error` is told what no event can say and the run cannot
    survive: a published file that does not fit the model, an engine that died too often. An engine that dies
    or hangs is started again with the weights it had: `ReplicaDown`, then `ReplicaUp`.
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
        self.version: PolicyVersion = -1
        self._report = report
        self._clock = clock
        self._on_error = on_error
        self._meter = Meter(clock.now, f"replica {replica_id}", config.max_num_seqs, span)
        self._background = Background(self._internal_error)
        self._roster = Roster(
            replica=replica_id,
            config=config,
            tokens=tokens,
            report=self._tell,
            clock=clock,
            meter=self._meter,
            background=self._background,
            died=self._died,
        )
        self._shelf = Shelf(config)
        self._engine: LiveEngine | None = None
        self._weights: Path | None = None
        """File that the engine's weights come from; None: the model directory."""
        self._restarts = 0
        self._one_load = asyncio.Lock()
        self._failed_loads: dict[PolicyVersion, int] = {}
        self._stopped = False

    # ---- life ------------------------------------------------------------------------------------------

    async def start(self, version: PolicyVersion, weights: Path | None = None) -> None:
        """Serve this version; None: the weights of the model directory. No event is reported for it.

        Raises:
            EngineError: the engine does not start within its deadline, or dies at once.
            WeightFileError: the weights cannot be used for this model.
        """
        await self._shelf.open()
        engine = LiveEngine(
            await launch.launch(self.config, self.id, self._meter.step),
            self.config,
        )
        try:
            await engine.join(self.config.transfer)
            if weights is None:
                await engine.name_version(version)
            else:
                manifest = await self._shelf.checked(weights, version)
                await engine.pause(clear_cache=True)
                await self._shelf.install(engine, weights, manifest, version)
                await engine.resume()
        except BaseException as error:
            await engine.end()
            if isinstance(error, TestbedError) or not isinstance(error, Exception):
                raise
            raise EngineError(
                self.id, f"did not take version {version} ({error})", "look at its messages"
            ) from error
        self._engine, self.version, self._weights = engine, version, weights
        self._meter.serving()
        self._roster.open(engine)
        self._background.spawn(self._watch(engine))

    async def stop(self) -> None:
        """End the engine and everything that runs for it; no event is reported after this."""
        self._stopped = True
        self._roster.close()
        self._roster.lose_all()
        await self._background.cancel_all()
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.end()
        self._meter.down()

    # ---- contract --------------------------------------------------------------------------------------

    def generate(self, action: actions.Generate) -> None:
        """Start or resume a rollout; ends in RolloutFinished (no reward), RolloutAborted, RolloutFailed."""
        self._roster.add(action)

    def abort(self, action: actions.Abort) -> None:
        """Take a rollout off; RolloutAborted follows unless it finished first. Unknown ids are ignored."""
        flight = self._roster.flights.get(action.rollout)
        if flight is not None:
            self._background.spawn(self._roster.take_off([flight]))

    def load(self, action: actions.LoadWeights) -> None:
        """Interrupt, load, resume; WeightsLoaded follows, after the RolloutAborted of what it aborted."""
        self._background.spawn(self._load_in_turn(action))

    def blame(self, cause: str) -> None:
        """From now on, idle time has this cause."""
        self._meter.blame(cause)

    def usage(self) -> EngineUsage:
        """Totals up to now."""
        return self._meter.usage()

    @property
    def checksums(self) -> Mapping[PolicyVersion, str]:
        """Checksum of what was loaded from files, by version; as `weight_file.Manifest.checksum`."""
        return self._shelf.loaded

    @property
    def busy(self) -> bool:
        """Whether it holds rollouts."""
        return bool(self._roster.flights)

    @property
    def pids(self) -> tuple[int, ...]:
        """Processes of the engine, its own first; empty while there is none."""
        return tuple(process.pid for process in self._engine.processes) if self._engine else ()

    # ---- weights ---------------------------------------------------------------------------------------

    async def _load_in_turn(self, action: actions.LoadWeights) -> None:
        """The next load may be asked for as soon as one is told of, before generation goes on."""
        async with self._one_load:
            await self._load(action)

    async def _load(self, action: actions.LoadWeights) -> None:
        engine = self._engine
        if engine is None:  # it died since: ReplicaDown has answered, or will
            return
        path = self._shelf.path(action.version)
        try:
            manifest = await self._shelf.checked(path, action.version)
        except WeightFileError as error:
            self._on_error(error)
            return
        if engine is not self._engine:
            return
        try:
            clear = await self._interrupt(action, engine)
            if engine is not self._engine:
                return
            self._meter.loading(action.version, recompute=clear)
            await engine.pause(clear_cache=clear)
            await self._shelf.install(engine, path, manifest, action.version)
            self.version, self._weights = action.version, path
            if not clear:
                self._roster.forbid_old_cache()
            # told before generation goes on: a rollout that ends at once may have tokens of this version
            self._tell(WeightsLoaded(self._clock.now(), self.id, action.version))
            await engine.resume()
        except EngineDiedError as error:
            self._died(engine, str(error))
        except Exception as error:
            self._load_failed(engine, action.version, error)
        else:
            self._failed_loads.clear()
            self._meter.serving()
            self._roster.open(engine)

    async def _interrupt(self, action: actions.LoadWeights, engine: LiveEngine) -> bool:
        """Take off what does not stay. Returns whether all KV is to be dropped.

        vLLM keeps all KV or none. Where some rollouts keep it and others do not, those others are taken off
        and given to the engine again; so are those that wait for their first token when KV is kept, since
        they would find the prompt's KV of the old weights.
        """
        self._roster.close()
        exceptions = dict(action.exceptions)
        flights = list(self._roster.flights.values())
        intents = {flight.action.rollout: exceptions.get(flight.action.rollout, action.in_flight)
                   for flight in flights}  # fmt: skip
        await self._roster.take_off(f for f in flights if intents[f.action.rollout] in ABORTS)
        stay = list(self._roster.flights.values())
        stale = [f for f in stay if intents.get(f.action.rollout) is InFlight.KEEP_STALE]
        if not stale:
            return True
        await self._roster.recompute(f for f in stay if f not in stale or not engine.started(f.request_id))
        return False

    def _load_failed(self, engine: LiveEngine, version: PolicyVersion, error: Exception) -> None:
        failures = self._failed_loads[version] = self._failed_loads.get(version, 0) + 1
        what = f"loading version {version} failed ({type(error).__name__}: {error})"
        self._died(engine, what)
        if failures >= MAX_FAILED_LOADS:
            self._on_error(EngineError(self.id, f"{what}, {failures} times", "check the published weights"))

    # ---- death -----------------------------------------------------------------------------------------

    async def _watch(self, engine: LiveEngine) -> None:
        while engine is self._engine:
            try:
                await engine.answer()
            except EngineDiedError as error:
                self._died(engine, str(error))
                return
            await asyncio.sleep(WATCH_PERIOD_S)

    def _died(self, engine: LiveEngine, reason: str) -> None:
        """Replace an engine that died or misbehaves, once, whoever noticed it first."""
        if engine is self._engine and not self._stopped:
            self._engine = None
            self._roster.close()
            self._background.spawn(self._replace(engine, reason))

    async def _replace(self, engine: LiveEngine, reason: str) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._roster.take_off(self._roster.flights.values()), SALVAGE_S)
        self._roster.lose_all()
        await engine.end()
        self._roster.lose_all()  # what was given to it meanwhile: nobody knew yet
        self._meter.down()
        self._tell(ReplicaDown(self._clock.now(), self.id, reason))
        while self._engine is None:
            self._restarts += 1
            if self._restarts > self.config.max_restarts:
                what = f"died {self._restarts} times without finishing a rollout, last because: {reason}"
                self._on_error(EngineError(self.id, what, "look at the engine's own messages"))
                return
            try:
                await self.start(self.version, self._weights)
            except EngineError as error:
                reason = error.what
        self._tell(ReplicaUp(self._clock.now(), self.id, self.version))

    def _tell(self, event: Event) -> None:
        if isinstance(event, RolloutFinished):
            self._restarts = 0
        if not self._stopped:
            self._report(event)

    def _internal_error(self, error: BaseException) -> None:
        if not isinstance(error, TestbedError):
            error = EngineError(
                self.id, f"{type(error).__name__}: {error}", "this is a defect; please report it"
            )
        self._on_error(error)
