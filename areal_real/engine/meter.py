"""Where the time of one replica goes, from what vLLM says after every engine step.

A step that only decodes takes so long; what a step takes longer than the last of those, although it also
prefills, is prefill. Prefill is recomputation where the KV had been there before: after an interruption, a
preemption, or when a rollout is resumed.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from areal_real.engine.usage import EngineUsage
from interfaces.telemetry import Span


@dataclass(frozen=True, slots=True)
class Step:
    """One engine step."""

    new_tokens: int
    """Tokens that came out."""
    decoding: int
    """Sequences that had tokens before."""
    first_prefill_tokens: int
    """Prefilled for sequences without tokens (of this submission)."""
    again_tokens: int
    """Prefilled again, for sequences that had tokens: all they computed beyond one token each."""
    running: int
    waiting: int
    preempted: int


class Meter:
    """Books the time between two calls under what the replica did in it."""

    def __init__(
        self, now: Callable[[], float], track: str, max_num_seqs: int, span: Callable[[Span], None] | None
    ) -> None:
        self._now = now
        self._track = track
        self._max_num_seqs = max_num_seqs
        self._span = span
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._state = "idle"
        """"idle", "busy", "load" or "down"."""
        self._cause = self._detail = "starting"
        self._since = self._span_from = now()
        self._span_kind = ""
        self._decode_step_s: float | None = None
        self._generated = self._prefilled = self._recomputed = self._steps = self._preemptions = 0
        self._context_token_steps = self._kv_blocked_s = 0.0
        self._sequences = 0
        """Submitted and not ended."""
        self._context = 0
        """Their tokens."""
        self._resumed = 0
        """Tokens of resumed sequences that are still to be prefilled again."""
        self._forced = 0
        """Preemptions that a weight load asked for and that vLLM has yet to report."""
        self._running = 0

    def submitted(self, context_tokens: int, *, resumed: bool) -> None:
        """A sequence was given to the engine."""
        self._sequences += 1
        self._context += context_tokens
        self._resumed += context_tokens if resumed else 0
        if self._state == "idle":
            self._enter("busy", "")

    def ended(self, context_tokens: int) -> None:
        """A sequence of so many tokens, response included, left the engine."""
        self._sequences = max(0, self._sequences - 1)
        self._context = max(0, self._context - context_tokens) if self._sequences else 0
        if self._state == "busy" and not self._sequences:
            self._resumed = 0
            self._enter("idle", self._cause)

    def step(self, step: Step) -> None:
        """The engine finished a step."""
        now = self._now()
        elapsed = now - self._since if self._state == "busy" else 0.0
        again = min(self._resumed, step.first_prefill_tokens)
        self._resumed -= again
        recomputed = again + step.again_tokens
        prefilled = step.first_prefill_tokens - again
        decode_s = self._decode_share(step, elapsed, recomputed + prefilled)
        rest = elapsed - decode_s
        share = recomputed / (recomputed + prefilled) if recomputed + prefilled else 0.0
        for kind, seconds in (
            ("decode", decode_s), ("recompute", rest * share), ("prefill", rest * (1 - share))
        ):  # fmt: skip
            self._seconds[kind] += seconds
        self._count(step, prefilled, recomputed)
        if step.waiting and step.running < self._max_num_seqs:
            self._kv_blocked_s += elapsed
        self._running = step.running
        if self._state != "busy":  # news of a step that ended before the state changed
            return
        kind = "decode" if 2 * decode_s >= elapsed else "recompute" if share >= 0.5 else "prefill"
        self._mark(kind, self._since)
        self._since = now

    def _decode_share(self, step: Step, elapsed: float, prefill_tokens: int) -> float:
        if not prefill_tokens:
            self._decode_step_s = elapsed or self._decode_step_s
            return elapsed
        if not step.decoding:
            return 0.0
        if self._decode_step_s is None:
            return elapsed * step.decoding / (step.decoding + prefill_tokens)
        return min(elapsed, self._decode_step_s)

    def _count(self, step: Step, prefilled: int, recomputed: int) -> None:
        self._generated += step.new_tokens
        if self._sequences:  # else these are the last tokens of what has left already
            self._context += step.new_tokens
        self._prefilled += prefilled
        self._recomputed += recomputed
        if step.decoding:
            self._steps += 1
            present = step.running + step.waiting
            self._context_token_steps += self._context * (step.running / present if present else 1.0)
        forced = min(self._forced, step.preempted)
        self._forced -= forced
        self._preemptions += step.preempted - forced

    def loading(self, version: int, *, recompute: bool) -> None:
        """Generation stands still for new weights; `recompute`: all running sequences lose their KV."""
        self._forced += self._running if recompute else 0
        self._enter("load", f"version {version}")

    def serving(self) -> None:
        """The engine runs, with or without sequences."""
        busy = self._sequences > 0
        self._enter("busy" if busy else "idle", "" if busy else self._cause)

    def down(self) -> None:
        """The engine is gone, and what it had with it."""
        self._sequences = self._context = self._resumed = self._forced = self._running = 0
        self._decode_step_s = None
        self._enter("down", "")

    def blame(self, cause: str) -> None:
        """Idle time has this cause from now on."""
        if cause != self._cause:
            idle = self._state == "idle"
            if idle:
                self._accrue()
            self._cause = cause
            if idle:
                self._enter("idle", cause)

    def usage(self) -> EngineUsage:
        """Totals up to now; a step under way is booked as decoding."""
        seconds = dict(self._seconds)
        under_way = self._now() - self._since
        kind = {"busy": "decode", "idle": f"idle:{self._cause}"}.get(self._state, self._state)
        seconds[kind] = seconds.get(kind, 0.0) + under_way
        return EngineUsage(
            seconds, self._generated, self._prefilled, self._recomputed, self._steps,
            self._context_token_steps, self._kv_blocked_s, self._preemptions,
        )  # fmt: skip

    def _accrue(self) -> None:
        now = self._now()
        kind = {"busy": "decode", "idle": f"idle:{self._cause}"}.get(self._state, self._state)
        self._seconds[kind] += now - self._since
        if self._state != "busy":
            self._mark(self._state, self._since)
        self._since = now

    def _enter(self, state: str, detail: str) -> None:
        self._accrue()
        self._flush(self._since)
        self._state, self._detail = state, detail

    def _mark(self, kind: str, start: float) -> None:
        """From `start` to now it did this; stretches of the same kind become one span."""
        if kind != self._span_kind:
            self._flush(start)
            self._span_kind = kind

    def _flush(self, until: float) -> None:
        if self._span is not None and self._span_kind and until > self._span_from:
            self._span(Span(self._span_from, until, self._track, self._span_kind, self._detail))
        self._span_from, self._span_kind = until, ""
