"""What an event does to the model, and whether it can be true: a failure here is the backend's."""

from collections.abc import Callable
from typing import Any

from interfaces import events
from interfaces.actions import ABORTS, InFlight
from interfaces.conformance.books import Books, Member, ReplicaState
from interfaces.rollout import PolicyVersion, Segment

BACKEND = "the backend: it reported something that cannot have happened"
_SLACK = 1e-6


class Facts:
    """Feeds events into the books."""

    def __init__(self, books: Books, fail: Callable[[int, str, str, str], None]) -> None:
        self.books = books
        self._fail = fail
        self._now = float("-inf")
        self._handlers: dict[type[events.Event], Callable[[Any], None]] = {
            events.RunStarted: self._run_started,
            events.RolloutFinished: self._finished,
            events.RolloutAborted: self._aborted,
            events.RolloutFailed: self._failed,
            events.RewardReady: self._reward_ready,
            events.RewardFailed: self._reward_failed,
            events.TrainingFinished: self._training_finished,
            events.WeightsPublished: self._published,
            events.WeightsLoaded: self._loaded,
            events.ReplicaDown: self._down,
            events.ReplicaUp: self._up,
            events.RoleSwitched: self._switched,
            events.EngineLoad: lambda _: None,
            events.CheckpointFinished: lambda _: self._done("checkpoint"),
            events.EvaluationFinished: lambda _: self._done("evaluation"),
            events.TimerFired: lambda _: self._done("timer"),
            events.StopRequested: lambda _: self.books.stop(),
        }

    def restarted(self, books: Books) -> None:
        """Go on with other books after a kill."""
        self.books = books
        self._now = float("-inf")

    def take(self, event: events.Event) -> None:
        """Enter one event."""
        if event.at < self._now - _SLACK:
            self._fail(
                5, f"an event at or after {self._now} s", f"{type(event).__name__} at {event.at} s", BACKEND
            )
        self._now = max(self._now, event.at)
        self._handlers[type(event)](event)

    # ---- rollouts -------------------------------------------------------------------------------------

    def _member(
        self, event: events.RolloutFinished | events.RolloutAborted | events.RolloutFailed
    ) -> Member | None:
        member = self.books.members.get(event.rollout)
        if member is None or member.replica != event.replica:
            where = "nowhere" if member is None or member.replica < 0 else f"on replica {member.replica}"
            kind = type(event).__name__
            self._fail(
                5, f"{kind} of a rollout on replica {event.replica}", f"{event.rollout} is {where}", BACKEND
            )
            return None
        return member

    def _finished(self, event: events.RolloutFinished) -> None:
        member = self._member(event)
        if member is None:
            return
        self._segments(member, event.segments)
        if not member.tokens:
            self._fail(
                5, "a finished rollout has at least one token", f"rollout {member.id} has none", BACKEND
            )
        first = event.first_token_at
        slack = _SLACK * (1.0 + abs(event.at))
        if not member.submitted_at - slack <= first <= event.at + slack:
            expected = f"{member.submitted_at} (submit) <= first token <= {event.at} (finish)"
            self._fail(5, expected, f"first token of rollout {member.id} at {first}", BACKEND)
        self.books.leave(member)
        if not member.wanted:
            return
        if event.reward is None:
            member.state = "rewarding"
            self.books.rewarding += 1
        else:
            self.books.rewarded(member)

    def _aborted(self, event: events.RolloutAborted) -> None:
        member = self._member(event)
        if member is None:
            return
        self._segments(member, event.segments)
        intent = self.books.leave(member)
        if member.wanted:
            fates = {InFlight.ABORT_RESUME: "must", InFlight.ABORT_RESTART: "never"}
            self.books.wait(member, "may" if intent is None else fates.get(intent, "may"))

    def _failed(self, event: events.RolloutFailed) -> None:
        member = self._member(event)
        if member is None:
            return
        self.books.leave(member)
        if member.wanted:
            self.books.wait(member, "never")

    def _segments(self, member: Member, segments: tuple[Segment, ...]) -> None:
        """Append what was generated since the last dispatch; versions may only rise, up to the replica's."""
        replica = self.books.replicas[member.replica]
        previous: PolicyVersion = max(member.tail, member.dispatch_version)
        for version, tokens in segments:
            if tokens <= 0 or not previous <= version <= replica.version:
                expected = f"segments of at least one token, versions in [{previous}, {replica.version}]"
                seen = f"rollout {member.id} reports {[tuple(s) for s in segments]}"
                self._fail(4, expected, seen, BACKEND)
            previous = version
        new = sum(segment[1] for segment in segments)
        if member.token_budget is not None and new > member.token_budget:
            seen = f"rollout {member.id} made {new}"
            self._fail(17, f"at most {member.token_budget} new tokens, as asked", seen, BACKEND)
        if segments:
            if not member.tokens:
                member.head = segments[0].version
            member.tail = segments[-1].version
            member.tokens += new
            member.segments = (*member.segments, *segments)

    def _rewarding(self, rollout: int) -> Member | None:
        member = self.books.members.get(rollout)
        if member is None:
            return None  # its group was discarded meanwhile
        if member.state != "rewarding":
            expected = "a reward for a finished rollout without one"
            self._fail(5, expected, f"rollout {rollout} is {member.state}", BACKEND)
            return None
        self.books.rewarding -= 1
        return member

    def _reward_ready(self, event: events.RewardReady) -> None:
        member = self._rewarding(event.rollout)
        if member is not None:
            self.books.rewarded(member)

    def _reward_failed(self, event: events.RewardFailed) -> None:
        member = self._rewarding(event.rollout)
        if member is not None:
            self.books.wait(member, "never")

    # ---- versions and replicas ------------------------------------------------------------------------

    def _run_started(self, event: events.RunStarted) -> None:
        if event.version != self.books.version:
            seen = f"RunStarted with version {event.version}"
            self._fail(4, f"the run starts at version {self.books.version}", seen, BACKEND)
        for replica in event.replicas:
            self.books.replicas[replica] = ReplicaState(event.version)

    def _training_finished(self, event: events.TrainingFinished) -> None:
        books = self.books
        if books.stopped:
            return
        if not books.states["training"] or event.step != books.steps_started - 1:
            self._fail(
                5, "TrainingFinished answers a Train action", f"step {event.step} was not training", BACKEND
            )
        if event.last == books.step_open:
            self._fail(5, f"TrainingFinished(last={not books.step_open})", f"last={event.last}", BACKEND)
        books.train_finished(last=event.last)

    def _published(self, event: events.WeightsPublished) -> None:
        if event.version != self.books.publishing:
            seen = f"version {event.version}"
            self._fail(4, f"version {self.books.publishing} is published", seen, BACKEND)
        self.books.published, self.books.publishing = event.version, None

    def _loaded(self, event: events.WeightsLoaded) -> None:
        replica = self.books.replicas[event.replica]
        if not replica.alive or event.version != replica.loading:
            expected = f"replica {event.replica} loads version {replica.loading}"
            self._fail(4, expected, f"it reports version {event.version}", BACKEND)
        stayed = [rollout for rollout, what in replica.in_flight.items() if what in ABORTS]
        if stayed:
            expected = "RolloutAborted of everything the load aborts, before WeightsLoaded"
            self._fail(13, expected, f"rollouts {stayed} are still on replica {event.replica}", BACKEND)
        self.books.loading -= replica.loading is not None
        replica.version, replica.loading = event.version, None
        replica.in_flight.clear()

    def _down(self, event: events.ReplicaDown) -> None:
        self.books.replica_down(self.books.replicas[event.replica])

    def _up(self, event: events.ReplicaUp) -> None:
        old = self.books.replicas.get(event.replica)
        if (old is not None and old.alive) or event.version > self.books.published:
            expected = f"a dead replica comes back with a version <= {self.books.published}"
            self._fail(4, expected, f"replica {event.replica} comes up with {event.version}", BACKEND)
        self.books.replicas[event.replica] = ReplicaState(event.version)

    def _switched(self, event: events.RoleSwitched) -> None:
        if event.role != self.books.switching:
            self._fail(5, f"RoleSwitched to {self.books.switching}", f"to {event.role}", BACKEND)
        self.books.role, self.books.switching = event.role, None

    def _done(self, what: str) -> None:
        if self.books.busy[what]:
            self.books.busy[what] -= 1
