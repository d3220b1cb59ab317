"""What an action does to the model, and whether it may be asked for (else: a fault of policy or core)."""

from collections.abc import Callable
from typing import Any

from interfaces import actions
from interfaces.actions import WAITS
from interfaces.conformance.books import Books, Member
from interfaces.conformance.consumption import Consumption
from interfaces.conformance.limits import Fail, Limits
from interfaces.policies.protocols import Policy
from interfaces.rollout import PolicyVersion
from interfaces.view import LoopConfig

EXCUSED = ("failed", "run_end")
"""Reasons for which a group may be discarded although a policy promises to drop nothing."""


class Intents:
    """Feeds actions into the books."""

    def __init__(self, books: Books, policy: Policy, config: LoopConfig, fail: Fail) -> None:
        self.books = books
        self.policy = policy
        self.config = config
        self.guarantees = policy.guarantees
        self.limits = Limits(policy)
        self._fail = fail
        self.consumption = Consumption(books, policy, config, fail)
        self._handlers: dict[type[actions.Action], Callable[[Any, float], None]] = {
            actions.Generate: self._generate,
            actions.Abort: lambda _, __: None,
            actions.Publish: self._publish,
            actions.LoadWeights: self._load,
            actions.Train: lambda action, _: self.consumption.take(action),
            actions.Discard: self._discard,
            actions.Dismiss: lambda _, __: None,
            actions.SwitchRole: self._switch,
            actions.Checkpoint: lambda _, __: self._busy("checkpoint"),
            actions.Evaluate: lambda _, __: self._busy("evaluation"),
            actions.SetTimer: lambda _, __: self._busy("timer"),
            actions.AdmissionBlocked: lambda _, __: None,
            actions.EndRun: self._end,
        }

    def restarted(self, books: Books) -> None:
        """Go on with other books after a kill."""
        self.books = self.consumption.books = books

    def take(self, action: actions.Action, now: float) -> None:
        """Enter one action, answered at this time."""
        if self.books.ended is not None:
            self._fail(
                16, "nothing is asked for after EndRun", f"{type(action).__name__}", "the core's end of a run"
            )
        self._handlers[type(action)](action, now)

    def _busy(self, what: str) -> None:
        self.books.busy[what] += 1

    # ---- generation -----------------------------------------------------------------------------------

    def _generate(self, action: actions.Generate, now: float) -> None:
        books, rollout = self.books, action.rollout
        replica = books.replicas.get(action.replica)
        if replica is None or not replica.alive:
            self._fail(
                5,
                "work for a living replica",
                f"rollout {rollout} on {action.replica}",
                "dispatch: a dead replica",
            )
            return
        if replica.loading is not None:
            seen = (
                f"rollout {rollout} starts on replica {action.replica}, which loads version {replica.loading}"
            )
            self._fail(
                13,
                "a replica that loads gets no work",
                seen,
                "dispatch: placed on a replica that is not open",
            )
        if books.role != "generate" or books.switching:
            seen = f"rollout {rollout} starts while the GPUs are at {books.switching or books.role!r}"
            self._fail(
                13,
                "generation only in the role 'generate'",
                seen,
                "capacity: role switch and dispatch overlap",
            )
        member = books.members.get(rollout)
        new_group = action.prompt not in books.groups
        if member is not None and member.state != "waiting":
            seen = f"rollout {rollout} is {member.state}"
            self._fail(
                5, "a rollout starts once and again only after it came back", seen, "dispatch: started twice"
            )
            return
        if action.prompt in books.trained or (
            not new_group and books.groups[action.prompt].state != "running"
        ):
            seen = f"prompt {action.prompt} starts again as rollout {rollout}"
            self._fail(
                2, "a prompt that trained is not generated again", seen, "data: the prompt was queued twice"
            )
        self._resumed(action, member, replica.version)
        books.start(action, now)
        if new_group:
            self._admitted()
        self.limits.dispatched(action.replica, len(replica.rollouts), self._fail)

    def _resumed(self, action: actions.Generate, member: Member | None, version: PolicyVersion) -> None:
        have = 0 if member is None else member.tokens
        fate = "may" if member is None else member.resume
        allowed = {"must": (have,), "never": (0,), "may": (0, have)}[fate]
        if action.resume_tokens not in allowed:
            expected = (
                f"rollout {action.rollout} goes on with {' or '.join(map(str, sorted(set(allowed))))} tokens"
            )
            cause = "sync: ABORT_RESUME and ABORT_RESTART are mixed up, or tokens are counted wrong"
            self._fail(17, expected, f"{action.resume_tokens}", cause)
        if member is not None and action.resume_tokens and version < member.tail:
            expected = f"rollout {action.rollout} goes on under version {member.tail} or a newer one"
            self._fail(
                4,
                expected,
                f"replica {action.replica} serves version {version}",
                "dispatch: moved back in time",
            )

    def _admitted(self) -> None:
        """A group was started: the limits on groups hold."""
        states, promise = self.books.states, self.guarantees
        untaken = states["running"] + states["ready"]
        if promise.max_staleness is not None and not promise.hard:
            room = (promise.max_staleness + 1) * self.config.batch_size
            if untaken > room:
                expected = f"at most (eta + 1) * B = {room:g} groups outstanding, AReaL eq. (3)"
                self._fail(3, expected, f"{untaken}", "admission: off by one, or credit returned twice")
        self.limits.admitted(states["running"], untaken, self._fail)

    def _discard(self, action: actions.Discard, now: float) -> None:  # noqa: ARG002
        books = self.books
        members = [books.members[r] for r in action.rollouts if r in books.members]
        books.unseen_dropped += sum(r not in books.members for r in action.rollouts)
        if not members:
            books.unknown_dropped += 1
            books.discarded_groups += 1
            return
        group = members[0].group
        if group.state == "training" or any(m.group is not group or not m.wanted for m in members):
            seen = f"group {action.group} (prompt {group.prompt}, {group.state}) is discarded"
            self._fail(
                1, "one group is discarded, once, before it trains", seen, "buffering: credit returned twice"
            )
            return
        if self.guarantees.no_drops and action.reason not in EXCUSED:
            seen = f"prompt {group.prompt} is discarded ({action.reason})"
            self._fail(
                1,
                "nothing is dropped, as declared",
                seen,
                "buffering or sync: drops, or Guarantees.no_drops is wrong",
            )
        books.discard(group, action.reason)

    # ---- weights, roles, the end ----------------------------------------------------------------------

    def _publish(self, action: actions.Publish, now: float) -> None:  # noqa: ARG002
        books = self.books
        if books.publishing is not None or not books.published < action.version <= books.version:
            expected = f"one publish at a time, of a version in ({books.published}, {books.version}]"
            self._fail(
                4, expected, f"Publish({action.version})", "sync: publishes what is not trained yet, or twice"
            )
        books.publishing = action.version

    def _load(self, action: actions.LoadWeights, now: float) -> None:  # noqa: ARG002
        books = self.books
        replica = books.replicas.get(action.replica)
        if replica is None or not replica.alive or replica.loading is not None:
            seen = f"LoadWeights for replica {action.replica}"
            self._fail(13, "a living replica that is not loading already", seen, "sync: loads twice at once")
            return
        if not replica.version < action.version <= books.published:
            expected = f"a published version newer than the replica's: ({replica.version}, {books.published}]"
            self._fail(
                4,
                expected,
                f"replica {action.replica} is to load {action.version}",
                "sync: an old or unpublished version",
            )
        if books.role != "generate" or books.switching:
            seen = f"replica {action.replica} loads while the GPUs are at {books.switching or books.role!r}"
            self._fail(
                13,
                "weights are loaded in the role 'generate'",
                seen,
                "capacity: role switch and load overlap",
            )
        exceptions = dict(action.exceptions)
        fates = {rollout: exceptions.get(rollout, action.in_flight) for rollout in replica.rollouts}
        unclear = [rollout for rollout, fate in fates.items() if fate is None or fate in WAITS]
        if unclear:
            expected = "the load says what becomes of every rollout in flight, after those that are to finish"
            seen = f"replica {action.replica} loads with rollouts {unclear} running ({action.in_flight})"
            self._fail(13, expected, seen, "sync: loads without interrupting or draining first")
        undeclared = {f for f in fates.values() if f is not None} - self.policy.in_flight
        if undeclared:
            seen = ", ".join(sorted(f.value for f in undeclared))
            self._fail(
                9,
                "only in-flight actions that the policy declares",
                seen,
                "sync: Policy.in_flight is incomplete",
            )
        replica.loading = action.version
        replica.in_flight = {r: f for r, f in fates.items() if f is not None}
        books.loading += 1

    def _switch(self, action: actions.SwitchRole, now: float) -> None:  # noqa: ARG002
        books = self.books
        if books.on_replicas or books.loading or books.states["training"] or books.switching:
            seen = (
                f"SwitchRole({action.role}) with {books.on_replicas} rollouts on replicas, "
                f"{books.loading} replicas loading, {books.states['training']} groups training"
            )
            self._fail(
                13, "the GPUs change role when nothing is on them", seen, "capacity: switches too early"
            )
        books.switching = action.role

    def _end(self, action: actions.EndRun, now: float) -> None:  # noqa: ARG002
        self.books.ended = action.reason
