"""Which split the planner chooses for the AReaL paper's set-ups, against the paper's 75/25: writes a page.

    python benchmarks/planned_splits.py > docs/explanation/planning.md

Half a minute. The page's words are here too; every number in its tables is computed.
"""

from areal_report.numbers import count, ratio, share
from areal_sim.plan.estimate import Estimate, Estimator
from areal_sim.plan.space import Choice, own_choice, schedules, space, step_of
from areal_sim.plan.words import rollout_share, split
from interfaces.scenario_file import load

SETUPS = {
    "Table 1, 1.5B": "areal/table1_1_5b_async", "Table 1, 7B": "areal/table1_7b_async",
    "Table 1, 14B": "areal/table1_14b_async", "Table 1, 32B": "areal/table1_32b_async",
    "Fig. 5c, 1.5B": "areal/fig5c", "Table 7, 1.5B": "areal/table7",
}  # fmt: skip
FIG_5C = ["policy.max_staleness=8"]

HEAD = """# Planned splits and the paper's 75/25

Written by `python benchmarks/planned_splits.py`; every number in the tables is computed by it.

AReaL gives 75 % of its GPUs to rollout and 25 % to training in all experiments and leaves the choice open (appendix E).
This is what the closed form of `areal-sim plan`, which decides what is simulated, prefers for the same set-ups: policy `areal`,
the paper's staleness bound at most. A step is a sixteenth of the GPUs. `areal-sim plan` itself prints the same
comparison for any scenario, simulated, below its table.
"""
TAIL = """
## Why not always 75/25?

*Generation alone* and *training alone* are what each pool would sustain if it never waited for the other; the lower one
limits, and a good split makes them equal. The planned split is one or two steps from the paper's, always towards training:

- **One step** where the two are close at 75/25 (14B) or generation is the lower one there with one batch in flight, as in the
  paper (1.5B, Table 1). Two batches in flight fill the replicas, and then a few GPUs more for training pay. Table 7 has
  too few GPUs for anything between: one step is one GPU.
- **Two steps** where training is the lower one at 75/25: the trainer works all the time and the replicas wait at the
  staleness gate. The gain is the number in the table; part of it comes from parallelism and groups in flight, which the
  planner chooses too.

The last column is how the paper's choice would be right: how many times slower than here generation would have to be for
the two to be equal at 75/25. Below 1 it is the limit already. Kernel measurements leave room for up to 1.73, the end of the range
of `decode_slowdown` in the hardware file, so 75/25 is inside the uncertainty of every set-up. Reward latency, tool time or
longer responses act the same way. With your own measurements, [calibrate](../how-to/calibrate.md) and plan again.
"""


def planned(name: str) -> tuple[Choice, Estimate, Choice, Estimate]:
    """The scenario's own configuration and the best by estimate, on as many GPUs."""
    base = load(name, FIG_5C if name.endswith("fig5c") else [])
    cluster = base.scenario.cluster
    gpus = cluster.rollout_gpus + cluster.trainer_gpus
    bound = float(base.scenario.policy.parameters["max_staleness"])
    estimator = Estimator(base)
    own = own_choice(base, gpus)
    assert own is not None
    candidates = [(c, estimator(c)) for c in space(base, [gpus], schedules(base, ("areal",), bound))]
    best, estimate = max(candidates, key=lambda pair: pair[1].throughput)
    return own, estimator(own), best, estimate


def row(name: str, own: Choice, given: Estimate, best: Choice, found: Estimate) -> str:
    steps = abs(own.rollout_gpus - best.rollout_gpus) / step_of(best.gpus)
    cells = (
        name, split(own), f"{split(best)} ({share(rollout_share(best))})", f"{steps:.2g}",
        f"{count(given.rollout)} / {count(given.trainer)}", f"{count(found.rollout)} / {count(found.trainer)}",
        ratio(found.throughput / given.throughput), ratio(given.rollout / given.trainer),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    lines = [
        HEAD,
        "| set-up | paper | planned (rollout) | steps apart | at 75/25: generation / training alone, tokens/s "
        "| planned: generation / training alone | gain | generation slower by, for 75/25 |",
        "|---|---|---|---|---|---|---|---|",
        *(row(name, *planned(scenario)) for name, scenario in SETUPS.items()),
    ]
    print("\n".join(lines) + "\n" + TAIL, end="")


if __name__ == "__main__":
    main()
