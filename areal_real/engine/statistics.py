"""vLLM's statistics of each engine step, handed to the meter of the replica."""

from collections.abc import Callable
from typing import Any

from areal_real.engine.meter import Step


def step_of(scheduler_stats: Any, iteration_stats: Any) -> Step | None:
    """What happened in one step; None: no step, only news.

    vLLM counts a sequence as "generation" once it has output, also where it computes its whole context
    again after it was preempted.
    """
    details = getattr(scheduler_stats, "iteration_details", None)
    if details is None:
        return None
    return Step(
        new_tokens=iteration_stats.num_generation_tokens if iteration_stats else 0,
        decoding=details.num_generation_requests,
        first_prefill_tokens=details.num_ctx_tokens,
        again_tokens=max(0, details.num_generation_tokens - details.num_generation_requests),
        running=scheduler_stats.num_running_reqs,
        waiting=scheduler_stats.num_waiting_reqs,
        preempted=iteration_stats.num_preempted_reqs if iteration_stats else 0,
    )


def logger_for(take: Callable[[Step], None]) -> Any:
    """A vLLM stat logger (a factory of them, as vLLM wants it) that hands every step on."""
    from vllm.v1.metrics.loggers import StatLoggerBase  # noqa: PLC0415

    class StepLogger(StatLoggerBase):
        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            """Nothing to prepare."""

        def record(self, scheduler_stats: Any, iteration_stats: Any, *_: Any, **__: Any) -> None:
            step = step_of(scheduler_stats, iteration_stats)
            if step is not None:
                take(step)

        def log_engine_initialized(self) -> None:
            """Nothing to say."""

    return StepLogger
