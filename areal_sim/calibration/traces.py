"""What the trace of a run, simulated or real, says about costs.

Decoding: between two `Usage` records `decode_s = step_s * steps + sequence_s * tokens + context_token_s *
context_token_steps` holds exactly, whatever the batches in between were. Prefill: tokens per second only; a
trace tells neither calls nor squared lengths. Training: each `train` span with the lengths of its rollouts,
cut into micro-batches as the simulator cuts them. Loads and publishes: their spans.
"""

import json
from collections import defaultdict, deque
from pathlib import Path

import numpy as np

from areal_sim.calibration.samples import Measured, Sample, decode_sample
from areal_sim.cost.training import TrainerCost
from interfaces import memory
from interfaces.actions import Train
from interfaces.calibration import PartName
from interfaces.errors import TraceError
from interfaces.events import RolloutAborted, RolloutFailed, RolloutFinished
from interfaces.profile import About
from interfaces.scenario import Resolved
from interfaces.scenario_file import from_json
from interfaces.telemetry import Span, Usage
from interfaces.trace import Header, read_trace

_NOTHING = Usage(
    at=0.0, rollout_s={}, trainer_s={}, generated_tokens=0, prefilled_tokens=0, recomputed_tokens=0,
    decode_steps=0, context_token_steps=0.0, trained_tokens=0, trained_squared_tokens=0.0, kv_blocked_s=0.0,
    preemptions=0,
)  # fmt: skip

_WINDOWS: dict[PartName, str] = {"decode": "step_s", "prefill": "token_s"}
"""Parts that are read from totals, and the amount that says how much happened."""


def add_trace(measured: Measured, path: Path) -> None:
    """Take what a trace measured.

    Raises:
        TraceError: it is no trace, or damaged.
    """
    records = read_trace(path)
    header = next(records, None)
    if not isinstance(header, Header):
        raise TraceError(f"{path}: does not begin with a header; is this file a trace?")
    reader = _Reader(header, path)
    for record in records:
        reader.take(record)
    measured.samples += reader.whole_windows()
    measured.about.append(reader.about)
    measured.sources.append(path.parent.name + "/" + path.name)
    measured.tensor_parallel.add(reader.resolved.scenario.engine.tensor_parallel)


class _Reader:
    """Folds the records of one trace into samples."""

    def __init__(self, header: Header, path: Path) -> None:
        self.resolved: Resolved = from_json(json.dumps(header.scenario), str(path))
        scenario = self.resolved.scenario
        self.about = About(
            where=f"{header.backend} run {path.parent.name}", engine=scenario.engine.name,
            hardware=self.resolved.hardware.name, model=self.resolved.model.name,
        )  # fmt: skip
        self.samples: list[Sample] = []
        self._source = path.parent.name
        self._counts_twice = header.backend == "sim"
        """Whether recomputed tokens are part of the prefilled ones."""
        self._trainer = TrainerCost(self.resolved)
        self._bytes = float(memory.replica_weight_bytes(self.resolved.model))
        self._usage = _NOTHING
        self._response: defaultdict[int, int] = defaultdict(int)
        self._length: dict[int, int] = {}
        self._trains: deque[Train] = deque()
        self._open_step = -1

    def take(self, record: object) -> None:
        """One record, in the order of the trace."""
        match record:
            case RolloutFinished(rollout=rollout):
                self._response[rollout] += sum(segment.tokens for segment in record.segments)
                self._length[rollout] = record.prompt_tokens + self._response.pop(rollout)
            case RolloutAborted(rollout=rollout):
                self._response[rollout] += sum(segment.tokens for segment in record.segments)
            case RolloutFailed(rollout=rollout):
                self._response.pop(rollout, None)
            case Train():
                self._trains.append(record)
            case Usage():
                self._window(record)
            case Span():
                self._span(record)

    def whole_windows(self) -> list[Sample]:
        """What was read, without windows so short that their ends cut as much as they hold."""
        kept = [sample for sample in self.samples if sample.part not in _WINDOWS]
        for part, key in _WINDOWS.items():
            windows = [sample for sample in self.samples if sample.part == part]
            if windows:
                usual = float(np.median([sample.amounts[key] for sample in windows]))
                kept += [sample for sample in windows if sample.amounts[key] >= 0.1 * usual]
        return kept

    def _span(self, span: Span) -> None:
        seconds = span.end - span.start
        if seconds <= 0.0:
            return
        if span.kind == "train" and self._trains:
            self._train(self._trains.popleft(), seconds)
        elif span.kind in {"load", "publish"}:
            part = "load" if span.kind == "load" else "publish"
            amounts = {"fixed_s": 1.0, "byte_s": self._bytes}
            self.samples.append(Sample(part, amounts, {"bytes": self._bytes}, seconds, self._source))  # type: ignore[arg-type]

    def _train(self, train: Train, seconds: float) -> None:
        lengths = np.array([self._length.pop(rollout, 0) for rollout in train.rollouts], dtype=np.int64)
        streamed = not train.last or train.step == self._open_step
        self._open_step = -1 if train.last else train.step
        if not lengths.all():
            return
        steps = 1 if streamed else self.resolved.scenario.trainer.minibatches
        cut = self._trainer.training_step_s(lengths, minibatches=steps)
        tokens = float(lengths.sum())
        amounts = {
            "optimizer_step_s": float(steps if train.last else 0), "microbatch_s": float(cut.microbatches),
            "token_s": tokens, "squared_token_s": float((lengths.astype(float) ** 2).sum()),
        }  # fmt: skip
        self.samples.append(Sample("train", amounts, {"tokens": tokens}, seconds, self._source))

    def _window(self, usage: Usage) -> None:
        """What was done since the last totals."""
        before, self._usage = self._usage, usage
        steps = usage.decode_steps - before.decode_steps
        decode_s = _seconds(usage, before, "decode")
        if steps > 0 and decode_s > 0:
            generated = float(usage.generated_tokens - before.generated_tokens)
            context = usage.context_token_steps - before.context_token_steps
            self.samples.append(decode_sample(float(steps), generated, context, decode_s, self._source))
        tokens = usage.prefilled_tokens - before.prefilled_tokens
        if not self._counts_twice:
            tokens += usage.recomputed_tokens - before.recomputed_tokens
        prefill_s = _seconds(usage, before, "prefill") + _seconds(usage, before, "recompute")
        if tokens > 0 and prefill_s > 0:
            self.samples.append(Sample("prefill", {"token_s": float(tokens)}, {}, prefill_s, self._source))


def _seconds(usage: Usage, before: Usage, kind: str) -> float:
    return usage.rollout_s.get(kind, 0.0) - before.rollout_s.get(kind, 0.0)
