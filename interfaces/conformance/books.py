"""An independent model of a run, kept from events and actions alone; what it disagrees with is a fault.

It knows nothing of the core's ledger. Memory is bounded by what is outstanding (and by what was dropped for
good), so it follows a trace of any length. Groups are known by their prompt: one has at most one at a time.
"""

from collections import Counter

from interfaces.actions import Generate, InFlight
from interfaces.conformance.prompts import PromptSet
from interfaces.rollout import PolicyVersion


class Member:
    """A rollout as the model sees it."""

    __slots__ = (
        "dispatch_version", "group", "head", "id", "replica", "resume", "segments", "state",
        "submitted_at", "tail", "token_budget", "tokens", "wanted",
    )  # fmt: skip

    def __init__(self, rollout: int, group: "PromptGroup") -> None:
        self.id = rollout
        self.group = group
        self.replica = -1
        self.state = "new"
        """new, waiting (for a replica, again), running, rewarding or done."""
        self.tokens = 0
        self.segments: tuple[tuple[PolicyVersion, int], ...] = ()
        self.head: PolicyVersion = -1
        self.tail: PolicyVersion = -1
        self.dispatch_version: PolicyVersion = -1
        self.submitted_at = 0.0
        self.token_budget: int | None = None
        self.resume = "may"
        """Whether the next start continues ("must"), begins again ("never") or either ("may")."""
        self.wanted = True

    def restart(self) -> None:
        """Nothing generated so far counts."""
        self.tokens = 0
        self.segments = ()
        self.head = self.tail = -1


class PromptGroup:
    """The rollouts of one prompt."""

    __slots__ = ("members", "prompt", "seen", "state")

    def __init__(self, prompt: int) -> None:
        self.prompt = prompt
        self.members: dict[int, Member] = {}
        self.seen = 0
        """Members ever dispatched."""
        self.state = "running"


class ReplicaState:
    """A replica as the model sees it."""

    __slots__ = ("alive", "in_flight", "loading", "rollouts", "version")

    def __init__(self, version: PolicyVersion) -> None:
        self.version = version
        self.alive = True
        self.loading: PolicyVersion | None = None
        self.in_flight: dict[int, InFlight] = {}
        """What the load under way does to each rollout that is still there."""
        self.rollouts: dict[int, Member] = {}


class Books:
    """Counts and states of a run."""

    def __init__(self, group_size: int, redundancy: int) -> None:
        self.group_size = group_size
        self.launched = group_size + redundancy
        self.version: PolicyVersion = 0
        self.published: PolicyVersion = 0
        self.publishing: PolicyVersion | None = None
        self.role = "generate"
        self.switching: str | None = None
        self.replicas: dict[int, ReplicaState] = {}
        self.groups: dict[int, PromptGroup] = {}
        """Live groups by prompt: running, ready or training."""
        self.members: dict[int, Member] = {}
        """Rollouts of live groups, and unwanted ones that a replica still holds."""
        self.states: Counter[str] = Counter()
        """Live groups that were ever dispatched, by state."""
        self.on_replicas = self.waiting = self.rewarding = 0
        self.loading = 0
        self.seen_rollouts = 0
        self.unseen_dropped = 0
        """Rollouts dropped before any replica had them."""
        self.trained_groups = self.discarded_groups = 0
        self.trained = PromptSet()
        self.dropped: set[int] = set()
        """Prompts discarded and not started again since."""
        self.unknown_dropped = 0
        """Groups discarded before any member was dispatched."""
        self.left: set[int] = set()
        """Prompts given back because the run ended."""
        self.steps_started = 0
        self.taken_in_step = 0
        self.step_open = False
        self.streamed: set[int] = set()
        """Prompts trained by parts of the open step: a kill undoes them."""
        self.busy: Counter[str] = Counter()
        self.restarts = 0
        self.last_prompt = -1
        self.stopped = False
        self.ended: str | None = None

    @property
    def outstanding(self) -> int:
        """Things a backend still owes an answer for."""
        return (
            self.on_replicas + self.rewarding + self.states["training"] + (self.publishing is not None)
            + self.loading + self.busy.total() + (self.switching is not None)
        )  # fmt: skip

    @property
    def alive(self) -> int:
        """Replicas that live."""
        return sum(replica.alive for replica in self.replicas.values())

    # ---- rollouts -------------------------------------------------------------------------------------

    def start(self, action: Generate, now: float) -> None:
        """A rollout is submitted."""
        member = self.members.get(action.rollout)
        if member is None:
            member = self._first_start(action)
        else:
            self.waiting -= 1
        if not action.resume_tokens:
            member.restart()
        replica = self.replicas[action.replica]
        if not member.tokens:
            member.submitted_at = now
        member.dispatch_version = replica.version
        member.replica, member.state, member.token_budget = action.replica, "running", action.token_budget
        replica.rollouts[action.rollout] = member
        self.on_replicas += 1

    def _first_start(self, action: Generate) -> Member:
        group = self.groups.get(action.prompt)
        if group is None:
            group = self.groups[action.prompt] = PromptGroup(action.prompt)
            self.states["running"] += 1
            self.dropped.discard(action.prompt)
            self.left.discard(action.prompt)
            self.last_prompt = max(self.last_prompt, action.prompt)
        member = self.members[action.rollout] = group.members[action.rollout] = Member(action.rollout, group)
        group.seen += 1
        self.seen_rollouts += 1
        return member

    def leave(self, member: Member) -> InFlight | None:
        """A rollout is off its replica; returns what a load under way was to do with it."""
        replica = self.replicas[member.replica]
        del replica.rollouts[member.id]
        member.replica = -1
        self.on_replicas -= 1
        if not member.wanted:
            del self.members[member.id]
        return replica.in_flight.pop(member.id, None)

    def wait(self, member: Member, resume: str) -> None:
        """A wanted rollout came back and waits for a replica."""
        member.state, member.resume = "waiting", resume
        if resume == "never":
            member.restart()
        self.waiting += 1

    def rewarded(self, member: Member) -> None:
        """A member has its reward; the last one needed makes its group ready and the others unwanted."""
        member.state = "done"
        group = member.group
        if sum(m.state == "done" for m in group.members.values()) < self.group_size:
            return
        for other in [m for m in group.members.values() if m.state != "done"]:
            self._unwanted(other)
            del group.members[other.id]
        self.unseen_dropped += self.launched - group.seen
        self._move(group, "ready")

    def _unwanted(self, member: Member) -> None:
        self.waiting -= member.state == "waiting"
        self.rewarding -= member.state == "rewarding"
        member.wanted = False
        if member.replica < 0:
            del self.members[member.id]

    # ---- groups ---------------------------------------------------------------------------------------

    def _move(self, group: PromptGroup, state: str) -> None:
        self.states[group.state] -= 1
        self.states[state] += 1
        group.state = state

    def take(self, groups: list[PromptGroup], *, last: bool) -> None:
        """The trainer takes ready groups."""
        for group in groups:
            self._move(group, "training")
        if not self.step_open:
            self.steps_started += 1
            self.taken_in_step = 0
        self.taken_in_step += len(groups)
        self.step_open = not last

    def train_finished(self, *, last: bool) -> None:
        """What the trainer held is trained."""
        for group in [g for g in self.groups.values() if g.state == "training"]:
            self._close(group)
            self.trained.add(group.prompt)
            self.trained_groups += 1
            if not last:
                self.streamed.add(group.prompt)
        if last:
            self.streamed.clear()
            self.version += 1

    def discard(self, group: PromptGroup, reason: str) -> None:
        """A group will not train."""
        for member in list(group.members.values()):
            self._unwanted(member)
        self._close(group)
        self.discarded_groups += 1
        self.trained.skip(group.prompt)
        (self.left if reason == "run_end" else self.dropped).add(group.prompt)

    def _close(self, group: PromptGroup) -> None:
        self.states[group.state] -= 1
        del self.groups[group.prompt]
        for member in group.members.values():
            if member.wanted:
                del self.members[member.id]

    def stop(self) -> None:
        """The user stopped the run: what the trainer holds is not trained."""
        self.stopped = True
        for group in [g for g in self.groups.values() if g.state == "training"]:
            self.discard(group, "run_end")

    # ---- replicas and recovery ------------------------------------------------------------------------

    def replica_down(self, replica: ReplicaState) -> None:
        """Everything on it is lost."""
        for member in list(replica.rollouts.values()):
            self.leave(member)
            if member.wanted:
                self.wait(member, "never")
        self.loading -= replica.loading is not None
        replica.alive, replica.loading = False, None
        replica.in_flight.clear()

    def restart(self) -> None:
        """The process was killed and starts again from a snapshot of exactly this state."""
        self.restarts += 1
        for group in list(self.groups.values()):
            if group.state == "running":
                self._forget(group)
            elif group.state == "training":
                self._move(group, "ready")
        for prompt in self.streamed:
            self.trained.forget(prompt)  # undone: it is a gap again, to be trained once more
        self.trained_groups -= len(self.streamed)
        self.discarded_groups += len(self.streamed)
        self.streamed.clear()
        self.members = {m.id: m for g in self.groups.values() for m in g.members.values()}
        self.replicas.clear()
        self.busy.clear()
        self.on_replicas = self.waiting = self.rewarding = self.loading = 0
        self.publishing = self.switching = self.ended = None
        self.role, self.step_open, self.stopped = "generate", False, False
        self.published = self.steps_started = self.version

    def _forget(self, group: PromptGroup) -> None:
        self.states["running"] -= 1
        del self.groups[group.prompt]
        self.discarded_groups += 1
