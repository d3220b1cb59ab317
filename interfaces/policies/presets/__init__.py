"""Named systems as products of the five decisions, one file a family. Importing it registers them all."""

from interfaces.policies.presets import (
    count_gates,
    in_flight_updates,
    laminar,
    ordered,
    partial,
    prime_rl,
    queues,
    rollpacker,
    seer,
    slime,
    streamrl,
    verl,
)
from interfaces.policies.presets.areal import Areal, ArealStrict, OneStepOff, Sync, SyncColocated

__all__ = [
    "Areal", "ArealStrict", "OneStepOff", "Sync", "SyncColocated", "count_gates", "in_flight_updates",
    "laminar", "ordered", "partial", "prime_rl", "queues", "rollpacker", "seer", "slime", "streamrl", "verl",
]  # fmt: skip
