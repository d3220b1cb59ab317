"""What a plan says in words: what limits it, and why its split is another than the scenario's."""

from areal_report.numbers import count, ratio, share
from areal_sim.plan.objective import throughput_of
from areal_sim.plan.search import Point, Report
from areal_sim.plan.space import Choice, step_of

_LIMITS = {
    "trainer": "the trainer",
    "rollout": "generation",
    "kv_cache": "KV cache of the replicas",
    "taking_turns": "generation and training wait for each other",
    "staleness_gate": "the staleness bound",
    "concurrency": "the groups in flight",
    "weight_sync": "moving weights",
}


def limit(report: Report) -> str:
    """What to change first, and how much each pool works."""
    busy = report["utilisation"]
    which = _LIMITS.get(report["bottleneck"], report["bottleneck"])
    return f"{which} (rollout busy {share(busy['rollout'])}, trainer {share(busy['trainer'])})"


def split(choice: Choice) -> str:
    """`48 + 16`, or `64 shared`."""
    if choice.colocated:
        return f"{choice.rollout_gpus} shared"
    return f"{choice.rollout_gpus} + {choice.trainer_gpus}"


def rollout_share(choice: Choice) -> float:
    """Share of the GPUs that generate."""
    return choice.rollout_gpus / choice.gpus


def why_not_own(own: Point | None, best: Point) -> str | None:
    """The scenario's own split against the best, with numbers; None where it cannot run on these GPUs."""
    if own is None:
        return None
    ours, theirs = own.choice, best.choice
    speed, faster = throughput_of(own.report), throughput_of(best.report)
    if not speed or not faster:
        return None
    moved = ours.rollout_gpus - theirs.rollout_gpus
    given = f"{share(rollout_share(ours))} for rollout ({split(ours)})"
    if ours.colocated or theirs.colocated:
        faster_by = ratio(faster / speed)
        return f"as given, {split(ours)}: {count(speed)} tokens/s; the best plan is {faster_by} as fast"
    if abs(moved) <= step_of(theirs.gpus):
        return f"the split as given, {given}, is within a sixteenth of the GPUs of the best, {split(theirs)}"
    slow, idle, to = ("trainer", "rollout", "training") if moved > 0 else ("rollout", "trainer", "rollout")
    busy, before, after = own.report["utilisation"], own.estimate, best.estimate
    return (
        f"the split as given, {given}: {count(speed)} tokens/s, as its {slow} pool works {share(busy[slow])} "
        f"of the time and its {idle} pool {share(busy[idle])}; training alone would sustain "
        f"{count(before.trainer)} tokens/s there, generation alone {count(before.rollout)}. "
        f"{abs(moved)} GPUs more for {to}, {split(theirs)}, bring the two to {count(after.trainer)} and "
        f"{count(after.rollout)}: {count(faster)} tokens/s predicted, {ratio(faster / speed)}"
    )
