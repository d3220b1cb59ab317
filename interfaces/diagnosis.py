"""Why a run does not go on, and what limits one that does."""

from typing import Any

from interfaces.loop import TrainingLoop


def explain_stall(loop: TrainingLoop, state: str = "nothing is under way any more") -> str:
    """One paragraph: what the trainer lacks, what could still bring it, and which credit is missing."""
    view = loop.view
    size = view.config.batch_size
    lines = [
        f"the run stalls at {view.now:.6g} s after {view.steps_finished} of {view.config.steps} steps: "
        f"{state}"
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
    """What to change first, from where the time of a run went.

    "trainer" and "rollout": that pool works (nearly) all the time. "kv_cache": replicas are full.
    "taking_turns": both pools wait for each other, as in synchronous RL. "staleness_gate",
    "concurrency": that limit keeps the replicas idle. "weight_sync": loads and publishes take the time.
    """
    share = report["time_share"]
    idle = report["idle_by_cause"]["rollout"]
    loading = share["rollout"].get("load", 0.0) + share["trainer"].get("publish", 0.0)
    candidates = {
        "weight_sync": loading,
        "staleness_gate": idle.get("staleness_gate", 0.0),
        "concurrency": idle.get("concurrency", 0.0),
    }
    if (report["utilisation"]["trainer"] or 0.0) >= 0.9:
        return "trainer"
    if report["blocked_by"]["kv"] > 0.5 * report["sim_time_s"]:
        return "kv_cache"
    if (report["utilisation"]["rollout"] or 0.0) >= 0.9:
        return "rollout"
    waiting = report["idle_by_cause"]["trainer"].get("rollouts", 0.0)
    if min(waiting, sum(idle.values())) > 0.1:
        return "taking_turns"
    return max(candidates, key=lambda name: candidates[name])
