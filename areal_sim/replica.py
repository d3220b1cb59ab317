"""One inference engine: continuous batching on a token clock.

A decode step is not an event. While the running set is the same, step i of n sequences with C context
tokens takes `base(n) + g * (C + i * n)` seconds, so k steps take
`k * (base + g * C) + g * n * k * (k - 1) / 2`: a closed form that is solved for the next completion. Work
that arrives in the middle of a step joins at its end, as in a real engine.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf, sqrt

import simpy

from areal_sim.cost.protocol import CostModel
from areal_sim.schedule import MECHANICS, call_later, priority_of
from areal_sim.sequence import Sequence
from areal_sim.usage import RolloutUsage, SpanSink
from interfaces import actions
from interfaces.actions import ABORTS, InFlight
from interfaces.backend import Report
from interfaces.events import RolloutAborted, RolloutFinished, WeightsLoaded
from interfaces.rollout import PolicyVersion, Segment
from interfaces.telemetry import Span

FINISH = priority_of(RolloutFinished)
OnFinished = Callable[["Replica", Sequence], None]


class Replica:
    """Simulates one engine; reports finished and aborted sequences through `on_finished` and `report`."""

    __slots__ = (
        "_base",
        "_clock",
        "_context",
        "_detail",
        "_due_clock",
        "_epoch",
        "_finishes",
        "_handling",
        "_joined",
        "_kv",
        "_kv_blocked_since",
        "_log_clock",
        "_log_version",
        "_next_at",
        "_per_context_token",
        "_prompts",
        "_span_from",
        "_time",
        "_timer_at",
        "away",
        "cost",
        "env",
        "id",
        "kv_capacity",
        "load_s",
        "max_num_seqs",
        "on_finished",
        "prefix_caching",
        "report",
        "running",
        "slowdown",
        "span",
        "state",
        "usage",
        "waiting",
    )

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
    ) -> None:
        self.env = env
        self.id = replica_id
        self.cost = cost
        self._base = [cost.decode_base_s(n) for n in range(max_num_seqs + 1)]
        self._per_context_token = cost.decode_per_context_token_s
        self.kv_capacity = kv_capacity_tokens
        self.max_num_seqs = max_num_seqs
        self.prefix_caching = prefix_caching
        self.usage = usage
        self.load_s = load_s
        self.report = report
        self.on_finished = on_finished
        self.span = span
        self.slowdown = 1.0
        self.state = "idle"
        self.running: dict[int, Sequence] = {}
        """In the order of joining: the last one is preempted first."""
        self.waiting: deque[Sequence] = deque()
        self.away: dict[int, Sequence] = {}
        """Rollouts whose tool works; they hold no KV here."""
        self._clock = 0
        """Decode steps so far."""
        self._time = 0.0
        """When the step that `_clock` counts last ended (or will end); may lie ahead of `env.now`."""
        self._context = 0
        """Context tokens of all running sequences."""
        self._kv = 0
        """KV cache in use, in tokens; a shared prompt counts once."""
        self._prompts: dict[int, int] = {}
        """Running sequences by prompt."""
        self._finishes: list[tuple[int, int, Sequence]] = []
        self._joined = 0
        self._log_clock = [0]
        self._log_version: list[PolicyVersion] = [0]
        self._due_clock = 0
        """Clock at which a sequence stops or the KV cache is full; never later than that."""
        self._next_at = inf
        """When the clock gets there."""
        self._timer_at = inf
        self._handling = False
        self._kv_blocked_since: float | None = None
        self._span_from = 0.0
        self._detail = ""
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
        sequence = self.running.get(rollout) or self.away.get(rollout)
        if sequence is None:
            sequence = next((s for s in self.waiting if s.rollout == rollout), None)
        if sequence is None or self._finishing(sequence):
            return
        self._remove(sequence)
        self.report(RolloutAborted(self.env.now, rollout, self.id, sequence.segments))

    def load(self, action: actions.LoadWeights) -> None:
        """Stop at the end of the running step, treat what is in flight, load, resume."""
        self._advance()
        self._report_finished()
        now = self.env.now
        stop = max(0.0, self._time - now) if self.running else 0.0
        exceptions = dict(action.exceptions)
        for sequence in (*self.running.values(), *self.waiting, *self.away.values()):
            if exceptions.get(sequence.rollout, action.in_flight) in ABORTS:
                self._remove(sequence)
                self.report(RolloutAborted(now, sequence.rollout, self.id, sequence.segments))
        self._enter("load", f"version {action.version}", after=stop)
        self._next_at = inf
        epoch = self._epoch
        call_later(
            self.env,
            stop + self.load_s(),
            priority_of(WeightsLoaded),
            lambda _: self._loaded(action.version, action.in_flight, exceptions, epoch),
        )

    # ---- failures and stops ---------------------------------------------------------------------------

    def die(self) -> None:
        """Lose everything at once."""
        self._advance()
        self._epoch += 1
        self._enter("down", "")
        self.running.clear()
        self.waiting.clear()
        self.away.clear()
        self._finishes.clear()
        self._prompts.clear()
        self._context = self._kv = 0
        self._next_at = inf
        self._note_kv_blocked()

    def revive(self, version: PolicyVersion) -> None:
        """Serve again, empty, with this version."""
        self._time = self.env.now
        self._log(version)
        self._enter("idle", "")

    def set_slowdown(self, factor: float) -> None:
        """Every step takes `factor` times as long from the end of the running step on."""
        self._advance()
        self.slowdown = factor
        self.settle()

    def pause(self, seconds: float) -> None:
        """Stand still for a stop-the-world phase, keeping all KV."""
        if self.state == "down":
            return
        self._advance()
        if self.state == "idle":
            self._enter("busy", "")
        start = self._time
        self._time += seconds
        self.usage.pause_s += seconds
        self._mark("evaluation", start, self._time, "")
        self.settle()
        if not self.running:
            call_later(self.env, self._time - self.env.now, MECHANICS, lambda _: self.settle())

    def start(self, version: PolicyVersion) -> None:
        """Begin the run with this version."""
        self._log_version[0] = version

    def account(self) -> None:
        """Book decoding up to now, for the totals; changes nothing else."""
        if self.state != "load":
            self._advance(partial=True)
        self._note_kv_blocked()

    # ---- the token clock ------------------------------------------------------------------------------

    def _advance(self, *, partial: bool = False) -> None:
        """Bring clock and contexts to the end of the step running now (`partial`: the last one that ended).

        Never past the next completion: that is the timer's to handle.
        """
        now = self.env.now
        n = len(self.running)
        if not n:
            self._time = max(self._time, now)
            return
        elapsed = now - self._time
        if elapsed <= 0.0 or self.state == "load":
            return
        first = (self._base[n] + self._per_context_token * self._context) * self.slowdown
        growth = self._per_context_token * n * self.slowdown / 2.0
        linear = first - growth
        if growth:
            steps = int((sqrt(linear * linear + 4.0 * growth * elapsed) - linear) / (2.0 * growth))
        else:
            steps = int(elapsed / linear)
        while steps * linear + growth * steps * steps < elapsed:
            steps += 1
        if partial:
            steps -= 1
        limit = self._due_clock - self._clock
        self._step(steps if steps < limit else limit)

    def _step(self, steps: int) -> None:
        """Run so many decode steps of the present batch."""
        if steps <= 0:
            return
        n = len(self.running)
        context_steps = steps * self._context + n * steps * (steps - 1) / 2
        self._time += (
            steps * self._base[n] + self._per_context_token * context_steps
        ) * self.slowdown  # fmt: skip
        tokens = n * steps
        self._clock += steps
        self._context += tokens
        self._kv += tokens
        usage = self.usage
        usage.generated_tokens += tokens
        usage.decode_steps += steps
        usage.context_token_steps += context_steps

    def _steps_to_next(self) -> int:
        """Decode steps until a sequence stops or the KV cache is full; a lone one runs on beyond it."""
        finishes = self._finishes
        while finishes[0][2].finish_clock != finishes[0][0]:
            heappop(finishes)
        steps = finishes[0][0] - self._clock
        n = len(self.running)
        room = (self.kv_capacity - self._kv) // n
        return steps if steps <= room or n == 1 else room

    def settle(self) -> None:
        """After any change: let waiting sequences join, then arm the timer for the next completion."""
        if not self._handling and self.state not in ("load", "down"):
            self._advance()
            self._resume()

    def _resume(self) -> None:
        if self.waiting:
            self._join_waiting()
        if not self.running:
            self._next_at = inf
            if self.state == "busy" and self._time <= self.env.now * (1.0 + 1e-9) + 1e-9:
                self._enter("idle", "")
            return
        n = len(self.running)
        steps = self._steps_to_next()
        self._due_clock = self._clock + steps
        context_steps = steps * self._context + n * steps * (steps - 1) / 2
        self._next_at = at = self._time + (
            steps * self._base[n] + self._per_context_token * context_steps
        ) * self.slowdown  # fmt: skip
        if at < self._timer_at:
            self._timer_at = at
            call_later(self.env, max(0.0, at - self.env.now), FINISH, self._on_timer)

    def _on_timer(self, _: object) -> None:
        """Something may be due: sequences stop, or the cache is full."""
        now = self.env.now
        if now < self._timer_at - 1e-9 * (1.0 + now):
            return  # a later timer that an earlier one replaced
        self._timer_at = inf
        due = self._next_at
        if due == inf:
            return
        if now < due - 1e-9 * (1.0 + now):
            self._timer_at = due
            call_later(self.env, due - now, FINISH, self._on_timer)
            return
        self._handling = True
        self._step(self._due_clock - self._clock)
        self._report_finished()
        if self.running and self._kv + len(self.running) > self.kv_capacity:
            self._preempt()
        self._handling = False
        if self.state == "busy":
            self._resume()

    # ---- joining and leaving --------------------------------------------------------------------------

    def _join_waiting(self) -> None:
        """Admit waiting sequences in order while slots and KV allow; their prefill delays everyone."""
        running = self.running
        if running and self._finishes[0][0] <= self._clock:
            return  # some are about to leave; the timer handles them first
        while self.waiting:
            if len(running) >= self.max_num_seqs:
                break
            sequence = self.waiting[0]
            shared = sequence.prompt_tokens if self._shares(sequence) else 0
            needed = sequence.context - shared
            if running and self._kv + needed + len(running) + 1 > self.kv_capacity:
                break
            self.waiting.popleft()
            self._join(sequence, needed, shared)
        if self.waiting or self._kv_blocked_since is not None:
            self._note_kv_blocked()

    def _shares(self, sequence: Sequence) -> bool:
        return self.prefix_caching and sequence.prompt in self._prompts

    def _join(self, sequence: Sequence, needed: int, shared: int) -> None:
        if self.state == "idle":
            self._enter("busy", "")
        if needed:
            self._prefill(
                needed, float(sequence.context) ** 2 - float(shared) ** 2, again=sequence.has_history
            )
        prompts = self._prompts
        prompts[sequence.prompt] = prompts.get(sequence.prompt, 0) + 1
        clock = self._clock
        sequence.start_clock = clock
        sequence.finish_clock = clock + sequence.pause_length() - sequence.done
        sequence.log_index = len(self._log_clock) - 1
        context = sequence.context
        self._context += context
        self._kv += needed
        self._joined += 1
        self.running[sequence.rollout] = sequence
        heappush(self._finishes, (sequence.finish_clock, self._joined, sequence))
        if sequence.first_token_at < 0.0:
            sequence.first_token_at = self._time

    def _leave(self, sequence: Sequence) -> None:
        """Take a running sequence out of the batch; its tokens so far become segments."""
        del self.running[sequence.rollout]
        sequence.finish_clock = -1
        tokens = self._clock - sequence.start_clock
        prompts = self._prompts
        left = prompts[sequence.prompt] - 1
        context = sequence.context + tokens
        self._context -= context
        if left and self.prefix_caching:
            prompts[sequence.prompt] = left
            self._kv -= context - sequence.prompt_tokens
        else:
            if left:
                prompts[sequence.prompt] = left
            else:
                del prompts[sequence.prompt]
            self._kv -= context
        if tokens:
            self._add_segments(sequence)
        sequence.context = context
        sequence.done += tokens

    def _add_segments(self, sequence: Sequence) -> None:
        """Book the tokens since the last (re)start under the versions that the replica had."""
        clocks, versions = self._log_clock, self._log_version
        start, index, last = sequence.start_clock, sequence.log_index, len(clocks) - 1
        new = []
        while index < last:
            index += 1
            end = clocks[index]
            if end > start:
                new.append(Segment(versions[index - 1], end - start))
                start = end
        if self._clock > start:
            new.append(Segment(versions[last], self._clock - start))
        old = sequence.segments
        if old and old[-1].version == new[0].version:
            new[0] = Segment(new[0].version, old[-1].tokens + new[0].tokens)
            old = old[:-1]
        sequence.segments = (*old, *new)

    def _remove(self, sequence: Sequence) -> None:
        """Forget a sequence wherever it is."""
        if sequence.rollout in self.running:
            self._leave(sequence)
        elif self.away.pop(sequence.rollout, None) is None:
            self.waiting.remove(sequence)

    def _finishing(self, sequence: Sequence) -> bool:
        return sequence.rollout in self.running and sequence.finish_clock <= self._clock

    def _report_finished(self) -> None:
        """Report every sequence whose end the clock has reached."""
        finishes, clock = self._finishes, self._clock
        stopped: list[Sequence] = []
        while finishes and finishes[0][0] <= clock:
            stop, _, sequence = heappop(finishes)
            if sequence.finish_clock == stop:
                self._leave(sequence)
                stopped.append(sequence)
        for sequence in stopped:
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

    def _preempt(self) -> None:
        """The cache is full: who joined last gives its KV up and waits to be computed again."""
        while len(self.running) > 1 and self._kv + len(self.running) > self.kv_capacity:
            sequence = next(reversed(self.running.values()))
            self._leave(sequence)
            self.waiting.appendleft(sequence)
            self.usage.preemptions += 1

    # ---- prefill, loads, bookkeeping ------------------------------------------------------------------

    def _prefill(self, tokens: int, squared: float, *, again: bool, sequences: int = 1) -> None:
        seconds = self.cost.prefill_s(tokens, squared, sequences) * self.slowdown
        start = self._time
        self._time = start + seconds
        usage = self.usage
        usage.prefilled_tokens += tokens
        if again:
            usage.recompute_s += seconds
            usage.recomputed_tokens += tokens
        else:
            usage.prefill_s += seconds
        if self.span is not None:
            self._mark("recompute" if again else "prefill", start, self._time, f"{tokens} tokens")

    def _loaded(
        self, version: PolicyVersion, in_flight: InFlight | None, exceptions: dict[int, InFlight], epoch: int
    ) -> None:
        if epoch != self._epoch:
            return
        now = self.env.now
        self._log(version)
        self._time = now
        self._enter("busy" if self.running else "idle", "")
        if self.running:
            self._recompute(in_flight, exceptions)
        self.report(WeightsLoaded(now, self.id, version))
        self.settle()

    def _recompute(self, in_flight: InFlight | None, exceptions: dict[int, InFlight]) -> None:
        """Prefill again the contexts whose KV was discarded, a prompt that they share once."""
        clock = self._clock
        prompts: set[int] = set()
        tokens = sequences = 0
        squared = 0.0
        for sequence in self.running.values():
            if exceptions.get(sequence.rollout, in_flight) is not InFlight.KEEP_RECOMPUTE:
                continue
            context = sequence.context + clock - sequence.start_clock
            shared = sequence.prompt_tokens if self.prefix_caching and sequence.prompt in prompts else 0
            prompts.add(sequence.prompt)
            sequences += 1
            tokens += context - shared
            squared += float(context) ** 2 - float(shared) ** 2
        if tokens:
            self._prefill(tokens, squared, again=True, sequences=sequences)

    def _log(self, version: PolicyVersion) -> None:
        if self._log_clock[-1] == self._clock:
            self._log_version[-1] = version
            return
        self._log_clock.append(self._clock)
        self._log_version.append(version)

    def _enter(self, state: str, detail: str, *, after: float = 0.0) -> None:
        """Change the state; the books give the next `after` seconds to the old one."""
        if state == self.state:
            return
        now = self.env.now
        if self.span is not None:
            self._close_span(now + after)
            self._detail = detail
        self.usage.move(now, self.state, state)
        if after:
            self.usage.postpone(self.state, state, after)
        self.state = state

    def _note_kv_blocked(self) -> None:
        """Book the time in which sequences wait although a slot is free: it is KV they lack."""
        now = self.env.now
        if self._kv_blocked_since is not None:
            self.usage.kv_blocked_s += now - self._kv_blocked_since
        blocked = bool(self.waiting) and self.state == "busy" and len(self.running) < self.max_num_seqs
        self._kv_blocked_since = now if blocked else None

    # ---- the timeline ---------------------------------------------------------------------------------

    def _mark(self, kind: str, start: float, end: float, detail: str) -> None:
        if self.span is None or end <= start:
            return
        self._close_span(start)
        self.span(Span(start, end, f"replica {self.id}", kind, detail))
        self._span_from = end

    def _close_span(self, now: float) -> None:
        """Emit the span of the present state up to now."""
        if self.span is None or now <= self._span_from:
            return
        kind = {"busy": "decode"}.get(self.state, self.state)
        detail = self.usage.cause if kind == "idle" else self._detail
        self.span(Span(self._span_from, now, f"replica {self.id}", kind, detail))
        self._span_from = now

    def cut_span(self) -> None:
        """Begin a new span here: the cause of idleness changes, or the run ends."""
        self._close_span(self.env.now)
