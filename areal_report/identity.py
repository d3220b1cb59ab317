"""What a report is about: the same keys in front of every report, simulated or real."""

from typing import Any

from interfaces.scenario import Resolved
from interfaces.setup import policy_of


def identity(resolved: Resolved) -> dict[str, Any]:
    """What a report is about: scenario, seed, GPUs."""
    cluster = resolved.scenario.cluster
    colocated = policy_of(resolved).capacity.colocated
    return {
        "scenario": resolved.where,
        "seed": resolved.scenario.run.seed,
        "gpus": cluster.rollout_gpus + (0 if colocated else cluster.trainer_gpus),
    }


def complete(report: dict[str, Any], resolved: Resolved) -> dict[str, Any]:
    """A report with what it is about, and what a step costs in GPU-hours."""
    about = identity(resolved)
    step_s = report["step_time_s"]["mean"]
    hours = None if step_s is None else step_s * about["gpus"] / 3600.0
    return {**about, **report, "gpu_hours_per_step": hours}
