"""Checks of what a training step consumes."""

from interfaces import actions
from interfaces.conformance.books import Books, Member, PromptGroup
from interfaces.conformance.limits import Fail
from interfaces.policies.protocols import Policy
from interfaces.rollout import PolicyVersion
from interfaces.view import LoopConfig


class Consumption:
    """Enters `Train` actions into the books, and checks groups, versions, staleness and batch size."""

    def __init__(self, books: Books, policy: Policy, config: LoopConfig, fail: Fail) -> None:
        self.books = books
        self.policy = policy
        self.config = config
        self.guarantees = policy.guarantees
        self._fail = fail
        self.staleness: int | None = None
        """Largest staleness that the answer at hand trains."""
        self.reached: int = -1
        """Largest staleness trained so far."""

    # ---- training -------------------------------------------------------------------------------------

    def take(self, action: actions.Train) -> None:
        """Enter one training."""
        books = self.books
        if books.states["training"]:
            self._fail(
                5,
                "one training at a time",
                f"step {action.step} while another trains",
                "buffering or the core",
            )
        if action.version != books.version or action.step != books.steps_started - books.step_open:
            expected = f"step {books.steps_started - books.step_open} from version {books.version}"
            self._fail(
                4,
                expected,
                f"step {action.step} from version {action.version}",
                "the core: a version was skipped",
            )
        if self.policy.capacity.colocated and (books.role != "train" or books.switching):
            seen = f"the GPUs are at {books.switching or books.role!r}"
            self._fail(
                13,
                "colocated GPUs train in the role 'train'",
                seen,
                "capacity: role switch and training overlap",
            )
        groups = self._groups(action)
        for group in groups:
            self._consume(group, action)
        books.take(groups, last=action.last)
        self._batch(action)
        running = books.states["running"]
        if self._synchronous and running and action.last:
            seen = f"{running} groups are still being generated when step {action.step} starts"
            self._fail(
                10,
                "at bound 0 nothing is generated while the trainer works",
                seen,
                "admission: lets the next batch in early",
            )

    @property
    def _synchronous(self) -> bool:
        promise = self.guarantees
        return promise.hard and promise.max_staleness == 0 and not promise.per_token

    def _groups(self, action: actions.Train) -> list[PromptGroup]:
        """The whole, ready groups that these rollouts are."""
        books, found, listed = self.books, {}, set(action.rollouts)
        for rollout in action.rollouts:
            member = books.members.get(rollout)
            if member is None or not member.wanted:
                seen = f"rollout {rollout} was trained or discarded before, or never ran"
                self._fail(
                    2, "a step consumes rollouts that wait for it", seen, "buffering: a group is taken twice"
                )
                continue
            group = member.group
            if member.state != "done":
                seen = f"rollout {rollout} of prompt {group.prompt} is {member.state}"
                self._fail(
                    5,
                    "a step consumes finished and rewarded rollouts",
                    seen,
                    "buffering: an unfinished group",
                )
            found[group.prompt] = group
        if len(listed) != len(action.rollouts) or len(set(action.groups)) != len(action.groups):
            self._fail(
                2,
                "each rollout once in a step",
                f"rollouts {action.rollouts}",
                "buffering: a group is listed twice",
            )
        for group in found.values():
            self._whole(group, listed, action)
        if len(found) != len(action.groups):
            expected = f"{len(action.groups)} groups, as listed"
            self._fail(
                8, expected, f"rollouts of {len(found)} prompts", "the core: groups and rollouts differ"
            )
        return [group for group in found.values() if group.state == "ready"]

    def _whole(self, group: PromptGroup, listed: set[int], action: actions.Train) -> None:
        missing = [rollout for rollout in group.members if rollout not in listed]
        if group.state == "training":
            seen = f"prompt {group.prompt} again in step {action.step}"
            self._fail(2, "a group trains once", seen, "buffering: a group is taken twice")
        elif self.guarantees.whole_groups and (missing or len(group.members) != self.config.group_size):
            expected = f"all {self.config.group_size} members of prompt {group.prompt}"
            seen = f"{len(group.members) - len(missing)} of them"
            self._fail(8, expected, seen, "buffering: a partial group trains")

    def _consume(self, group: PromptGroup, action: actions.Train) -> None:
        """Staleness at consumption, of every rollout (or of every token that counts)."""
        promise = self.guarantees
        for member in group.members.values():
            if member.head < 0:
                continue
            age = action.version - member.head
            self.staleness = max(age, self.staleness or 0)
            if age < 0:
                seen = (
                    f"rollout {member.id} has head version {member.head}, the step version {action.version}"
                )
                self._fail(
                    4, "nothing trained is newer than the step", seen, "the core: versions are shifted"
                )
            if promise.single_version and member.head != member.tail:
                seen = f"rollout {member.id} spans versions {member.head} to {member.tail}"
                self._fail(
                    4,
                    "every rollout has one version, as declared",
                    seen,
                    "sync: work in flight outlives a load",
                )
            mask = member.tail if action.last_segment else action.mask_below
            counted = _oldest_counted(member.segments, mask)
            if promise.hard and promise.max_staleness is not None:
                self._bounded(member, action, counted if promise.per_token else member.head)
        self.reached = max(self.reached, self.staleness or 0)

    def _bounded(self, member: Member, action: actions.Train, oldest: PolicyVersion | None) -> None:
        bound = self.guarantees.max_staleness
        if oldest is None or bound is None or action.version - oldest <= bound:
            return
        what = "token that counts" if self.guarantees.per_token else "token"
        expected = f"staleness <= {bound:g} in step {action.step}, which starts from version {action.version}"
        seen = f"rollout {member.id}: oldest {what} of version {oldest}, staleness {action.version - oldest}"
        cause = "a straggler: the count gate bounds how many groups are outstanding, not the age of each"
        self._fail(3, expected, seen, cause)

    def _batch(self, action: actions.Train) -> None:
        books, size = self.books, self.config.batch_size
        taken = books.taken_in_step
        prompts = self.config.prompts
        partial = not self.guarantees.full_batches
        data_end = prompts is not None and self.config.last_batch == "train"
        if taken > size or (action.last and taken < size and not (data_end or partial)):
            expected = f"{size} groups a step"
            self._fail(8, expected, f"step {action.step} takes {taken}", "buffering: wrong batch size")


def _oldest_counted(
    segments: tuple[tuple[PolicyVersion, int], ...], mask_below: PolicyVersion | None
) -> PolicyVersion | None:
    """Oldest version among the tokens that are not masked; None when all are."""
    versions = [version for version, _ in segments if mask_below is None or version >= mask_below]
    return min(versions, default=None)
