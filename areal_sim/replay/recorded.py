"""What a trace tells about each rollout: length, reward, latency, and how far the unfinished ones came."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from interfaces.actions import Action, Generate
from interfaces.diagnosis import bottleneck
from interfaces.errors import TraceError
from interfaces.events import RANK, Event, RewardReady, RolloutAborted, RolloutFailed, RolloutFinished
from interfaces.report import ReportBuilder
from interfaces.scenario_file import from_json
from interfaces.telemetry import Span, Usage
from interfaces.trace import Header, Record, read_trace

Place = tuple[int, int, int]
"""Prompt, attempt and member."""


class Outcome(NamedTuple):
    """One finished rollout."""

    tokens: int
    reward: float
    latency_s: float
    """From its end to its reward, the wait for a reward worker included."""


class Recorded:
    """Folds the records of a trace."""

    def __init__(self, path: Path) -> None:
        """Read a whole trace.

        Raises:
            TraceError: it is no trace, or no rollout finished in it.
        """
        records = read_trace(path)
        header = next(records, None)
        if not isinstance(header, Header):
            raise TraceError(f"{path}: does not begin with a header; is this file a trace?")
        self.header = header
        self.resolved = from_json(json.dumps(header.scenario), str(path))
        self.finished: dict[Place, Outcome] = {}
        self.unfinished: dict[Place, int] = {}
        """Tokens generated when the trace ends or the rollout was given up: it would have become longer."""
        self.prompt_tokens: dict[int, int] = {}
        self.unrewarded: set[Place] = set()
        """Finished, but the trace ends before their reward."""
        self.pauses: dict[str, list[float]] = {"checkpoint": [], "evaluation": []}
        """Seconds of each on the trainer."""
        self._builder = ReportBuilder(self.resolved.scenario.run.warmup_steps)
        self._place: dict[int, Place] = {}
        self._tokens: dict[int, int] = {}
        self._ended: dict[int, tuple[float, int]] = {}
        for record in records:
            self._take(record)
        for rollout, tokens in self._tokens.items():
            self.unfinished[self._place[rollout]] = tokens
        self.unrewarded |= {self._place[rollout] for rollout in self._ended}
        if len(self.finished) == len(self.unrewarded):
            raise TraceError(f"{path}: no rollout finished in this trace, so there is nothing to replay")

    @property
    def real(self) -> bool:
        """Whether it was a real run."""
        return self.header.backend == "real"

    def report(self) -> dict[str, Any]:
        """The report of the run itself, from its trace."""
        report = self._builder.build()
        return {
            **report, "bottleneck": bottleneck(report), "floor": None, "wall_s": 0.0,
            "policy": self.resolved.scenario.policy.name, "cost_model": f"recorded {self.header.backend} run",
            "outside_calibration": [],
        }  # fmt: skip

    def _take(self, record: Record) -> None:
        """One record; rollouts that began before this trace (a resumed run) are left out."""
        match record:
            case Span() | Usage():
                self._measured(record)
                return
            case Generate():
                self._started(record)
            case RolloutFinished(rollout=rollout) if rollout in self._tokens:
                self._finish(record)
            case RolloutAborted(rollout=rollout) if rollout in self._tokens:
                self._tokens[rollout] += sum(segment.tokens for segment in record.segments)
            case RolloutFailed(rollout=rollout) if rollout in self._tokens:
                self._tokens[rollout] = 0
            case RewardReady(rollout=rollout) if rollout in self._ended:
                at, tokens = self._ended.pop(rollout)
                self.finished[self._place[rollout]] = Outcome(tokens, record.reward, record.at - at)
        if type(record) in RANK:
            event: Event = record  # type: ignore[assignment]
            self._builder.event(event)
        elif not isinstance(record, Header):
            action: Action = record  # type: ignore[assignment]
            self._builder.action(action)

    def _measured(self, record: Span | Usage) -> None:
        self._builder.telemetry(record)
        if isinstance(record, Span) and record.track == "trainer" and record.kind in self.pauses:
            self.pauses[record.kind].append(record.end - record.start)

    def _started(self, action: Generate) -> None:
        self._place[action.rollout] = action.prompt, action.attempt, action.member
        self._tokens[action.rollout] = action.resume_tokens

    def _finish(self, event: RolloutFinished) -> None:
        tokens = self._tokens.pop(event.rollout) + sum(segment.tokens for segment in event.segments)
        place = self._place[event.rollout]
        self.prompt_tokens[place[0]] = event.prompt_tokens
        if event.reward is None:
            self._ended[event.rollout] = event.at, tokens
        self.finished[place] = Outcome(tokens, event.reward or 0.0, 0.0)


def survival(finished: Sequence[int], unfinished: Sequence[int]) -> list[tuple[int, float]]:
    """Kaplan-Meier: each length at which rollouts ended, and the share of rollouts longer than that.

    Unfinished rollouts count as longer than they came to, so the estimate does not shrink for having cut off
    the long ones.
    """
    ends: dict[int, int] = {}
    for tokens in finished:
        ends[tokens] = ends.get(tokens, 0) + 1
    cut = sorted(unfinished)
    at_risk, passed, share = len(finished) + len(cut), 0, 1.0
    curve = []
    for tokens in sorted(ends):
        while passed < len(cut) and cut[passed] < tokens:
            passed += 1
            at_risk -= 1
        share *= 1.0 - ends[tokens] / at_risk
        at_risk -= ends[tokens]
        curve.append((tokens, share))
    return curve
