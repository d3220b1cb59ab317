"""Who is where: groups, rollouts, prompts and the credit they hold. Every count changes here."""

from collections import Counter, deque
from collections.abc import Iterable, Sequence

from interfaces.queue import DispatchQueue
from interfaces.rollout import FINISHED, GONE, PENDING, Group, GroupState, Rollout
from interfaces.view import View


class Prompt:
    """A prompt to admit and how often it was admitted before."""

    __slots__ = ("attempt", "index")

    def __init__(self, index: int, attempt: int) -> None:
        self.index = index
        self.attempt = attempt


class Ledger:
    """The books of a run. Conservation holds after every event:

    admitted groups = running + ready + training + trained + discarded, and the same for rollouts.
    """  # noqa: D415

    def __init__(self, view: View) -> None:
        self._view = view
        self.groups: dict[int, Group] = {}
        """Groups whose credit is out: running, ready or training."""
        self.rollouts: dict[int, Rollout] = {}
        """Members not yet finished and rewarded, and dropped ones that a replica still holds."""
        self.admitted_groups = 0
        self.admitted_rollouts = 0
        self.trained_rollouts = 0
        self.discarded: Counter[str] = Counter()
        """Groups discarded, by reason."""
        self.trained_prompts: Counter[int] | None = None
        """How often each prompt was trained; kept only when a check asks for it."""
        self.next_index = 0
        """First prompt never admitted."""
        self.requeued: deque[Prompt] = deque()
        """Prompts to admit again, before any new one (unless the policy wants new ones first)."""
        view.requeued = self.requeued
        self.uncommitted: list[Prompt] = []
        """Prompts that an open (streamed) step has consumed: a kill now would undo them."""
        self.uncommitted_rollouts = 0
        self.queue = DispatchQueue()
        """Rollouts that wait for a replica."""

    # ---- prompts and admission ------------------------------------------------------------------------

    def next_prompt(self, *, new_first: bool = False) -> Prompt | None:
        """The prompt that the next group takes; None when the data are used up."""
        prompts = self._view.config.prompts
        used_up = prompts is not None and self.next_index >= prompts
        if self.requeued and (used_up or not new_first):
            return self.requeued[0]
        if used_up:
            self._view.prompts_left = False
            return None
        return Prompt(self.next_index, 0)

    def admit(self, redundancy: int, *, new_first: bool = False) -> list[Rollout]:
        """Open a group for the next prompt and return its members."""
        prompt = self.next_prompt(new_first=new_first)
        assert prompt is not None, "admit() without a prompt"
        if self.requeued and prompt is self.requeued[0]:
            self.requeued.popleft()
        else:
            self.next_index += 1
        config = self._view.config
        group = Group(self.admitted_groups, prompt.index, prompt.attempt, config.group_size)
        self.admitted_groups += 1
        first = self.admitted_rollouts
        size = config.group_size + redundancy
        self.admitted_rollouts += size
        group.rollouts = [Rollout(first + member, group, member) for member in range(size)]
        self.groups[group.id] = self._view.running[group.id] = group
        group.rollout_ids = tuple(range(first, first + size))
        self.rollouts.update(zip(group.rollout_ids, group.rollouts, strict=True))
        return group.rollouts

    # ---- the dispatch queue ---------------------------------------------------------------------------

    def enqueue(self, rollouts: Sequence[Rollout], priority: float) -> None:
        """Let rollouts that enter together wait for a replica."""
        for rollout in rollouts:
            rollout.state = PENDING
        self.queue.push(rollouts, priority)
        self._view.pending_rollouts += len(rollouts)

    # ---- groups ---------------------------------------------------------------------------------------

    def finish(self, rollout: Rollout, reward: float) -> None:
        """A member is finished and rewarded."""
        rollout.reward = reward
        rollout.state = FINISHED
        del self.rollouts[rollout.id]
        group = rollout.group
        group.finished += 1
        if rollout.head_version < group.head_version or group.head_version < 0:
            group.head_version = rollout.head_version
        if rollout.tail_version > group.tail_version:  # noqa: PLR1730 (max() is a call a rollout)
            group.tail_version = rollout.tail_version

    def dismiss(self, group: Group, rollout: Rollout) -> None:
        """A redundant member is not needed any more."""
        group.rollouts.remove(rollout)
        group.rollout_ids = tuple(member.id for member in group.rollouts)

    def make_ready(self, group: Group) -> None:
        """All members are finished and rewarded."""
        group.state = GroupState.READY
        del self._view.running[group.id]
        self._view.ready[group.id] = group

    def take(self, groups: Iterable[Group]) -> None:
        """The trainer takes these ready groups."""
        for group in groups:
            del self._view.ready[group.id]
            group.state = GroupState.TRAINING
            self._view.training[group.id] = group

    def trained(self, *, step_ends: bool) -> None:
        """All groups that the trainer held are trained."""
        for group in self._view.training.values():
            if not step_ends:
                self.uncommitted.append(Prompt(group.prompt, group.attempt))
                self.uncommitted_rollouts += len(group.rollouts)
            group.state = GroupState.TRAINED
            self.trained_rollouts += group.needed
            if self.trained_prompts is not None:
                self.trained_prompts[group.prompt] += 1
            self._release(group)
        self._view.trained_groups += len(self._view.training)
        self._view.training.clear()
        if step_ends:
            self.uncommitted.clear()
            self.uncommitted_rollouts = 0

    def return_training(self) -> None:
        """The run stops in the middle of a step: what the trainer held is not trained."""
        for group in reversed(self._view.training.values()):
            group.state = GroupState.DISCARDED
            self.requeued.appendleft(Prompt(group.prompt, group.attempt + 1))
            self.discarded["run_end"] += 1
            self._release(group)
        self._view.discarded_groups += len(self._view.training)
        self._view.training.clear()

    def discard(self, group: Group, reason: str, *, requeue: bool) -> None:
        """A running or ready group gives its credit back, once; its members were dropped before."""
        del (self._view.running if group.state is GroupState.RUNNING else self._view.ready)[group.id]
        group.state = GroupState.DISCARDED
        self.discarded[reason] += 1
        self._view.discarded_groups += 1
        del self.groups[group.id]
        group.rollouts = []
        if requeue:
            self.requeued.appendleft(Prompt(group.prompt, group.attempt + 1))
            self._view.prompts_left = True

    def _release(self, group: Group) -> None:
        del self.groups[group.id]
        group.rollouts = []

    # ---- rollouts -------------------------------------------------------------------------------------

    def drop(self, rollout: Rollout) -> None:
        """It will not train."""
        if rollout.state is PENDING:
            self._view.pending_rollouts -= 1
        rollout.state = GONE

    def forget(self, rollout: Rollout) -> None:
        """A dropped rollout is on no replica any more."""
        self.rollouts.pop(rollout.id, None)
