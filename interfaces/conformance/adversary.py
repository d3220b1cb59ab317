"""A backend without a clock: it owes answers, and a test decides which one comes next.

It only ever reports what a real backend could report. Every event is one second after the one before.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from interfaces import actions, events
from interfaces.actions import ABORTS, KEEPS, Action
from interfaces.conformance.flight import Flight
from interfaces.conformance.invariants import Monitor, Saved
from interfaces.conformance.moves import Move, Origin
from interfaces.events import Event
from interfaces.rollout import PolicyVersion

PROMPT_TOKENS = 4


class Adversary:
    """Carries actions out by remembering them; its methods report the outcomes in any order."""

    BEFORE = -1.0
    """The time before the first event."""

    def __init__(self, monitor: Monitor, replicas: int) -> None:
        self.monitor = monitor
        self.now = self.BEFORE
        self.version = dict.fromkeys(range(replicas), monitor.loop.view.version)
        """What each replica serves."""
        self.dead: set[int] = set()
        self.made: list[Move] = []
        """Moves made through `make`."""
        self.saved: Saved | None = None
        """The last snapshot taken."""
        self._clear()

    def _clear(self) -> None:
        self.flights: dict[int, Flight] = {}
        self.aborting: dict[int, None] = {}
        """Rollouts whose abort was asked for."""
        self.rewards: dict[int, int] = {}
        """Finished rollouts without a reward, and their member index."""
        self.training: deque[actions.Train] = deque()
        self.publishing: deque[PolicyVersion] = deque()
        self.loads: dict[int, actions.LoadWeights] = {}
        self.switching: deque[str] = deque()
        self.checkpoints: deque[int] = deque()
        self.evaluations: deque[int] = deque()
        self.timers: deque[float] = deque()

    # ---- moves that are remembered --------------------------------------------------------------------

    @property
    def origin(self) -> Origin:
        """What was done so far."""
        return Origin(self.monitor.loop.view.config, len(self.version), tuple(self.made))

    def make(self, name: str, **arguments: Any) -> None:
        """Call one of the methods below, and remember it."""
        self.made.append(Move(name, arguments))
        getattr(self, name)(**arguments)

    # ---- the driver -----------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self.monitor.loop.ended is not None

    def start(self) -> None:
        """The first event of a run."""
        self._feed(
            events.RunStarted(self._tick(), tuple(sorted(self.version)), self.monitor.loop.view.version)
        )

    def _tick(self) -> float:
        self.now += 1.0
        return self.now

    def _feed(self, event: Event) -> None:
        if self.ended:
            return
        for action in self.monitor.feed(event):
            self._carry_out(action)

    def _carry_out(self, action: Action) -> None:
        match action:
            case actions.Generate():
                self.flights[action.rollout] = Flight(action, self.now)
            case actions.Abort():
                if action.rollout in self.flights:
                    self.aborting[action.rollout] = None
            case actions.LoadWeights():
                self.loads[action.replica] = action
            case actions.Train():
                self.training.append(action)
            case actions.Publish():
                self.publishing.append(action.version)
            case actions.SwitchRole():
                self.switching.append(action.role)
            case actions.Checkpoint():
                self.checkpoints.append(action.step)
            case actions.Evaluate():
                self.evaluations.append(action.step)
            case actions.SetTimer():
                self.timers.append(action.at)
            case _:
                pass

    # ---- rollouts -------------------------------------------------------------------------------------

    def _land(self, rollout: int) -> Flight:
        self.aborting.pop(rollout, None)
        return self.flights.pop(rollout)

    def finish(self, rollout: int, tokens: int, reward: float | None) -> None:
        """A rollout ends by itself (or comes back, when its token budget is used up first)."""
        flight = self._land(rollout)
        flight.make(self.version[flight.replica], tokens)
        budget = flight.action.token_budget
        if budget is not None and flight.made >= budget:
            self._feed(events.RolloutAborted(self._tick(), rollout, flight.replica, tuple(flight.segments)))
            return
        if reward is None:
            self.rewards[rollout] = flight.action.member
        self._feed(
            events.RolloutFinished(
                self._tick(),
                rollout,
                flight.replica,
                PROMPT_TOKENS,
                tuple(flight.segments),
                flight.started_at,
                reward,
            )
        )

    def come_back(self, rollout: int) -> None:
        """A rollout leaves its replica unfinished: aborted, or saved from a dying replica."""
        flight = self._land(rollout)
        self._feed(events.RolloutAborted(self._tick(), rollout, flight.replica, tuple(flight.segments)))

    @property
    def alive(self) -> set[int]:
        """Replicas that live."""
        return set(self.version) - self.dead

    def tell_load(self, replica: int, *, full: bool) -> None:
        """A replica says how full its KV cache is."""
        capacity = 100
        self._feed(events.EngineLoad(self._tick(), replica, capacity * full, capacity, int(full)))

    def fail(self, rollout: int) -> None:
        """A rollout is lost."""
        flight = self._land(rollout)
        self._feed(events.RolloutFailed(self._tick(), rollout, flight.replica, "lost"))

    def reward(self, rollout: int, value: float) -> None:
        """A late reward arrives."""
        del self.rewards[rollout]
        self._feed(events.RewardReady(self._tick(), rollout, value))

    def reward_fails(self, rollout: int) -> None:
        """The reward function crashed."""
        del self.rewards[rollout]
        self._feed(events.RewardFailed(self._tick(), rollout, "crashed"))

    # ---- training and weights -------------------------------------------------------------------------

    def train_finishes(self) -> None:
        """The oldest training is done."""
        train = self.training.popleft()
        self._feed(events.TrainingFinished(self._tick(), train.step, train.last))

    def published(self) -> None:
        """The oldest publish is done."""
        self._feed(events.WeightsPublished(self._tick(), self.publishing.popleft()))

    def loaded(self, replica: int, *, silent: bool) -> None:
        """A load is done, after what it aborts came back; `silent`: nothing in flight had made a token."""
        load = self.loads[replica]
        fates = dict(load.exceptions)
        for rollout, flight in list(self.flights.items()):
            if flight.replica != replica or rollout not in self.flights or replica not in self.loads:
                continue
            if not silent:
                flight.make(self.version[replica], 1)
            fate = fates.get(rollout, load.in_flight)
            if fate in ABORTS or (
                fate in KEEPS
                and flight.action.token_budget is not None
                and flight.made >= flight.action.token_budget
            ):
                self.come_back(rollout)
        if self.ended or replica not in self.loads:
            return
        del self.loads[replica]
        self.version[replica] = load.version
        self._feed(events.WeightsLoaded(self._tick(), replica, load.version))

    def switched(self) -> None:
        """The GPUs have changed their role."""
        self._feed(events.RoleSwitched(self._tick(), self.switching.popleft()))

    def checkpointed(self) -> None:
        """A checkpoint is whole."""
        self._feed(events.CheckpointFinished(self._tick(), self.checkpoints.popleft()))

    def evaluated(self) -> None:
        """An evaluation is over."""
        self._feed(events.EvaluationFinished(self._tick(), self.evaluations.popleft()))

    def timer(self) -> None:
        """A timer fires."""
        self.now = max(self.now, self.timers.popleft() - 1.0)
        self._feed(events.TimerFired(self._tick()))

    # ---- faults ---------------------------------------------------------------------------------------

    def die(self, replica: int, *, save: bool) -> None:
        """A replica dies; `save`: what it had generated so far comes back first."""
        for rollout in [r for r, flight in self.flights.items() if flight.replica == replica]:
            if save and rollout in self.flights:
                self.come_back(rollout)
        for rollout in [r for r, flight in self.flights.items() if flight.replica == replica]:
            self._land(rollout)
        self.loads.pop(replica, None)
        self.dead.add(replica)
        self._feed(events.ReplicaDown(self._tick(), replica, "died"))

    def revive(self, replica: int, *, newest: bool) -> None:
        """A dead replica comes back, with the published version or with the one it had."""
        self.dead.discard(replica)
        if newest:
            self.version[replica] = self.monitor.loop.view.published
        self._feed(events.ReplicaUp(self._tick(), replica, self.version[replica]))

    def stop(self) -> None:
        """The user wants the run to end."""
        self._feed(events.StopRequested(self._tick()))

    def save(self) -> None:
        """Take a snapshot of exactly this moment."""
        self.saved = self.monitor.save()

    def fall_back(self, *, now: bool) -> None:
        """The process is killed; it goes on from a snapshot of this moment or from the last one taken."""
        self.kill(None if now else self.saved)

    def kill(self, saved: Saved | None) -> None:
        """The process dies and starts again from a snapshot, with all replicas."""
        self.monitor.kill_and_restore(saved)
        self._clear()
        self.dead.clear()
        self.now = self.BEFORE
        self.version = dict.fromkeys(self.version, self.monitor.loop.view.version)
        self.start()

    def queues(self) -> tuple[tuple[deque[Any], Callable[[], None]], ...]:
        """What is owed in the order asked for, and how it is answered."""
        return (
            (self.training, self.train_finishes),
            (self.publishing, self.published),
            (self.switching, self.switched),
            (self.checkpoints, self.checkpointed),
            (self.evaluations, self.evaluated),
            (self.timers, self.timer),
        )

    # ---- a fair end -----------------------------------------------------------------------------------

    def step_fairly(self) -> bool:
        """Answer one thing of every kind that is owed, the oldest first; False: nothing is owed."""
        moved = False
        for rollout in list(self.aborting)[:1]:
            self.come_back(rollout)
            moved = True
        for replica in list(self.loads)[:1]:
            self.loaded(replica, silent=False)
            moved = True
        for rollout, flight in list(self.flights.items())[:1]:
            if not self.ended and rollout in self.flights and flight.replica not in self.loads:
                self.finish(rollout, 2, float(flight.action.member % 2))
                moved = True
        for rollout, member in list(self.rewards.items())[:1]:
            self.reward(rollout, float(member % 2))
            moved = True
        for queue, answer in self.queues():
            if queue and not self.ended:
                answer()
                moved = True
        return moved
