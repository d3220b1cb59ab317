"""How long a configuration is simulated to know its throughput."""

from math import ceil

from areal_sim.plan.space import Choice
from interfaces.scenario import Resolved

MEASURED_ROLLOUTS = 30_000
"""A mean over fewer says little: batches are ready at discrete moments, and lengths differ."""
FEWEST_STEPS, MOST_STEPS = 3, 12
MOST_WARMUP_STEPS = 5
"""Under a higher bound staleness builds up longer, but throughput is steady by then."""


def settled(resolved: Resolved, choice: Choice) -> Resolved:
    """The scenario with a warm-up as its staleness bound needs it, and as many steps as a mean needs.

    Never longer than the scenario's own run.
    """
    run, work = resolved.scenario.run, resolved.scenario.workload
    warmup = 1 + int(min(choice.schedule.staleness or 1, MOST_WARMUP_STEPS - 1))
    measured = ceil(MEASURED_ROLLOUTS / (work.batch_size * work.group_size))
    steps = min(run.steps, warmup + max(FEWEST_STEPS, min(MOST_STEPS, measured)))
    changed = run.model_copy(update={"steps": steps, "warmup_steps": min(warmup, steps - 1)})
    return resolved.model_copy(update={"scenario": resolved.scenario.model_copy(update={"run": changed})})
