"""One inference engine: a waiting queue in front of a running batch, interrupted by weight loads.

Work that arrives in the middle of a decode step joins at its end, as in a real engine.
"""

from collections import deque
from collections.abc import Callable, Iterable
from math import inf

import simpy
from simpy.events import Event as SimPyEvent

from areal_sim.cost.protocol import CostModel
from areal_sim.decode_batch import DecodeBatch
from areal_sim.schedule import MECHANICS, Alarm, call_later, priority_of
from areal_sim.sequence import Sequence
from areal_sim.track import Track
from areal_sim.usage import RolloutUsage, SpanSink
from interfaces import actions
from interfaces.actions import ABORTS, InFlight
from interfaces.backend import Report
from interfaces.events import EngineLoad, RolloutAborted, RolloutFinished, WeightsLoaded
from interfaces.rollout import PolicyVersion

FINISH = priority_of(RolloutFinished)
OnFinished = Callable[["Replica", Sequence], None]
EPSILON = 1e-9
"""Relative error of the event clock that counts as the same instant."""


class Replica:
    """Simulates one engine; reports finished and aborted sequences through `on_finished` and `report`."""

    __slots__ = (
        "_epoch", "_handling", "_kv_blocked_since", "_owed_pause_s", "_timer", "_timer_at", "away", "batch",
        "cost", "env", "id", "load_s", "max_num_seqs", "on_finished", "report", "state", "tells_load",
        "track", "usage", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        env: simpy.Environment,
        replica_id: int,
        cost: CostModel,
        *,
        kv_capacity_tokens: int,
        max_num_seqs: int,
        prefix_caching: bool,
        usage: RolloutUsage,
        load_s: Callable[[], float],
        report: Report,
        on_finished: OnFinished,
        span: SpanSink | None,
        tells_load: bool = False,
    ) -> None:
        self.env = env
        self.id = replica_id
        self.cost = cost
        self.batch = DecodeBatch(cost, kv_capacity_tokens, max_num_seqs, prefix_caching=prefix_caching)
        self.max_num_seqs = max_num_seqs
        self.usage = usage
        self.load_s = load_s
        self.report = report
        self.on_finished = on_finished
        self.tells_load = tells_load
        """Whether the policy reads how full it is."""
        self.track = Track(f"replica {replica_id}", span)
        self.track.detail = usage.cause
        self.state = "idle"
        self.waiting: deque[Sequence] = deque()
        self.away: dict[int, Sequence] = {}
        """Rollouts whose tool works; they hold no KV here."""
        self._timer = Alarm(env, FINISH, self._on_timer)
        self._timer_at = inf
        self._handling = False
        self._kv_blocked_since: float | None = None
        self._owed_pause_s = 0.0
        """A pause that waits for the end of a load."""
        self._epoch = 0
        """Rises at death, so that callbacks of an earlier life do nothing."""

    # ---- what the core asks for -----------------------------------------------------------------------

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence; it joins the batch at the end of the running step, if there is room.

        Nothing happens before `settle`: many that come at once join at once.
        """
        self.waiting.append(sequence)

    def abort(self, rollout: int) -> None:
        """Take a rollout off at the end of the running step, unless it has finished by then."""
        self._advance()
        sequence = self.batch.running.get(rollout) or self.away.get(rollout)
        if sequence is None:
            sequence = next((s for s in self.waiting if s.rollout == rollout), None)
        if sequence is None or 0 <= sequence.finish_clock <= self.batch.clock:
            return
        self._remove(sequence)
        self.report(RolloutAborted(self.env.now, rollout, self.id, sequence.segments))

    def load(self, action: actions.LoadWeights) -> None:
        """Stop at the end of the running step, treat what is in flight, load, resume."""
        self._advance()
        self._report_stopped()
        now = self.env.now
        stop = max(0.0, self.batch.time - now)
        exceptions = dict(action.exceptions)
        held: Iterable[Sequence] = ()
        if exceptions or action.in_flight in ABORTS:
            held = (*self.batch.running.values(), *self.waiting, *self.away.values())
        for sequence in held:
            if exceptions.get(sequence.rollout, action.in_flight) in ABORTS:
                self._remove(sequence)
                self.report(RolloutAborted(now, sequence.rollout, self.id, sequence.segments))
        self._enter("load", f"version {action.version}", after=stop)
        self.batch.due_at = inf
        epoch = self._epoch
        call_later(
            self.env,
            stop + self.load_s(),
            priority_of(WeightsLoaded),
            lambda _: self._loaded(action.version, action.in_flight, exceptions, epoch),
        )

    # ---- failures, stops, books -----------------------------------------------------------------------

    def die(self) -> int:
        """Lose everything at once; returns the response tokens that are gone."""
        self._advance()
        clock = self.batch.clock
        lost = sum(clock - sequence.start_clock for sequence in self.batch.running.values())
        held = (*self.batch.running.values(), *self.waiting, *self.away.values())
        lost += sum(sequence.lost_tokens for sequence in held)
        self._epoch += 1
        self._enter("down", "")
        self.batch.clear()
        self.waiting.clear()
        self.away.clear()
        self.batch.due_at = inf
        self._owed_pause_s = 0.0
        self._note_kv_blocked()
        return lost

    def revive(self, version: PolicyVersion) -> None:
        """Serve again, empty, with this version."""
        self.batch.time = self.env.now
        self.batch.serve(version)
        self._enter("idle", self.usage.cause)

    def set_slowdown(self, factor: float) -> None:
        """Every step takes `factor` times as long from the end of the running step on."""
        self._advance()
        self.batch.slowdown = factor
        self.settle()

    def pause(self, seconds: float) -> None:
        """Stand still for a stop-the-world phase, keeping all KV; after a load, if one is under way."""
        if self.state == "load":
            self._owed_pause_s += seconds
        elif self.state != "down":
            self._advance()
            self._stand_still(seconds)
            self.settle()

    def _stand_still(self, seconds: float) -> None:
        batch = self.batch
        self._enter("busy", "")
        start = batch.time
        batch.time += seconds
        self.usage.pause_s += seconds
        self.track.mark("evaluation", start, batch.time, "")
        if not batch.running:
            call_later(self.env, batch.time - self.env.now, MECHANICS, lambda _: self.settle())

    def tell_load(self) -> None:
        """Report how full it is; for policies that read it."""
        if self.state != "down":
            self._tell_load(0)

    def _tell_load(self, preemptions: int) -> None:
        if self.tells_load:
            batch = self.batch
            load = EngineLoad(self.env.now, self.id, batch.kv, batch.kv_capacity, preemptions)
            self.report(load)

    def account(self) -> None:
        """Book decoding up to now, for the totals; changes nothing else."""
        if self.state != "load":
            self.batch.advance(self.env.now, partial=True)
        self._note_kv_blocked()

    # ---- the clock ------------------------------------------------------------------------------------

    def _advance(self) -> None:
        if self.state != "load":
            self.batch.advance(self.env.now)

    def settle(self) -> None:
        """After any change: let waiting sequences join, then set the timer for what is due next."""
        if not self._handling and self.state not in ("load", "down"):
            now = self.env.now
            self.batch.advance(now)
            self._resume(now)

    def _resume(self, now: float) -> None:
        batch = self.batch
        if self.waiting:
            self._join_waiting()
        if batch.running:
            at = batch.plan()
            if at < self._timer_at:
                self._set_timer(at, now)
        else:
            batch.due_at = inf
            if self.state == "busy" and batch.time <= now + EPSILON * (1.0 + now):
                self._enter("idle", self.usage.cause)

    def _set_timer(self, at: float, now: float) -> None:
        """Look again at this time; an earlier timer that is still to come does nothing."""
        if self._timer_at < inf:
            self._timer = Alarm(self.env, FINISH, self._on_timer)
        self._timer_at = at
        self._timer.set(at - now if at > now else 0.0)

    def _on_timer(self, timer: SimPyEvent) -> None:
        """Something may be due: sequences stop, or the cache is full."""
        if timer is not self._timer:
            return
        self._timer_at = inf
        now = self.env.now
        batch = self.batch
        due = batch.due_at
        if due > now + EPSILON * (1.0 + now):
            if due < inf:
                self._set_timer(due, now)
            return
        self._handling = True
        batch.run_to_due()
        self._report_stopped()
        if batch.kv + len(batch.running) > batch.kv_capacity and batch.running:
            preempted = batch.preempt()
            self.waiting.extendleft(preempted)
            self.usage.preemptions += len(preempted)
            self._tell_load(len(preempted))
        self._handling = False
        if self.state == "busy":
            self._resume(now)

    # ---- joining and leaving --------------------------------------------------------------------------

    def _join_waiting(self) -> None:
        """Admit waiting sequences in order while slots and KV allow; their prefill delays everyone.

        Those that join at one moment are prefilled together, as engines do it.
        """
        batch, waiting = self.batch, self.waiting
        if batch.running and batch.stops_now():
            return  # some are about to leave; the timer handles them first
        joined: list[Sequence] = []
        fresh, again = [0, 0, 0], [0, 0, 0]
        while waiting and len(batch.running) < self.max_num_seqs:
            sequence = waiting[0]
            shared = batch.shared_tokens(sequence)
            new = sequence.context - shared
            if not batch.fits(new):
                break
            waiting.popleft()
            if sequence.kv_kept:
                sequence.kv_kept = False
            elif new:
                work = again if sequence.has_history else fresh
                work[0] += new
                work[1] += sequence.context * sequence.context - shared * shared
                work[2] += 1
            batch.join(sequence, new)
            joined.append(sequence)
        if joined:
            self._prefill_joined(joined, fresh, again)
        if waiting or self._kv_blocked_since is not None:
            self._note_kv_blocked()

    def _prefill_joined(self, joined: list[Sequence], fresh: list[int], again: list[int]) -> None:
        """Prefill tokens, squared tokens and sequences of both kinds."""
        if self.state == "idle":
            self._enter("busy", "")
        for (tokens, squared, sequences), is_again in ((again, True), (fresh, False)):
            if tokens:
                self._prefill(tokens, float(squared), again=is_again, sequences=sequences)
        for sequence in joined:
            if sequence.first_token_at < 0.0:
                sequence.first_token_at = self.batch.time

    def _remove(self, sequence: Sequence) -> None:
        """Forget a sequence wherever it is."""
        if sequence.rollout in self.batch.running:
            self.batch.leave(sequence)
        elif self.away.pop(sequence.rollout, None) is None:
            self.waiting.remove(sequence)

    def _report_stopped(self) -> None:
        """Report every sequence whose end the clock has reached."""
        for sequence in self.batch.pop_stopped():
            if sequence.done >= sequence.total:
                self.on_finished(self, sequence)
            elif sequence.stops and sequence.done >= sequence.stops[-1].length:
                self._call_tool(sequence)
            else:
                self.report(RolloutAborted(self.env.now, sequence.rollout, self.id, sequence.segments))

    def _call_tool(self, sequence: Sequence) -> None:
        """A turn is over: come back with the tool's tokens when it is done."""
        assert sequence.stops, "no tool to call"
        call = sequence.stops.pop()
        self.away[sequence.rollout] = sequence
        epoch = self._epoch

        def back(_: object) -> None:
            if epoch == self._epoch and self.away.pop(sequence.rollout, None) is not None:
                sequence.context += call.tokens
                self.submit(sequence)
                self.settle()

        call_later(self.env, call.time_s, MECHANICS, back)

    # ---- prefill and loads ----------------------------------------------------------------------------

    def _prefill(self, tokens: int, squared: float, *, again: bool, sequences: int) -> None:
        batch, usage = self.batch, self.usage
        seconds = self.cost.prefill_s(tokens, squared, sequences) * batch.slowdown
        start = batch.time
        batch.time = start + seconds
        usage.prefilled_tokens += tokens
        if again:
            usage.recompute_s += seconds
            usage.recomputed_tokens += tokens
        else:
            usage.prefill_s += seconds
        self.track.mark("recompute" if again else "prefill", start, batch.time, f"{tokens} tokens")

    def _loaded(
        self, version: PolicyVersion, in_flight: InFlight | None, exceptions: dict[int, InFlight], epoch: int
    ) -> None:
        if epoch != self._epoch:
            return
        now = self.env.now
        self.batch.serve(version)
        self.batch.time = now
        if self.batch.running:
            self._enter("busy", "")
            self._recompute(in_flight, exceptions)
        else:
            self._enter("idle", self.usage.cause)
        if self._owed_pause_s:
            self._stand_still(self._owed_pause_s)
            self._owed_pause_s = 0.0
        self.report(WeightsLoaded(now, self.id, version))
        self.settle()

    def _recompute(self, in_flight: InFlight | None, exceptions: dict[int, InFlight]) -> None:
        """Prefill again the contexts whose KV was discarded, a prompt that they share once."""
        batch = self.batch
        clock, caching, recompute = batch.clock, batch.prefix_caching, InFlight.KEEP_RECOMPUTE
        prompts: set[int] = set()
        tokens = sequences = squared = 0
        for sequence in batch.running.values():
            if exceptions.get(sequence.rollout, in_flight) is not recompute:
                continue
            context = sequence.context + clock - sequence.start_clock
            sequences += 1
            tokens += context
            squared += context * context
            if not caching:
                continue
            if sequence.prompt in prompts:
                shared = sequence.prompt_tokens
                tokens -= shared
                squared -= shared * shared
            else:
                prompts.add(sequence.prompt)
        if tokens:
            self._prefill(tokens, float(squared), again=True, sequences=sequences)

    # ---- state ----------------------------------------------------------------------------------------

    def _enter(self, state: str, detail: str, *, after: float = 0.0) -> None:
        """Change the state; the books give the next `after` seconds to the old one."""
        if state == self.state:
            return
        now = self.env.now
        self.track.enter(now + after, "decode" if state == "busy" else state, detail)
        self.usage.move(now, self.state, state)
        if after:
            self.usage.postpone(self.state, state, after)
        self.state = state

    def _note_kv_blocked(self) -> None:
        """Book the time in which sequences wait although a slot is free: it is KV they lack."""
        now = self.env.now
        if self._kv_blocked_since is not None:
            self.usage.kv_blocked_s += now - self._kv_blocked_since
        slot = len(self.batch.running) < self.max_num_seqs
        blocked = bool(self.waiting) and self.state == "busy" and slot
        self._kv_blocked_since = now if blocked else None
