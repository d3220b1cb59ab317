"""Talks to a backend without a core: keeps all that was said, and holds every event to what always holds."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, NoReturn

from interfaces import actions, events
from interfaces.actions import ABORTS, Action, InFlight
from interfaces.backend import Backend, Capabilities
from interfaces.conformance.books import Books, Member
from interfaces.conformance.facts import Facts
from interfaces.conformance.intents import Intents
from interfaces.conformance.story import answer, describe
from interfaces.errors import TestbedError
from interfaces.events import Event
from interfaces.policies.admission import All
from interfaces.policies.presets import Areal
from interfaces.policies.protocols import Guarantees, Policy
from interfaces.rollout import PolicyVersion
from interfaces.view import LoopConfig

SHOWN = 12
"""Events of a long dialogue that are printed (the last ones, and what was asked between them)."""


class Line(NamedTuple):
    """Something asked of the backend, or reported by it."""

    at: float
    said: Action | Event | str


class BackendViolation(TestbedError, AssertionError):  # noqa: N818 (as InvariantViolation)
    """A backend broke a contract; the message is the whole story."""

    exit_code = 8

    def __init__(self, expected: str, seen: str, likely_cause: str, dialogue: Iterable[Line]) -> None:
        self.name = self.sentence = ""
        """Of the contract; set by the check."""
        self.expected, self.seen, self.likely_cause = expected, seen, likely_cause
        self.dialogue = list(dialogue)
        super().__init__(expected, seen, likely_cause)

    @property
    def hidden(self) -> int:
        """Lines at the beginning that the story leaves out."""
        reported = [number for number, line in enumerate(self.dialogue) if type(line.said) in events.RANK]
        return 0 if len(reported) <= SHOWN else reported[-SHOWN - 1] + 1

    def __str__(self) -> str:
        """Contract, expected, seen, likely cause, and what was said."""
        parts = [
            f"contract {self.name}: {self.sentence}",
            f"  expected:     {self.expected}",
            f"  seen:         {self.seen}",
            f"  likely cause: {self.likely_cause}",
            "",
        ]
        hidden = self.hidden
        parts += [f"... {hidden} earlier lines"] if hidden else []
        return "\n".join([*parts, *(_tell(line) for line in self.dialogue[hidden:])])


def _tell(line: Line) -> str:
    if isinstance(line.said, str):
        what = line.said
    elif type(line.said) in events.RANK:
        what = f"reported: {describe(line.said)}"  # type: ignore[arg-type]
    else:
        what = f"asked:    {answer((line.said,)) or type(line.said).__name__}"  # type: ignore[arg-type]
    return f"  {line.at:10.3f} s  {what}"


def anything(config: LoopConfig) -> Policy:
    """A policy that promises nothing: it lets the books follow whatever is asked."""
    promise = Guarantees(whole_groups=False, full_batches=False, no_drops=False)
    base = Areal(1).build(config)
    return Policy(
        "any", All(()), base.dispatch, base.sync, base.buffering, base.capacity, promise, frozenset(InFlight)
    )


class Dialogue:
    """One conversation with a fresh backend, within one contract."""

    def __init__(self, backend: Backend, capabilities: Capabilities, timeout_s: float) -> None:
        self.backend, self.capabilities, self.timeout_s = backend, capabilities, timeout_s
        config = backend.config
        self.books = Books(config.group_size, 0)
        self._facts = Facts(self.books, self._broken)
        self._intents = Intents(self.books, anything(config), config, self._broken)
        self.lines: list[Line] = []
        self.now = 0.0
        self.finished: dict[int, Member] = {}
        """Finished rollouts, with their tokens and versions."""
        self.first_token_at: dict[int, float] = {}
        self.threads_before: frozenset[int | None] = frozenset()
        self.children_before: frozenset[int | None] = frozenset()
        """Threads and child processes from before the backend; set by the check."""
        self._aborting: set[int] = set()
        self._dying: set[int] = set()
        self._rollouts = self._prompts = 0
        self.hear(events.RunStarted(0.0, backend.replicas, 0))

    # ---- failing --------------------------------------------------------------------------------------

    def fail(self, expected: str, seen: str, cause: str) -> NoReturn:
        """The contract is broken."""
        raise BackendViolation(expected, seen, cause, self.lines)

    def _broken(self, number: int, expected: str, seen: str, cause: str) -> None:  # noqa: ARG002
        self.fail(expected, seen, cause)

    def crashed(self, error: Exception) -> NoReturn:
        """The backend raised instead of answering."""
        seen = f"{type(error).__name__}: {error}"
        violation = BackendViolation("an answer", seen, "the backend does not expect this", self.lines)
        raise violation from error

    def note(self, text: str) -> None:
        """A remark in the story."""
        self.lines.append(Line(self.now, text))

    # ---- asking ---------------------------------------------------------------------------------------

    def ask(self, action: Action) -> None:
        """Ask the backend for something that a core could ask for in this state."""
        self.lines.append(Line(self.now, action))
        self._intents.take(action, self.now)
        backend = self.backend
        match action:
            case actions.Generate():
                backend.engine.generate(action)
            case actions.Abort():
                self._aborting.add(action.rollout)
                backend.engine.abort(action)
            case actions.LoadWeights():
                backend.engine.load(action)
            case actions.Train():
                backend.trainer.train(action)
            case actions.Publish():
                backend.weights.publish(action)
            case actions.Checkpoint():
                backend.trainer.checkpoint(action)
            case actions.Evaluate():
                backend.trainer.evaluate(action)
            case actions.SwitchRole():
                backend.trainer.switch(action)
            case actions.Discard() | actions.Dismiss():
                backend.buffer.discard(action.rollouts, action.running)
            case _:
                pass

    def generate(
        self, replica: int, *, prompt: int | None = None, member: int = 0, budget: int | None = None
    ) -> int:
        """Start a new rollout, of a new prompt unless told; returns its id."""
        if prompt is None:
            prompt, self._prompts = self._prompts, self._prompts + 1
        rollout, self._rollouts = self._rollouts, self._rollouts + 1
        self.ask(actions.Generate(rollout, prompt, member, 0, replica, 0, budget))
        return rollout

    def again(self, rollout: int, replica: int, *, resume: bool, budget: int | None = None) -> None:
        """Start a rollout that came back: with the tokens it has, or from token 0."""
        member = self.books.members[rollout]
        tokens = member.tokens if resume else 0
        number = list(member.group.members).index(rollout)
        self.ask(actions.Generate(rollout, member.group.prompt, number, 0, replica, tokens, budget))

    def break_replica(self, replica: int) -> None:
        """Let a replica die."""
        self.note(f"replica {replica} is made to die")
        self._dying.add(replica)
        self.backend.break_replica(replica)

    # ---- hearing --------------------------------------------------------------------------------------

    def hear(self, event: Event) -> None:
        """Enter an event; what cannot be true breaks the contract."""
        self.now = max(self.now, event.at)
        self.lines.append(Line(event.at, event))
        member = self.books.members.get(getattr(event, "rollout", -1))
        if isinstance(event, events.RolloutAborted) and member is not None:
            self._excused(member, event)
        elif isinstance(event, events.RolloutFailed | events.RewardFailed) and not self._dying:
            self.fail(
                "rollouts and rewards do not fail unprovoked", f"{event}", "the engine or the reward function"
            )
        elif isinstance(event, events.ReplicaDown) and event.replica not in self._dying:
            self.fail("no replica dies unprovoked", f"{event}", "the engine")
        elif isinstance(event, events.ReplicaUp):
            self._dying.discard(event.replica)
        self._facts.take(event)
        if isinstance(event, events.RolloutFinished) and member is not None:
            self.finished[event.rollout] = member
            self.first_token_at[event.rollout] = event.first_token_at
        if member is not None:
            self._within_limit(member)
        if isinstance(event, events.RewardReady) and not _finite(event.reward):
            self.fail(
                "a finite reward", f"{event.reward}", "the reward function; report RewardFailed instead"
            )
        if isinstance(event, events.RolloutFinished | events.RolloutAborted | events.RolloutFailed):
            self._aborting.discard(event.rollout)

    def _excused(self, member: Member, event: events.RolloutAborted) -> None:
        """A rollout comes back for a reason only."""
        replica = self.books.replicas[member.replica] if member.replica >= 0 else None
        new = sum(tokens for _, tokens in event.segments)
        asked = member.id in self._aborting or event.replica in self._dying
        loads = replica is not None and replica.in_flight.get(member.id) in ABORTS
        spent = member.token_budget is not None and new >= member.token_budget
        if not (asked or loads or spent):
            expected = "a rollout comes back when it is aborted, or has used up its token budget"
            self.fail(expected, f"rollout {member.id} came back with {new} tokens", "the engine drops work")

    def _within_limit(self, member: Member) -> None:
        limit = self.backend.max_response_tokens
        if member.tokens > limit:
            cause = "a resumed rollout may generate its whole limit again"
            self.fail(f"at most {limit} response tokens", f"rollout {member.id} has {member.tokens}", cause)

    def wait(self, what: str) -> Event:
        """The next event."""
        event = self.backend.wait(self.timeout_s)
        if event is None:
            self.fail(what, f"nothing in {self.timeout_s:g} s", "the backend forgot what it was asked for")
        self.hear(event)
        return event

    def until(self, done: Callable[[], bool], what: str) -> None:
        """Hear events until something is so."""
        while not done():
            self.wait(what)

    def moment(self) -> None:
        """Let a short time pass."""
        self.note("a moment passes")
        end = self.now + self.backend.moment_s
        while (event := self.backend.wait(self.backend.moment_s)) is not None:
            self.hear(event)
            if event.at >= end:
                break

    def settle(self) -> None:
        """Until nothing is owed, and a moment longer: nothing comes twice, nothing comes unasked."""
        self.until(lambda: not self.books.outstanding, "an answer to everything that was asked for")
        self.moment()

    @property
    def flying(self) -> list[int]:
        """Rollouts on replicas."""
        return [rollout for rollout, member in self.books.members.items() if member.replica >= 0]

    def served(self, replica: int = 0) -> PolicyVersion:
        """Version that a replica serves."""
        return self.books.replicas[self.backend.replicas[replica]].version


def _finite(value: float) -> bool:
    return value == value and abs(value) != float("inf")  # noqa: PLR0124 (NaN)
