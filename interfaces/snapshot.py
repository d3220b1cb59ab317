"""What a run must remember to go on after a kill: a JSON-able picture of the core, and the way back.

Taken together with the weights (best when a step ends), it makes recovery exact: every prompt of the epoch is
trained once, staleness stays within the bound, versions go on. What was ready or held by the trainer is ready
again; what was running is admitted again, in front of all that is new.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from interfaces.errors import TraceError
from interfaces.ledger import Prompt
from interfaces.loop import TrainingLoop
from interfaces.policies.protocols import Policy
from interfaces.rollout import Group, GroupState, Rollout, RolloutState, Segment
from interfaces.view import LoopConfig

SCHEMA = 1


def snapshot(loop: TrainingLoop) -> dict[str, Any]:
    """The state of a run as JSON-able data; the loop is not changed.

    Groups that the trainer holds count as ready: their step has not changed the weights yet. So do the
    prompts that an open (streamed) step has already consumed: they are admitted again.
    """
    view, ledger = loop.view, loop.ledger
    running = [[group.prompt, group.attempt + 1] for group in view.running.values()]
    streamed = [[prompt.index, prompt.attempt + 1] for prompt in ledger.uncommitted]
    waiting = [[prompt.index, prompt.attempt] for prompt in ledger.requeued]
    discarded = dict(ledger.discarded)
    if running or streamed:
        discarded["restart"] = discarded.get("restart", 0) + len(running) + len(streamed)
    trained_prompts = ledger.trained_prompts
    return {
        "schema": SCHEMA,
        "policy": loop.policy.name,
        "version": view.version,
        "next_index": ledger.next_index,
        "requeued": [*streamed, *running, *waiting],
        "ready": [_group(group) for group in (*view.training.values(), *view.ready.values())],
        "admitted_groups": ledger.admitted_groups,
        "admitted_rollouts": ledger.admitted_rollouts,
        "trained_groups": view.trained_groups - len(streamed),
        "trained_rollouts": ledger.trained_rollouts - ledger.uncommitted_rollouts,
        "discarded": discarded,
        "trained_prompts": None if trained_prompts is None else sorted(trained_prompts.items()),
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "id": group.id,
        "prompt": group.prompt,
        "attempt": group.attempt,
        "rollouts": [
            {
                "id": rollout.id,
                "member": rollout.member,
                "attempt": rollout.attempt,
                "failures": rollout.failures,
                "segments": [list(segment) for segment in rollout.segments],
                "reward": rollout.reward,
            }
            for rollout in group.rollouts
        ],
    }


def restore(
    policy: Policy, config: LoopConfig, state: dict[str, Any], loop_class: type[TrainingLoop] = TrainingLoop
) -> TrainingLoop:
    """A loop that goes on from a snapshot. Its first event is `RunStarted` with the snapshot's version.

    Capacity after it is what the policy allows at that version minus what is ready (AReaL#1388), and ready
    groups that a hard bound can no longer take go by the policy's own rule at the first decision.

    Raises:
        TraceError: not a snapshot of this schema.
    """
    if state.get("schema") != SCHEMA:
        raise TraceError(f"snapshot schema {state.get('schema')!r}, this version reads {SCHEMA}")
    loop = loop_class(policy, config)
    view, ledger = loop.view, loop.ledger
    view.version = view.published = view.steps_started = view.steps_finished = state["version"]
    view.trained_groups = state["trained_groups"]
    view.discarded_groups = sum(state["discarded"].values())
    ledger.next_index = state["next_index"]
    ledger.requeued.extend(Prompt(index, attempt) for index, attempt in state["requeued"])
    ledger.admitted_groups = state["admitted_groups"]
    ledger.admitted_rollouts = state["admitted_rollouts"]
    ledger.trained_rollouts = state["trained_rollouts"]
    ledger.discarded.update(state["discarded"])
    if state["trained_prompts"] is not None:
        ledger.trained_prompts = Counter(dict(state["trained_prompts"]))
    for record in state["ready"]:
        group = _restored(record)
        ledger.groups[group.id] = view.ready[group.id] = group
    return loop


def _restored(record: dict[str, Any]) -> Group:
    members: Iterable[dict[str, Any]] = record["rollouts"]
    group = Group(record["id"], record["prompt"], record["attempt"], len(record["rollouts"]))
    for member in members:
        rollout = Rollout(member["id"], group, member["member"])
        rollout.attempt, rollout.failures = member["attempt"], member["failures"]
        rollout.add_segments(tuple(Segment(*segment) for segment in member["segments"]))
        rollout.dispatch_version = rollout.head_version
        rollout.reward, rollout.state = member["reward"], RolloutState.FINISHED
        group.rollouts.append(rollout)
    group.rollout_ids = tuple(rollout.id for rollout in group.rollouts)
    group.finished = group.needed
    group.head_version = min(rollout.head_version for rollout in group.rollouts)
    group.tail_version = max(rollout.tail_version for rollout in group.rollouts)
    group.state = GroupState.READY
    return group
