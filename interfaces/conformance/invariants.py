"""The monitor: all laws of the design that can be seen from events and actions, checked after every event."""

import copy
import json
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from interfaces.actions import Action
from interfaces.conformance.books import Books
from interfaces.conformance.facts import Facts
from interfaces.conformance.intents import Intents
from interfaces.conformance.violation import InvariantViolation, Step
from interfaces.diagnosis import explain_stall
from interfaces.errors import TestbedError
from interfaces.events import Event
from interfaces.loop import TrainingLoop
from interfaces.snapshot import restore, snapshot

EXCERPT = 10
"""Steps shown of a long run in which only some matter."""

LEDGER = "the core's books: a transition was counted twice or not at all"


class Saved(NamedTuple):
    """A snapshot of the core, and the monitor's own books of the same moment."""

    state: str
    """JSON of `interfaces.snapshot.snapshot`."""
    books: Books
    unseen_groups: int
    """Groups admitted of which no member was dispatched yet."""
    history: tuple[Step, ...]


class Monitor:
    """Wraps a loop: `feed` passes events through and checks every law after each.

    It keeps its own books from events and actions and compares the core's with them; it never corrects them.
    """

    take_snapshot = staticmethod(snapshot)
    go_on = staticmethod(restore)

    def __init__(self, loop: TrainingLoop, *, ignore: Collection[int] = (), keep: int | None = None) -> None:
        """Watch a loop from its start.

        Args:
            loop: a fresh loop (or one just restored).
            ignore: numbers of laws that are not to be raised.
            keep: how many steps of history to hold; None: all.
        """
        self.loop = loop
        self.ignore = frozenset(ignore)
        self.history: deque[Step] = deque(maxlen=keep)
        policy, config = loop.policy, loop.view.config
        books = self.books = Books(config.group_size, policy.capacity.redundancy)
        self._facts = Facts(books, self._fail)
        self._intents = Intents(books, policy, config, self._fail)
        self._now: tuple[Event | None, list[Action]] | None = None
        self.violated = False
        """Whether a law was found broken: what follows says nothing more."""

    # ---- what users call ------------------------------------------------------------------------------

    def feed(self, event: Event) -> list[Action]:
        """Pass one event to the loop and check the laws.

        Raises:
            InvariantViolation: a law was broken; the history ends with this event.
        """
        self._now = (event, [])
        self._facts.take(event)
        answer = self._ask(event)
        self._now = (event, answer)
        self._intents.consumption.staleness = None
        for action in answer:
            self._intents.take(action, event.at)
        self._compare()
        self.history.append(
            Step(event, tuple(answer), self.books.version, self._intents.consumption.staleness)
        )
        self._now = None
        return answer

    @property
    def max_staleness_seen(self) -> int:
        """Largest staleness that any step consumed so far; -1 before the first."""
        return self._intents.consumption.reached

    def save(self) -> Saved:
        """Take a snapshot, as a checkpoint would."""
        return self._saved(copy.deepcopy(self.books))

    def _saved(self, books: Books) -> Saved:
        state = json.dumps(self.take_snapshot(self.loop))
        unseen = len(self.loop.view.running) - books.states["running"]
        return Saved(state, books, unseen, tuple(self.history))

    def kill_and_restore(self, saved: Saved | None = None) -> None:
        """Throw the loop away and go on from a snapshot (default: of this moment)."""
        books = self.books if saved is None else copy.deepcopy(saved.books)
        saved = saved or self._saved(self.books)
        policy, config = self.loop.policy, self.loop.view.config
        state: dict[str, Any] = json.loads(saved.state)
        self.history = deque(saved.history, maxlen=self.history.maxlen)
        self._now = (None, [])
        self.loop = self.go_on(policy, config, state, type(self.loop))
        self.books = books
        self.books.restart()
        self.books.discarded_groups += saved.unseen_groups
        self.books.seen_rollouts = self.loop.ledger.admitted_rollouts - self.books.unseen_dropped
        self._facts.restarted(self.books)
        self._intents.restarted(self.books)
        self.history.append(Step(None, (), self.books.version, None, state))
        self._now = None

    def report(
        self,
        number: int,
        expected: str,
        seen: str,
        likely_cause: str,
        about: Callable[[Step], bool] | None = None,
    ) -> None:
        """Raise what a driver of this monitor found out, unless that law is ignored.

        Args:
            number: of the law.
            expected: what should have been seen.
            seen: what was.
            likely_cause: where to look first.
            about: which steps tell the story (the first few are shown); default: the whole history.

        Raises:
            InvariantViolation: with the history so far.
        """
        try:
            self._fail(number, expected, seen, likely_cause)
        except InvariantViolation as violation:
            if about is not None:
                violation.history = [step for step in violation.history if about(step)][:EXCERPT]
                violation.excerpt = True
            raise

    # ---- checks ---------------------------------------------------------------------------------------

    def _ask(self, event: Event) -> list[Action]:
        try:
            return self.loop.feed(event)
        except InvariantViolation:
            raise
        except (
            TestbedError,
            ArithmeticError,
            AssertionError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:
            seen = f"{type(error).__name__}: {error}"
            cause = "the core or a decision of the policy does not expect this order of events"
            self.violated = True
            violation = self._violation(0, f"an answer to {type(event).__name__}", seen, cause)
            raise violation from error

    def _fail(self, number: int, expected: str, seen: str, likely_cause: str) -> None:
        if number not in self.ignore:
            self.violated = True
            raise self._violation(number, expected, seen, likely_cause)

    def _violation(self, number: int, expected: str, seen: str, likely_cause: str) -> InvariantViolation:
        violation = InvariantViolation(number, expected, seen, likely_cause)
        steps = list(self.history)
        if self._now is not None:
            event, answer = self._now
            steps.append(Step(event, tuple(answer), self.books.version, self._intents.consumption.staleness))
        violation.history = tuple(steps)
        violation.config = self.loop.view.config
        violation.context = f"policy {self.loop.policy.name!r}, {self.loop.view.config}"
        return violation

    def _compare(self) -> None:
        """The core's counts against the monitor's, all in constant time."""
        view, ledger, books = self.loop.view, self.loop.ledger, self.books
        states = books.states
        unseen = ledger.admitted_rollouts - books.seen_rollouts - books.unseen_dropped
        accounted = (
            len(view.running)
            + len(view.ready)
            + len(view.training)
            + view.trained_groups
            + view.discarded_groups
        )
        pairs = (
            ("version", view.version, books.version),
            ("steps started", view.steps_started, books.steps_started),
            ("groups training", len(view.training), states["training"]),
            ("groups trained", view.trained_groups, books.trained_groups),
            ("groups discarded", view.discarded_groups, books.discarded_groups),
            ("groups ready", len(view.ready), states["ready"]),
            ("rollouts on replicas", view.running_rollouts, books.on_replicas),
            ("rollouts waiting", view.pending_rollouts, books.waiting + unseen),
            ("groups admitted", ledger.admitted_groups, accounted),
            ("groups discarded by reason", ledger.discarded.total(), books.discarded_groups),
            ("version published", view.published, books.published),
        )
        for what, core, model in pairs:
            if core != model:
                self._fail(1, f"{what}: {model} by events and actions", f"the core counts {core}", LEDGER)
        if unseen < 0 or len(view.running) < states["running"]:
            seen = f"{len(view.running)} groups running, {unseen} rollouts never started"
            self._fail(1, f"at least {states['running']} groups running, none missing", seen, LEDGER)
        self._intents.limits.buffered(states["ready"], self._fail)
        if books.ended is not None:
            self._ended()
        elif not books.outstanding and books.alive:
            expected = "something is under way, or the run is over"
            self._fail(6, expected, "nothing is under way and the run is not over", explain_stall(self.loop))

    def _ended(self) -> None:
        books, config = self.books, self.loop.view.config
        left = books.outstanding - books.busy["timer"]
        view = self.loop.view
        if left or view.running or view.ready:
            seen = (
                f"{books.on_replicas} rollouts on replicas, "
                f"{books.rewarding} rewards due, {books.loading} loads, "
                f"{dict(books.busy)}, {len(view.running)} groups running, {len(view.ready)} ready"
            )
            self._fail(
                16, "nothing is left at EndRun", seen, "the core ends before what it asked for is finished"
            )
        if books.ended != "stopped" and books.published < books.version:
            seen = f"version {books.version} was trained, {books.published} published"
            self._fail(
                16, "the last version is published", seen, "sync: the last step of a run is not published"
            )
        if books.ended == "steps" and books.version != config.steps:
            self._fail(16, f"{config.steps} steps", f"{books.version} steps", "the core: counts steps wrong")
        if books.ended == "data":
            self._all_prompts(config.prompts or 0)

    def _all_prompts(self, prompts: int) -> None:
        """At the end of the data every prompt was trained, dropped for a reason, or is a leftover."""
        books, config = self.books, self.loop.view.config
        missing = [
            prompt
            for prompt in range(prompts)
            if prompt not in books.trained and prompt not in books.dropped and prompt not in books.left
        ]
        leftovers = [prompt for prompt in books.left if prompt not in books.trained]
        number = 12 if books.restarts else 1
        if len(missing) > books.unknown_dropped:
            seen = f"prompts {missing[:8]} were neither trained nor dropped"
            cause = (
                "snapshot: forgets work" if books.restarts else "data: a prompt was skipped or its group lost"
            )
            self._fail(number, f"all {prompts} prompts of the data are accounted for", seen, cause)
        most = config.batch_size - 1 if config.last_batch == "drop" else 0
        if len(leftovers) > most:
            expected = f"at most {most} prompts are left over at the end of the data"
            seen = f"prompts {sorted(leftovers)[:8]} are left and could have trained"
            self._fail(6, expected, seen, "buffering: withholds a batch that is complete")
