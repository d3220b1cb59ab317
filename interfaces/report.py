"""What a run was worth. The only place where a metric is defined; the same for simulated and real runs.

`ReportBuilder` folds a run record by record, live or from a trace, in memory that does not grow with it
(but for one row a step). Metrics leave out the warm-up steps; counts of the whole run say so.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from interfaces.actions import Action, AdmissionBlocked, Discard, Dismiss, EndRun, Generate, Train
from interfaces.events import (
    Event,
    ReplicaDown,
    RolloutAborted,
    RolloutFailed,
    RolloutFinished,
    RunStarted,
    TrainingFinished,
    WeightsPublished,
)
from interfaces.records import new_record
from interfaces.report_window import NOTHING, Reported, Window
from interfaces.rollout import Segment, staleness
from interfaces.starvation import Starvation
from interfaces.statistics import quantile
from interfaces.telemetry import Usage
from interfaces.trace import Header
from interfaces.usage import UsageDifference


class ReportBuilder:
    """Folds events, actions and telemetry of one run into its report."""

    def __init__(self, warmup_steps: int) -> None:
        self._warmup_steps = warmup_steps
        self.window = Window()
        self._arrived: list[RolloutFinished] = []
        """Those finished since anything else happened: they are folded together."""
        self._finished_rollouts: dict[int, Reported] = {}
        self._partial: dict[int, Reported] = {}
        """Rollouts that left a replica unfinished."""
        self._dropped: dict[int, str] = {}
        """Dropped rollouts that a replica has not reported yet, and why they were."""
        self._starvation = Starvation()
        self._training: list[tuple[Train, int]] = []
        self._blocked: str | None = None
        self._blocked_since = 0.0
        self._started = False
        self._last_usage: Usage | None = None
        self.now = 0.0
        self.steps = 0
        self.step_ends: list[float] = []
        self.step_rows: list[dict[str, Any]] = []
        self._step_usage: Usage | None = None
        """Totals when the last step ended."""
        self.drops: Counter[str] = Counter()
        self.publish_times: dict[int, float] = {}
        self.ended: str | None = None

    def resume(self, header: Header) -> None:
        """Know what was ready when a killed run was gone on with; nothing for a run from its start."""
        for rollout, prompt_tokens, recorded in header.held or ():
            segments = tuple(Segment(*segment) for segment in recorded)
            tokens = sum(segment.tokens for segment in segments)
            self._finished_rollouts[rollout] = Reported(prompt_tokens, tokens, segments)

    # ---- fold -----------------------------------------------------------------------------------------

    def fed(self, event: Event, actions: Iterable[Action]) -> None:
        """Take an event and what the core answered."""
        if type(event) is RolloutFinished:
            self._arrived.append(event)
        else:
            self.event(event)
        for action in actions:
            if type(action) is not Generate or self._partial or action.attempt:
                self.action(action)

    def event(self, event: Event) -> None:
        """Take an event."""
        kind = type(event)
        if kind is RolloutFinished:
            self._arrived.append(event)  # type: ignore[arg-type]
            return
        self._fold_arrived()
        self.now = event[0]
        if kind is RolloutAborted:
            self._aborted(event)  # type: ignore[arg-type]
        elif kind is RolloutFailed:
            self._failed(event)  # type: ignore[arg-type]
        elif kind is ReplicaDown:
            self.window.dropped_tokens["replica_down"] += event.lost_tokens  # type: ignore[union-attr]
        elif kind is TrainingFinished:
            self._trained(event)  # type: ignore[arg-type]
        elif kind is RunStarted:
            self._started = True
            self.window.started_at = self.now
            self._blocked_since = self.now
        elif kind is WeightsPublished:
            self.publish_times[event.version] = self.now  # type: ignore[union-attr]

    def action(self, action: Action) -> None:
        """Take an action."""
        self._fold_arrived()
        kind = type(action)
        if kind is Generate:
            self._generate(action)  # type: ignore[arg-type]
        elif kind is Train:
            self._training.append(self._take(action))  # type: ignore[arg-type]
        elif kind is Discard:
            self._discard(action)  # type: ignore[arg-type]
        elif kind is Dismiss:
            self._drop_members(action.rollouts, action.running, "redundant")  # type: ignore[union-attr]
        elif kind is AdmissionBlocked:
            self._account_blocked()
            self._blocked = action.by  # type: ignore[union-attr]
        elif kind is EndRun:
            self.ended = action.reason  # type: ignore[union-attr]

    def telemetry(self, record: object) -> None:
        """Take a measurement; only totals matter here."""
        if type(record) is Usage:
            self._last_usage = record
            if not self._started:  # what starting up took is no part of the run
                self.window.usage = self._step_usage = record

    def _generate(self, action: Generate) -> None:
        """Started again from token 0: what was reported of it before is lost."""
        if action.resume_tokens:
            return
        if action.attempt or action.rollout in self._partial:
            self._starvation.restarted(action)
        self._lost(action.rollout, "restarted")

    def _lost(self, rollout_id: int, cause: str) -> None:
        rollout = self._partial.pop(rollout_id, None)
        if rollout is not None:
            self.window.dropped_tokens[cause] += rollout.tokens

    def _failed(self, event: RolloutFailed) -> None:
        cause = self._dropped.pop(event.rollout, "failed")
        self.window.dropped_tokens[cause] += event.lost_tokens
        self._lost(event.rollout, cause)

    def _fold_arrived(self) -> None:
        arrived = self._arrived
        if not arrived:
            return
        self.now = arrived[-1].at
        partial, dropped, held = self._partial, self._dropped, self._finished_rollouts
        lengths = []
        for _, rollout_id, _, prompt_tokens, segments, _, _ in arrived:
            if partial:
                segments = (*partial.pop(rollout_id, NOTHING).segments, *segments)  # noqa: PLW2901
            tokens = 0
            for _, count in segments:
                tokens += count
            lengths.append(tokens)
            rollout = new_record(Reported, (prompt_tokens, tokens, segments))
            if rollout_id in dropped:
                self._drop(rollout, dropped.pop(rollout_id))
            else:
                held[rollout_id] = rollout
        arrived.clear()
        self.window.finish(lengths)

    def _aborted(self, event: RolloutAborted) -> None:
        segments = (*self._partial.pop(event.rollout, NOTHING).segments, *event.segments)
        rollout = Reported(0, sum(tokens for _, tokens in segments), segments)
        if event.rollout in self._dropped:
            self._drop(rollout, self._dropped.pop(event.rollout), cut_short=True)
        else:
            self._partial[event.rollout] = rollout

    def _drop(self, rollout: Reported, cause: str, *, cut_short: bool = False) -> None:
        window = self.window
        window.dropped_rollouts += 1
        window.dropped_tokens[cause] += rollout.tokens
        if cut_short:
            window.cut_short += 1
            window.finish([rollout.tokens])

    def _discard(self, action: Discard) -> None:
        """A group will not train. What the end of a run cuts off does not count as dropped."""
        self.drops[action.reason] += 1
        if action.reason == "run_end":
            for rollout_id in action.rollouts:
                self._finished_rollouts.pop(rollout_id, None)
                self._partial.pop(rollout_id, None)
        else:
            self._drop_members(action.rollouts, action.running, action.reason)

    def _drop_members(self, rollouts: Sequence[int], running: Sequence[int], cause: str) -> None:
        """Drop what was reported of them; those still on replicas follow when they are reported."""
        self._measure_buffer()
        for rollout_id in rollouts:
            rollout = self._finished_rollouts.pop(rollout_id, None)
            if rollout is not None:
                self._drop(rollout, cause)
            elif rollout_id not in running:
                rollout = self._partial.pop(rollout_id, None)
                if rollout is not None:
                    self._drop(rollout, cause, cut_short=True)
        self._dropped.update(dict.fromkeys(running, cause))

    def _measure_buffer(self) -> None:
        """The buffer grows until something is taken out of it."""
        window, held = self.window, self._finished_rollouts
        if len(held) >= window.buffered_rollouts:
            window.buffered_rollouts = len(held)
            tokens = sum(rollout.tokens for rollout in held.values())
            window.buffered_tokens = max(window.buffered_tokens, tokens)

    def _take(self, train: Train) -> tuple[Train, int]:
        """Account what a step consumes, as of its start; returns the tokens that count in the loss."""
        self._measure_buffer()
        self._starvation.trained(train.rollouts)
        window, version, mask = self.window, train.version, train.mask_below
        prompts = masked = 0
        lengths = []
        ages: defaultdict[int, int] = defaultdict(int)
        token_ages: defaultdict[int, int] = defaultdict(int)
        pop = self._finished_rollouts.pop
        for rollout_id in train.rollouts:
            prompt_tokens, tokens, segments = pop(rollout_id)
            prompts += prompt_tokens
            lengths.append(tokens)
            ages[segments[0][0]] += 1
            if train.last_segment:
                mask = segments[-1][0]
            for segment_version, count in segments:
                if mask is not None and segment_version < mask:
                    masked += count
                else:
                    token_ages[segment_version] += count
        for head, count in ages.items():
            window.staleness.add(staleness(version, head), count)
        for segment_version, count in token_ages.items():
            window.token_staleness.add(version - segment_version, count)
        window.trained_lengths.add(lengths)
        responses = sum(lengths)
        window.masked_tokens += masked
        window.trained_response_tokens += responses
        window.trained_rollouts += len(train.rollouts)
        return train, prompts + responses - masked

    def _trained(self, event: TrainingFinished) -> None:
        if not self._training:
            return
        if not event.last:
            return
        tokens = sum(counted for _, counted in self._training)
        self.window.trained_tokens += tokens
        started = self.step_ends[-1] if self.step_ends else self.window.started_at
        self._training.clear()
        self.steps += 1
        self.step_ends.append(self.now)
        self.step_rows.append(self._step_row(event.step, self.now - started, tokens))
        if self.steps == self._warmup_steps and self._warmup_steps:
            self._open_window()

    def _step_row(self, step: int, step_time_s: float, tokens: int) -> dict[str, Any]:
        ages = self.window.staleness.take_recent()
        used, self._step_usage = UsageDifference(self._last_usage, self._step_usage), self._last_usage
        return {
            "step": step, "at_s": self.now, "step_time_s": step_time_s, "trained_tokens": tokens,
            "staleness_mean": ages.mean(), "staleness_histogram": ages.counts(),
            "rollout_utilisation": used.busy("rollout_s"), "trainer_utilisation": used.busy("trainer_s"),
        }  # fmt: skip

    def _open_window(self) -> None:
        self._account_blocked()
        self.window = Window()
        self.window.started_at = self.now
        self.window.usage = self._last_usage

    def _account_blocked(self) -> None:
        if self._blocked is not None:
            self.window.blocked_s[self._blocked] += self.now - max(
                self._blocked_since, self.window.started_at
            )
        self._blocked_since = self.now

    @property
    def measured_steps(self) -> int:
        """Steps in the metrics: those after the warm-up, or all while it is not over."""
        return self.steps - self._warmup_steps if self.steps >= self._warmup_steps else self.steps

    def measured_usage(self) -> UsageDifference:
        """What was used during the measured steps."""
        return UsageDifference(self._last_usage, self.window.usage)

    # ---- result ---------------------------------------------------------------------------------------

    def build(self) -> dict[str, Any]:
        """The report as plain data: `areal-sim run --json` prints it."""
        self._fold_arrived()
        self._account_blocked()
        self._measure_buffer()
        window = self.window
        ends = self.step_ends
        measured = ends[len(ends) - self.measured_steps :]
        begin = window.started_at
        times = [b - a for a, b in zip([begin, *measured], measured, strict=False)]
        span = measured[-1] - begin if measured else 0.0
        usage = self.measured_usage()
        return {
            "partial": self.ended not in ("steps", "data"),
            "ended": self.ended,
            "steps": self.steps,
            "measured_steps": len(measured),
            "warmup_included": self.steps < self._warmup_steps,
            "sim_time_s": self.now,
            "step_time_s": {
                "mean": _ratio(sum(times), len(times)),
                "p50": quantile(times, 0.5),
                "p95": quantile(times, 0.95),
            },
            "effective_throughput_tokens_per_s": _ratio(window.trained_tokens, span),
            "generated_tokens": usage.total("generated_tokens"),
            "trained_tokens": window.trained_tokens,
            "trained_rollouts": window.trained_rollouts,
            "dropped_tokens": sum(window.dropped_tokens.values()),
            "dropped_by_cause": {cause: tokens for cause, tokens in window.dropped_tokens.items() if tokens},
            "dropped_rollouts": window.dropped_rollouts,
            "masked_tokens": window.masked_tokens,
            "recomputed_tokens": usage.total("recomputed_tokens"),
            "preemptions": usage.total("preemptions"),
            "staleness": {**window.staleness.summary(), "histogram": window.staleness.counts()},
            "token_staleness": {
                "mean": window.token_staleness.mean(),
                "max": window.token_staleness.largest(),
            },
            "utilisation": {"rollout": usage.busy("rollout_s"), "trainer": usage.busy("trainer_s")},
            "time_share": {"rollout": usage.shares("rollout_s"), "trainer": usage.shares("trainer_s")},
            "idle_by_cause": {"rollout": usage.idle("rollout_s"), "trainer": usage.idle("trainer_s")},
            "blocked_by": {
                **dict.fromkeys(("concurrency", "staleness_gate", "data"), 0.0),
                **window.blocked_s,
                "kv": usage.kv_blocked_s(),
            },
            "starving": self._starvation.summary(),
            "buffer": {"max_rollouts": window.buffered_rollouts, "max_tokens": window.buffered_tokens},
            "mean_length": self._mean_length(usage),
            "length_histogram": self._lengths(),
            "discarded_groups": dict(self.drops),
            "generation_throughput_tokens_per_s": _ratio(usage.total("generated_tokens"), span),
            "per_step": self.step_rows,
        }  # fmt: skip

    def _mean_length(self, usage: UsageDifference) -> dict[str, Any]:
        """Admitted: of all that was, where the backend knows their lengths; else of what has ended."""
        window, known = self.window, usage.total("admitted_rollouts")
        return {
            "admitted": usage.total("admitted_tokens") / known
            if known
            else _ratio(window.finished_tokens, window.finished_rollouts),
            "trained": _ratio(window.trained_response_tokens, window.trained_rollouts),
            "lower_bound": not known and window.cut_short > 0,
        }

    def _lengths(self) -> dict[str, Any]:
        finished, trained = self.window.finished_lengths, self.window.trained_lengths
        width = max(finished.width(), trained.width())
        return {"bin_tokens": width, "admitted": finished.counts(width), "trained": trained.counts(width)}


def _ratio(part: float, whole: float) -> float | None:
    """None where nothing was measured: never a made-up zero."""
    return part / whole if whole else None
