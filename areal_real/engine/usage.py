"""What one replica did since the run began: seconds by kind, tokens, steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EngineUsage:
    """Totals of one replica, with the names of `interfaces.telemetry.Usage`; add up those of all replicas."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    """By kind: "prefill", "decode", "recompute", "load", "down" and "idle:<cause>"."""
    generated_tokens: int = 0
    prefilled_tokens: int = 0
    recomputed_tokens: int = 0
    decode_steps: int = 0
    context_token_steps: float = 0.0
    """Sum over decode steps of the context tokens of the sequences in the batch."""
    kv_blocked_s: float = 0.0
    """Seconds with sequences waiting for want of KV cache."""
    preemptions: int = 0
    """For want of KV cache; those that a weight load asks for are not counted."""
