"""The rollouts that one replica holds, from `Generate` to the event that ends them."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from areal_real.clock import Clock
from areal_real.engine.background import Background
from areal_real.engine.config import EngineConfig
from areal_real.engine.flight import Flight, sampling
from areal_real.engine.live import EngineDiedError, LiveEngine
from areal_real.engine.meter import Meter
from areal_real.tokens import TokenStore
from interfaces.actions import Generate
from interfaces.backend import Report
from interfaces.errors import ProtocolError
from interfaces.events import RolloutAborted, RolloutFailed, RolloutFinished

ABORT_AGAIN_S = 0.05
"""An abort that comes before its request reached the engine is lost; so it is repeated."""


class Roster:
    """Gives rollouts to the engine while that is open, and reports what becomes of each, exactly once."""

    def __init__(
        self, *, replica: int, config: EngineConfig, tokens: TokenStore, report: Report, clock: Clock,
        meter: Meter, background: Background, died: Callable[[LiveEngine, str], None],
    ) -> None:  # fmt: skip
        self.flights: dict[int, Flight] = {}
        self._replica = replica
        self._config = config
        self._tokens = tokens
        self._report = report
        self._clock = clock
        self._meter = meter
        self._background = background
        self._died = died
        self._engine: LiveEngine | None = None
        self._gate = asyncio.Event()
        self._landed = asyncio.Event()
        self._salt = 0

    def open(self, engine: LiveEngine) -> None:
        """From now on this engine takes rollouts."""
        self._engine = engine
        self._gate.set()

    def close(self) -> None:
        """No submissions until `open`."""
        self._gate.clear()

    def forbid_old_cache(self) -> None:
        """The weights changed and KV stayed: no rollout submitted from now on may find KV of before."""
        self._salt += 1

    def add(self, action: Generate) -> None:
        """Take a rollout.

        Raises:
            ProtocolError: it is here already, or has another number of tokens than the core believes.
        """
        if action.rollout in self.flights:
            raise ProtocolError(f"rollout {action.rollout} was given to replica {self._replica} twice")
        if not action.resume_tokens:
            self._tokens.restart(action.rollout)
        before = self._tokens.trajectory(action.rollout, action.prompt)
        if len(before.response_ids) != action.resume_tokens:
            raise ProtocolError(
                f"rollout {action.rollout} is to be resumed after {action.resume_tokens} tokens, "
                f"{len(before.response_ids)} are stored"
            )
        flight = Flight(action, tuple(before.prompt_ids), tuple(before.response_ids))
        self.flights[action.rollout] = flight
        flight.task = self._background.spawn(self._fly(flight))

    async def take_off(self, flights: Iterable[Flight]) -> None:
        """Abort; on return each was reported, by its abort or by an end that came first."""
        flights = list(flights)
        await self._land(flights)
        for flight in flights:
            if self.flights.get(flight.action.rollout) is flight:  # it waits to be given to the engine
                flight.task.cancel()
                self._end(flight, "abort")

    async def recompute(self, flights: Iterable[Flight]) -> None:
        """Take off and give to the engine again once it is open, with all its KV to be computed anew."""
        flights = [flight for flight in flights if flight.request_id]
        for flight in flights:
            flight.again = True
        await self._land(flights)

    async def _land(self, flights: list[Flight]) -> None:
        while ids := [flight.request_id for flight in flights if flight.request_id]:
            assert self._engine is not None
            self._landed.clear()
            await self._engine.abort(ids)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._landed.wait(), ABORT_AGAIN_S)

    def lose_all(self) -> None:
        """Forget every rollout without a report: `ReplicaDown` speaks for them."""
        for flight in self.flights.values():
            flight.task.cancel()
        self.flights.clear()
        self._engine = None

    async def _fly(self, flight: Flight) -> None:
        reason = ""
        while not reason:
            await self._gate.wait()
            engine = self._engine
            assert engine is not None
            try:
                reason = await self._submit(flight, engine)
            except EngineDiedError as error:
                self._died(engine, str(error))
                return
            except Exception as error:  # a request that vLLM refuses does not hurt the engine
                self._fail(flight, f"{type(error).__name__}: {error}")
                return
            if engine.dead:
                self._died(engine, "the engine process died")
            if flight.again and reason == "abort":
                flight.again, reason = False, ""
        self._end(flight, reason)

    async def _submit(self, flight: Flight, engine: LiveEngine) -> str:
        """Generate once; returns why it ended, in vLLM's words."""
        action = flight.action
        flight.submissions += 1
        flight.request_id = f"{action.rollout}-{flight.submissions}"
        context = flight.context
        resumed = len(context) > len(flight.prompt_ids)
        self._meter.submitted(len(context), resumed=resumed)
        length = len(context)
        try:
            output = await engine.submit(
                flight.request_id, context, str(self._salt), sampling(flight, self._config)
            )
            self._note_first_token(flight, output)
            flight.generated.take(output.outputs[0])
            length = len(flight.context)
            return str(output.outputs[0].finish_reason)
        finally:
            self._meter.ended(length)
            flight.request_id = ""
            self._landed.set()

    def _note_first_token(self, flight: Flight, output: Any) -> None:
        stamp = getattr(output.metrics, "first_token_ts", 0.0)
        if flight.first_token_at is None and stamp:
            now = self._clock.now()
            flight.first_token_at = min(now, stamp + LiveEngine.clock_offset_s(now))

    def _end(self, flight: Flight, reason: str) -> None:
        """Store the tokens, then report."""
        action, new = flight.action, flight.generated
        self.flights.pop(action.rollout)
        full = flight.full(self._config)
        finished = reason == "stop" or (reason == "length" and full)
        if not finished and reason not in ("length", "abort"):
            self._report(RolloutFailed(self._clock.now(), action.rollout, self._replica, reason))
            return
        self._tokens.extend(action.rollout, new.ids, new.logprobs, new.versions, ended=reason == "stop")
        now = self._clock.now()
        if finished:
            first = now if flight.first_token_at is None else flight.first_token_at
            self._report(
                RolloutFinished(
                    now, action.rollout, self._replica, len(flight.prompt_ids), new.segments, first, None
                )
            )
        else:
            self._report(RolloutAborted(now, action.rollout, self._replica, new.segments))

    def _fail(self, flight: Flight, reason: str) -> None:
        self.flights.pop(flight.action.rollout)
        self._report(RolloutFailed(self._clock.now(), flight.action.rollout, self._replica, reason))
