"""A deterministic backend with durations: a token a second, no contention."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush

from interfaces import actions
from interfaces.actions import ABORTS, Action, InFlight
from interfaces.conformance.adversary import Adversary
from interfaces.conformance.flight import Flight
from interfaces.conformance.invariants import Monitor, Saved


def _one(prompt: int, member: int) -> int:  # noqa: ARG001
    return 1


def _by_member(prompt: int, member: int) -> float:  # noqa: ARG001
    return float(member % 2)


@dataclass(frozen=True)
class Durations:
    """How long everything takes, in seconds; a rollout takes a second a token."""

    tokens: Callable[[int, int], int] = _one
    """Response length of (prompt, member)."""
    reward: Callable[[int, int], float] = _by_member
    reward_latency_s: float = 0.0
    fails: Callable[[int, int], bool] = field(default=lambda prompt, attempt: False)  # noqa: ARG005
    """Whether a rollout of (prompt, attempt) is lost at its end."""
    train_s: float = 1.0
    publish_s: float = 0.0
    load_s: float = 0.0
    switch_s: float = 0.0
    phase_s: float = 0.0
    """Checkpoints and evaluations."""


class Timed(Adversary):
    """Carries actions out in the order of their due times."""

    BEFORE = 0.0

    def __init__(self, monitor: Monitor, replicas: int, durations: Durations | None = None) -> None:
        super().__init__(monitor, replicas)
        self.durations = durations or Durations()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._due: dict[int, float] = {}
        """When each rollout in flight ends."""
        self._made_from: dict[int, float] = {}
        """Since when each rollout in flight makes tokens that are not in its segments yet."""

    def _tick(self) -> float:
        return self.now

    def kill(self, saved: Saved | None) -> None:
        """The process dies and starts again at time 0; nothing that was under way comes."""
        self._heap.clear()
        super().kill(saved)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Do something at a later time."""
        self._count += 1
        heappush(self._heap, (self.now + seconds, self._count, call))

    def run(self, max_events: int = 100_000, until: Callable[[], bool] | None = None) -> None:
        """Start (if it did not) and go on to the end, to a stall, or until something is so."""
        if not self.monitor.history:
            self.start()
        for _ in range(max_events):
            if self.ended or not self._heap or (until is not None and until()):
                return
            self.now, _, call = heappop(self._heap)
            call()

    # ---- carrying out ---------------------------------------------------------------------------------

    def _carry_out(self, action: Action) -> None:
        super()._carry_out(action)
        times = self.durations
        match action:
            case actions.Generate():
                self._generate(action)
            case actions.Abort():
                self.later(0.0, partial(self._abort, action.rollout))
            case actions.LoadWeights():
                self._load(action)
            case actions.Train():
                self.later(times.train_s, self.train_finishes)
            case actions.Publish():
                self.later(times.publish_s, self.published)
            case actions.SwitchRole():
                self.later(times.switch_s, self.switched)
            case actions.Checkpoint():
                self.later(times.phase_s, self.checkpointed)
            case actions.Evaluate():
                self.later(times.phase_s, self.evaluated)
            case actions.SetTimer():
                self.later(action.at - self.now, self.timer)
            case _:
                pass

    def _generate(self, action: actions.Generate) -> None:
        left = self.durations.tokens(action.prompt, action.member) - action.resume_tokens
        if action.token_budget is not None:
            left = min(left, action.token_budget)
        self._made_from[action.rollout] = self.now
        self._finish_in(action.rollout, float(max(left, 1)))

    def _finish_in(self, rollout: int, seconds: float) -> None:
        self._due[rollout] = self.now + seconds
        self.later(seconds, partial(self._finish, rollout, self.now + seconds))

    def _finish(self, rollout: int, due: float) -> None:
        flight = self.flights.get(rollout)
        if flight is None or self._due[rollout] != due:
            return
        action = flight.action
        if self.durations.fails(action.prompt, action.attempt):
            self.fail(rollout)
            return
        total = self.durations.tokens(action.prompt, action.member)
        value = self.durations.reward(action.prompt, action.member)
        late = self.durations.reward_latency_s
        missing = max(1, total - action.resume_tokens - flight.made)
        self.finish(rollout, missing, None if late else value)
        if late:
            self.later(late, partial(self._reward, rollout, value))

    def _reward(self, rollout: int, value: float) -> None:
        if rollout in self.rewards:
            self.reward(rollout, value)

    def _abort(self, rollout: int) -> None:
        if rollout in self.aborting and rollout in self.flights:
            self._make(rollout, self.flights[rollout])
            self.come_back(rollout)

    def _make(self, rollout: int, flight: Flight) -> None:
        """Book the tokens made so far."""
        made = int(self.now - self._made_from[rollout])
        flight.make(self.version[flight.replica], made)
        self._made_from[rollout] += made

    def _load(self, action: actions.LoadWeights) -> None:
        load_s = self.durations.load_s
        for rollout, flight in self.flights.items():
            if flight.replica != action.replica:
                continue
            self._make(rollout, flight)
            fate = dict(action.exceptions).get(rollout, action.in_flight)
            if fate not in ABORTS and fate is not InFlight.DRAIN:
                self._made_from[rollout] += load_s
                self._finish_in(rollout, self._due[rollout] - self.now + load_s)
        self.later(load_s, partial(self._loaded, action.replica))

    def _loaded(self, replica: int) -> None:
        if replica in self.loads:
            self.loaded(replica, silent=True)
