"""What all parts of a real run did so far, as the report takes it."""

from collections import defaultdict
from collections.abc import Sequence

from areal_real.engine.usage import EngineUsage
from areal_real.trainer.process import TrainerProcess
from interfaces.telemetry import Usage


def usage_record(now: float, engines: Sequence[EngineUsage], trainer: TrainerProcess) -> Usage:
    """Totals over all replicas and of the trainer."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for engine in engines:
        for kind, value in engine.seconds.items():
            seconds[kind] += value
    return Usage(
        at=now,
        rollout_s=dict(seconds),
        trainer_s=trainer.seconds(now),
        generated_tokens=sum(engine.generated_tokens for engine in engines),
        prefilled_tokens=sum(engine.prefilled_tokens for engine in engines),
        recomputed_tokens=sum(engine.recomputed_tokens for engine in engines),
        decode_steps=sum(engine.decode_steps for engine in engines),
        context_token_steps=sum(engine.context_token_steps for engine in engines),
        trained_tokens=trainer.trained_tokens,
        trained_squared_tokens=trainer.trained_squared_tokens,
        kv_blocked_s=sum(engine.kv_blocked_s for engine in engines),
        preemptions=sum(engine.preemptions for engine in engines),
    )
