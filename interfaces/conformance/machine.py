"""Hypothesis drives the real core with an adversary: any order of events that a backend could report."""

from collections.abc import Callable, Collection
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from interfaces.actions import Action
from interfaces.conformance.adversary import Adversary
from interfaces.conformance.invariants import Monitor
from interfaces.conformance.strategies import loop_configs
from interfaces.conformance.target import Target
from interfaces.conformance.violation import InvariantViolation
from interfaces.events import Event
from interfaces.loop import TrainingLoop

INDEX = st.integers(0, 15)
TOKENS = st.integers(1, 3)
REWARD = st.sampled_from((1.0, 0.0, None))


def _pick(items: Collection[int], index: int) -> int:
    return sorted(items)[index % len(items)]


class PolicyMachine(RuleBasedStateMachine):
    """One run of a policy under an adversary; a subclass names the target."""

    target: Target
    ignore: frozenset[int] = frozenset()
    loop_class: type[TrainingLoop] = TrainingLoop

    backend: Adversary
    started = False

    @initialize(data=st.data())
    def start(self, data: st.DataObject) -> None:
        """Draw the shape of the run and start it."""
        config, replicas = data.draw(loop_configs(self.target))
        self.faults = data.draw(st.booleans(), label="faults")
        self.policy = self.target.policy(config)
        monitor = Monitor(self.loop_class(self.policy, config), ignore=self.ignore)
        self.backend = Adversary(monitor, replicas)
        self.deaths = self.kills = 0
        self.started = True
        self.remembering(self.backend.start)

    def make(self, move: str, **arguments: Any) -> None:
        """Make a move of the backend; a violation remembers how it came about."""
        self.remembering(lambda: self.backend.make(move, **arguments))

    def remembering(self, call: Callable[[], None]) -> None:
        """A violation remembers the moves before it."""
        try:
            call()
        except InvariantViolation as violation:
            violation.origin = self.backend.origin
            raise

    # ---- rollouts -------------------------------------------------------------------------------------

    @precondition(lambda self: self.live and self.backend.flights)
    @rule(index=INDEX, tokens=TOKENS, reward=REWARD)
    def rollout_finishes(self, index: int, tokens: int, reward: float | None) -> None:
        """Any running rollout ends, whatever was asked of it meanwhile."""
        self.make("finish", rollout=_pick(self.backend.flights, index), tokens=tokens, reward=reward)

    @precondition(lambda self: self.live and len(self.backend.flights) > 1)
    @rule(index=INDEX, reward=REWARD)
    def newest_finishes(self, index: int, reward: float | None) -> None:
        """One of the newest overtakes the others."""
        self.make("finish", rollout=_pick(self.backend.flights, -1 - index % 2), tokens=1, reward=reward)

    @precondition(lambda self: self.live and self.backend.aborting)
    @rule(index=INDEX)
    def abort_is_answered(self, index: int) -> None:
        """A rollout that was to be aborted comes back."""
        self.make("come_back", rollout=_pick(self.backend.aborting, index))

    @precondition(lambda self: self.faulty and self.backend.flights)
    @rule(index=INDEX)
    def rollout_fails(self, index: int) -> None:
        """Any running rollout is lost."""
        self.make("fail", rollout=_pick(self.backend.flights, index))

    @precondition(lambda self: self.live and self.backend.rewards)
    @rule(index=INDEX, value=st.sampled_from((1.0, 0.0)))
    def reward_arrives(self, index: int, value: float) -> None:
        """Any reward that is due."""
        self.make("reward", rollout=_pick(self.backend.rewards, index), value=value)

    @precondition(lambda self: self.faulty and self.backend.rewards)
    @rule(index=INDEX)
    def reward_fails(self, index: int) -> None:
        """A reward function crashes."""
        self.make("reward_fails", rollout=_pick(self.backend.rewards, index))

    # ---- training and weights -------------------------------------------------------------------------

    @precondition(lambda self: self.live and self.backend.training)
    @rule()
    def training_finishes(self) -> None:
        """The trainer is done."""
        self.make("train_finishes")

    @precondition(lambda self: self.live and self.backend.training)
    @rule()
    def step_completes(self) -> None:
        """The trainer is done, its version is out and loaded everywhere, before anything else happens."""
        self.make("train_finishes")
        while self.backend.publishing and not self.backend.ended:
            self.make("published")
        for replica in list(self.backend.loads):
            if replica in self.backend.loads and not self.backend.ended:
                self.make("loaded", replica=replica, silent=False)

    @precondition(lambda self: self.live and self.backend.publishing)
    @rule()
    def publish_finishes(self) -> None:
        """A version is out."""
        self.make("published")

    @precondition(lambda self: self.live and self.backend.loads)
    @rule(index=INDEX, silent=st.booleans())
    def load_finishes(self, index: int, silent: bool) -> None:
        """Any replica that loads is done."""
        self.make("loaded", replica=_pick(self.backend.loads, index), silent=silent)

    @precondition(lambda self: self.live and self.backend.switching)
    @rule()
    def role_switched(self) -> None:
        """The GPUs have changed their role."""
        self.make("switched")

    @precondition(lambda self: self.live and (self.backend.checkpoints or self.backend.evaluations))
    @rule()
    def phase_finishes(self) -> None:
        """A checkpoint or an evaluation is done."""
        if self.backend.checkpoints:
            self.make("checkpointed")
        else:
            self.make("evaluated")

    @precondition(lambda self: self.live and self.backend.timers)
    @rule()
    def timer_fires(self) -> None:
        """A time that the policy asked for has come."""
        self.make("timer")

    # ---- faults ---------------------------------------------------------------------------------------

    @precondition(
        lambda self: self.faulty and self.deaths < 3 and len(self.backend.dead) < len(self.backend.version)
    )
    @rule(index=INDEX, save=st.booleans())
    def replica_dies(self, index: int, save: bool) -> None:
        """A living replica dies."""
        self.deaths += 1
        self.make("die", replica=_pick(self.backend.alive, index), save=save)

    @precondition(lambda self: self.live and self.backend.dead)
    @rule(index=INDEX, newest=st.booleans())
    def replica_returns(self, index: int, newest: bool) -> None:
        """A dead replica comes back."""
        self.make("revive", replica=_pick(self.backend.dead, index), newest=newest)

    @precondition(lambda self: self.faulty)
    @rule()
    def snapshot_is_taken(self) -> None:
        """A checkpoint of exactly this moment."""
        self.make("save")

    @precondition(lambda self: self.faulty and self.kills < 2)
    @rule(now=st.booleans())
    def process_is_killed(self, now: bool) -> None:
        """Everything is lost but a snapshot: of this moment, or the last one taken."""
        self.kills += 1
        self.make("fall_back", now=now)

    @precondition(lambda self: self.faulty and self.backend.monitor.loop.view.steps_finished > 1)
    @rule()
    def user_stops(self) -> None:
        """Ctrl-C."""
        self.make("stop")

    @precondition(lambda self: not self.live)
    @rule()
    def over(self) -> None:
        """The run is over; nothing can come any more."""

    # ---- the end --------------------------------------------------------------------------------------

    @property
    def live(self) -> bool:
        """Whether events may come."""
        return self.started and not self.backend.ended

    @property
    def faulty(self) -> bool:
        """Whether faults may come."""
        return self.live and self.faults

    def teardown(self) -> None:
        """Play the rest fairly: the run must end, within a bounded number of events, and replay."""
        if not self.started or self.backend.monitor.violated:
            return
        self.remembering(lambda: play_out(self.backend))

    def check_invariants(self, settings: Any, output: Any, runtimes: Any) -> None:
        """The monitor checks; there is nothing to do after a rule."""


class LoadTellingMachine(PolicyMachine):
    """For policies that read how full the replicas are."""

    @precondition(lambda self: self.live and self.backend.alive)
    @rule(index=INDEX, full=st.booleans())
    def replica_tells_its_load(self, index: int, full: bool) -> None:
        """A replica has room, or had to throw KV away."""
        self.make("tell_load", replica=_pick(self.backend.alive, index), full=full)


def play_out(backend: Adversary) -> None:
    """A fair end, and the replay of the whole run."""
    finish_fairly(backend)
    check_replay(backend.monitor)


def finish_fairly(backend: Adversary) -> None:
    """Answer everything that is owed, in turn, until the run ends (laws 6 and 16)."""
    monitor = backend.monitor
    config = monitor.loop.view.config
    rounds = 200 + 60 * config.steps * config.batch_size * config.group_size
    for replica in sorted(backend.dead):
        if not backend.ended:
            backend.revive(replica, newest=True)
    view = monitor.loop.view
    hopeless, steps = 2 + view.untaken + view.discarded_groups, view.steps_finished
    for _ in range(rounds):
        if backend.ended:
            return
        if not backend.step_fairly() and not backend.ended:
            break
        if view.steps_finished > steps:
            hopeless, steps = 2 + view.untaken + view.discarded_groups, view.steps_finished
        if view.discarded_groups > hopeless:
            break
    if not backend.ended:
        monitor.report(
            6,
            "the run goes on, and ends, when everything that is owed is answered in turn",
            f"{view.steps_finished} of {config.steps} steps, {view.discarded_groups} groups discarded",
            "a livelock: work is thrown away and done again, or the end waits for something that never comes",
            lambda step: True,  # noqa: ARG005 (the first events: it goes on like that)
        )


def check_replay(monitor: Monitor) -> None:
    """The same events, fed to a fresh core with the same policy, give the same actions (law 7)."""
    policy, config = monitor.loop.policy, monitor.loop.view.config
    loop = type(monitor.loop)(policy, config)
    error_seen = ""
    for number, step in enumerate(monitor.history):
        if step.event is None:
            loop = monitor.go_on(policy, config, step.state or {}, type(loop))
            continue
        try:
            again: tuple[Action, ...] = tuple(loop.feed(step.event))
        except Exception as error:
            again = ()
            error_seen = f"{type(error).__name__}: {error}"
        if again != step.answer or list(map(type, again)) != list(map(type, step.answer)):
            seen = error_seen or f"event {number + 1}: {_difference(step.event, step.answer, again)}"
            monitor.report(
                7,
                "the same answer to the same events",
                seen,
                "the policy keeps state, or uses chance or a clock",
            )
            return


def _difference(event: Event, first: tuple[Action, ...], second: tuple[Action, ...]) -> str:
    only = [action for action in first if action not in second]
    new = [action for action in second if action not in first]
    return f"{type(event).__name__} was answered {only}, then {new}"
