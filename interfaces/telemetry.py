"""What a backend measures beside events: how long its parts were busy, and with what.

The core never reads these; the report and the timeline do.
"""

from typing import NamedTuple


class Span(NamedTuple):
    """One stretch of time on one track of the timeline; only full traces hold them."""

    start: float
    end: float
    track: str
    """"replica 3" or "trainer"."""
    kind: str
    """"prefill", "decode", "recompute", "load", "idle", "train", "publish", "checkpoint", "evaluation"."""
    detail: str
    """The cause of an idle span, the version of a load, the step of a training."""


class Usage(NamedTuple):
    """Totals since the run began, over all replicas and over the trainer; written at the end of each step.

    Seconds are replica-seconds (a replica is tp x pp GPUs) and trainer-seconds (all its GPUs at once).
    """

    at: float
    rollout_s: dict[str, float]
    """By kind: "prefill", "decode", "recompute", "load", and "idle:<cause>"."""
    trainer_s: dict[str, float]
    """By kind: "train", "publish", "checkpoint", "evaluation", "switch", and "idle:<cause>"."""
    generated_tokens: int
    prefilled_tokens: int
    recomputed_tokens: int
    """Tokens prefilled again because their KV was discarded (interruption, preemption, resume)."""
    decode_steps: int
    context_token_steps: float
    """Sum over decode steps of the context tokens read: what the HBM floor needs."""
    trained_tokens: int
    """Prompt + response tokens given to the trainer, masked ones included."""
    trained_squared_tokens: float
    """Sum of the squared lengths of the sequences given to the trainer: what attention costs."""
    kv_blocked_s: float
    """Replica-seconds with rollouts queued for want of KV cache."""
    preemptions: int
    admitted_rollouts: int = 0
    """Rollouts whose length is known although it may not have been generated yet: simulated runs only."""
    admitted_tokens: int = 0
    """Response tokens of those."""


Telemetry = Span | Usage
