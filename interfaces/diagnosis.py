"""Why a run does not go on, and what limits one that does."""

from typing import Any

from interfaces.loop import TrainingLoop


def explain_stall(loop: TrainingLoop) -> str:
    """One paragraph: what the trainer lacks, what could still bring it, and which credit is missing."""
    view = loop.view
    size = view.config.batch_size
    lines = [
        f"the run stalls at {view.now:.6g} s after {view.steps_finished} of {view.config.steps} steps: "
        "nothing is under way any more"
    ]
    if view.training:
        lines.append(f"the trainer holds {len(view.training)} groups and never reported them finished")
    else:
        lines.append(f"the trainer waits for {size} groups, {len(view.ready)} are ready")
    if not view.pool.alive:
        lines.append("no replica is alive")
    lines.append(
        f"{len(view.running)} groups are unfinished ({view.running_rollouts} rollouts on replicas, "
        f"{view.pending_rollouts} waiting for one)"
    )
    if loop.blocked_by == "data":
        lines.append("admission: the data are used up")
    elif loop.blocked_by is not None:
        lines.append(
            f"admission: no credit left of {loop.blocked_by!r} (version served {view.serving_version}, "
            f"steps started {view.steps_started})"
        )
    if view.publishing is not None:
        lines.append(f"version {view.publishing} was to be published and never was")
    discarded = {reason: count for reason, count in loop.ledger.discarded.items() if reason != "run_end"}
    if discarded:
        lines.append(
            "discarded groups: " + ", ".join(f"{count} {why}" for why, count in sorted(discarded.items()))
        )
    return "; ".join(lines)


def bottleneck(report: dict[str, Any]) -> str:
    """What to speed up first, from where the time of a finished run went."""
    rollout = report["utilisation"]["rollout"] or 0.0
    trainer = report["utilisation"]["trainer"] or 0.0
    idle = report["idle_by_cause"]
    if trainer >= 0.9:
        return "trainer"
    if report["blocked_by"]["kv"] > 0.5 * report["sim_time_s"]:
        return "kv_cache"
    gated = idle["rollout"].get("staleness_gate", 0.0)
    if gated > 0.1:
        return "staleness_gate"
    if rollout >= trainer:
        return "rollout"
    return "weight_sync" if report["time_share"]["trainer"].get("publish", 0.0) > 0.2 else "trainer"
