"""Where the GPU time goes: replicas by state, the trainer by phase, idle time by cause."""

from collections import defaultdict
from collections.abc import Callable, Sequence

from areal_sim.decode_batch import DecodeBatch
from interfaces.telemetry import Span, Usage

SpanSink = Callable[[Span], None]


class RolloutUsage:
    """Replica-seconds by what the replicas do. `decode` is the busy time that is nothing else."""

    def __init__(self) -> None:
        self.counts = {"idle": 0, "busy": 0, "load": 0, "down": 0}
        """Replicas by state."""
        self.cause = "starting"
        """Why an idle replica is idle now."""
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._since = 0.0
        self.prefill_s = 0.0
        self.recompute_s = 0.0
        self.pause_s = 0.0
        self.prefilled_tokens = 0
        self.recomputed_tokens = 0
        self.kv_blocked_s = 0.0
        self.preemptions = 0

    def move(self, now: float, old: str, new: str) -> None:
        """One replica changes its state."""
        self.accrue(now)
        self.counts[old] -= 1
        self.counts[new] += 1

    def postpone(self, old: str, new: str, seconds: float) -> None:
        """The state just changed ends only so many seconds from now."""
        self.seconds[old] += seconds
        self.seconds[new] -= seconds

    def blame(self, now: float, cause: str) -> None:
        """Idle time has this cause from now on."""
        if cause != self.cause:
            self.accrue(now)
            self.cause = cause

    def accrue(self, now: float) -> None:
        """Book the time up to now."""
        elapsed = now - self._since
        if elapsed > 0:
            self._since = now
            for state, count in self.counts.items():
                if count:
                    self.seconds[f"idle:{self.cause}" if state == "idle" else state] += count * elapsed

    def by_kind(self) -> dict[str, float]:
        """Replica-seconds so far by kind.

        Prefill, pauses and postponed loads are booked when they begin. What of that lies ahead (never more
        than one stretch a replica) is taken back, so that the kinds add up to the time gone by.
        """
        seconds = dict(self.seconds)
        busy = seconds.pop("busy", 0.0)
        for state, value in seconds.items():
            if value < 0.0:
                seconds[state] = 0.0
                busy += value
        explicit = {"prefill": self.prefill_s, "recompute": self.recompute_s, "evaluation": self.pause_s}
        booked = sum(explicit.values())
        share = min(1.0, busy / booked) if booked else 1.0
        seconds |= {kind: share * value for kind, value in explicit.items() if value}
        seconds["decode"] = max(0.0, busy - booked)
        return seconds


class TrainerUsage:
    """Trainer-seconds by phase; all its GPUs do the same at once."""

    def __init__(self, span: SpanSink | None) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.cause = "rollouts"
        """Why the trainer is idle, if it is."""
        self.phase: str | None = None
        self._detail = ""
        self._since = 0.0
        self._span_since = 0.0
        self._span = span

    def enter(self, now: float, phase: str | None, detail: str = "") -> None:
        """Begin a phase; None: idle."""
        self._close(now)
        self.phase, self._detail = phase, detail

    def blame(self, now: float, cause: str) -> None:
        """Idle time has this cause from now on."""
        if cause != self.cause:
            if self.phase is None:
                self._close(now)
            self.cause = cause

    def accrue(self, now: float) -> None:
        """Book the time up to now."""
        if now > self._since:
            self.seconds[self.phase or f"idle:{self.cause}"] += now - self._since
            self._since = now

    def _close(self, now: float) -> None:
        self.accrue(now)
        if self._span is not None and now > self._span_since:
            kind, detail = (self.phase, self._detail) if self.phase else ("idle", self.cause)
            self._span(Span(self._span_since, now, "trainer", kind, detail))
        self._span_since = now


def usage_record(
    now: float,
    rollout: RolloutUsage,
    batches: Sequence[DecodeBatch],
    trainer: TrainerUsage,
    *,
    trained_tokens: int,
    trained_squared_tokens: float,
    admitted: tuple[int, int],
) -> Usage:
    """Totals up to now, for the trace and the report; `admitted` are rollouts and their response tokens."""
    rollout.accrue(now)
    trainer.accrue(now)
    return Usage(
        at=now,
        rollout_s=rollout.by_kind(),
        trainer_s=dict(trainer.seconds),
        generated_tokens=sum(batch.generated_tokens for batch in batches),
        prefilled_tokens=rollout.prefilled_tokens,
        recomputed_tokens=rollout.recomputed_tokens,
        decode_steps=sum(batch.clock for batch in batches),
        context_token_steps=sum(batch.context_token_steps for batch in batches),
        trained_tokens=trained_tokens,
        trained_squared_tokens=trained_squared_tokens,
        kv_blocked_s=rollout.kv_blocked_s,
        preemptions=rollout.preemptions,
        admitted_rollouts=admitted[0],
        admitted_tokens=admitted[1],
    )
