"""Made-up measurements of a machine whose true costs are known, and costs made in code."""

import random

from interfaces.calibration import Calibration, Estimate, Part, PartName, Validity
from interfaces.profile import (
    About,
    DecodeRow,
    LoadRow,
    Measurement,
    PrefillRow,
    PublishRow,
    TrainRow,
)

TRUE: dict[PartName, dict[str, float]] = {
    "decode": {"step_s": 2e-2, "sequence_s": 3e-4, "context_token_s": 1e-6},
    "prefill": {"call_s": 1e-2, "token_s": 1e-4, "squared_token_s": 1e-7},
    "train": {"optimizer_step_s": 0.5, "microbatch_s": 0.1, "token_s": 1e-3, "squared_token_s": 1e-6},
    "load": {"fixed_s": 0.3, "byte_s": 0.0},
    "publish": {"fixed_s": 0.2, "byte_s": 0.0},
}
ABOUT = About(where="a test", when="2026-01-31", engine="vllm", engine_version="0.32.0")
WIDE: dict[PartName, dict[str, tuple[float, float]]] = {
    "decode": {"sequences": (0.0, 1e6), "context_tokens": (0.0, 1e9)},
    "prefill": {"tokens": (0.0, 1e9)},
    "train": {"tokens": (0.0, 1e9)},
    "load": {"bytes": (0.0, 1e15)},
    "publish": {"bytes": (0.0, 1e15)},
}


def decode_s(batch: int, context: float) -> float:
    true = TRUE["decode"]
    return true["step_s"] + true["sequence_s"] * batch + true["context_token_s"] * context


def measurements(noise: float = 0.0, outliers: float = 0.0, repeats: int = 1) -> list[Measurement]:
    """A full profile: log-normal noise, and this share of the rows 1.5 to 3 times too slow."""
    chance = random.Random(7)

    def times(seconds: float) -> float:
        slow = chance.uniform(1.5, 3.0) if chance.random() < outliers else 1.0
        return seconds * chance.lognormvariate(0.0, noise) * slow

    rows: list[Measurement] = []
    p, t = TRUE["prefill"], TRUE["train"]
    for _ in range(repeats):
        for batch in (1, 2, 4, 8, 16, 32, 64):
            for context in (100, 400, 1600):
                seconds = times(decode_s(batch, batch * context))
                rows.append(DecodeRow(batch=batch, context_tokens=float(batch * context), seconds=seconds))
        for tokens, sequences in ((16, 1), (128, 1), (512, 1), (512, 16), (2048, 1), (2048, 32)):
            squared = tokens * tokens / sequences
            seconds = times(p["call_s"] + p["token_s"] * tokens + p["squared_token_s"] * squared)
            rows.append(
                PrefillRow(tokens=tokens, squared_tokens=squared, sequences=sequences, seconds=seconds)
            )
        for tokens, sequences, cuts, steps in (
            (500, 10, 1, 1), (4000, 40, 4, 1), (4000, 8, 8, 4), (8000, 80, 2, 2), (8000, 8, 20, 1),
            (1000, 4, 8, 8),
        ):  # fmt: skip
            squared = tokens * tokens / sequences
            seconds = t["optimizer_step_s"] * steps + t["microbatch_s"] * cuts
            seconds = times(seconds + t["token_s"] * tokens + t["squared_token_s"] * squared)
            rows.append(
                TrainRow(tokens=tokens, squared_tokens=squared, sequences=sequences, microbatches=cuts,
                         optimizer_steps=steps, seconds=seconds)
            )  # fmt: skip
        rows += [LoadRow(bytes=2**30, seconds=times(0.3)), PublishRow(bytes=2**30, seconds=times(0.2))]
    return rows


def costs(valid: dict[PartName, dict[str, tuple[float, float]]] | None = None) -> Calibration:
    """The true costs as a file of them, valid everywhere unless told otherwise."""
    ranges = {**WIDE, **(valid or {})}
    parts = {
        name: Part(
            parameters={key: Estimate(value=v, low=v, high=v) for key, v in values.items()},
            validity={key: Validity(low=low, high=high) for key, (low, high) in ranges[name].items()},
            rows=10,
            median_error=0.0,
            worst_error=0.0,
        )
        for name, values in TRUE.items()
    }
    return Calibration(made_by="test", about=(ABOUT,), sources=("test.jsonl",), parts=parts)
