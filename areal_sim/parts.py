"""The simulator's mechanisms without a core above them: what `check_backend` talks to."""

from collections import deque
from collections.abc import Sequence

import simpy

from areal_sim.schedule import MECHANICS, call_later
from areal_sim.simulation import Simulation
from areal_sim.workload import Workload
from interfaces import actions
from interfaces.actions import Action
from interfaces.events import Event, ReplicaDown, ReplicaUp, RolloutAborted, RolloutFailed, WeightsPublished
from interfaces.rollout import PolicyVersion
from interfaces.scenario import Resolved
from interfaces.setup import loop_config

DOWN_S = 1.0
"""Time until a broken replica serves again."""
SPARE_MEMBERS = 8
"""Members a group may have beyond its size, for policies that launch more."""


class Mechanisms(Simulation):
    """A simulation that keeps its facts for whoever asks, instead of giving them to a core."""

    def __init__(self, resolved: Resolved) -> None:
        self.facts: deque[Event] = deque()
        self.published: PolicyVersion = 0
        super().__init__(resolved)
        self.workload = Workload(resolved.scenario, resolved.where, SPARE_MEMBERS)
        self._draw = self.workload.group(0, 0)

    def report(self, event: Event) -> None:
        """Keep a fact, and do what the backend itself does about it."""
        if isinstance(event, RolloutAborted | RolloutFailed):
            self.buffer.left(event.rollout)
        elif isinstance(event, WeightsPublished):
            self.published = event.version
        self.facts.append(event)

    def carry_out(self, action: Action) -> None:
        """Start one intent."""
        self._apply([action])

    def _load_seconds(self) -> float:
        return self.cost.load_s(max(1, sum(replica.state == "load" for replica in self.replicas)))


class SimulatedEngine:
    """All replicas."""

    def __init__(self, mechanisms: Mechanisms) -> None:
        self._mechanisms = mechanisms

    def generate(self, action: actions.Generate) -> None:
        """Start or resume a rollout."""
        self._mechanisms.carry_out(action)

    def abort(self, action: actions.Abort) -> None:
        """Take a rollout off."""
        self._mechanisms.carry_out(action)

    def load(self, action: actions.LoadWeights) -> None:
        """Interrupt, load, resume."""
        self._mechanisms.carry_out(action)


class SimulatedBuffer:
    """Sizes of what finished."""

    def __init__(self, mechanisms: Mechanisms) -> None:
        self._buffer = mechanisms.buffer

    def discard(self, rollouts: Sequence[int], running: Sequence[int] = ()) -> None:
        """Forget rollouts."""
        self._buffer.discard(rollouts, running)

    def __len__(self) -> int:
        return len(self._buffer)


class SimulatedBackend:
    """Fulfils `interfaces.backend.Backend`; its clock is that of the simulation."""

    def __init__(self, resolved: Resolved, *, max_response_tokens: int, moment_s: float) -> None:
        """Build the mechanisms of a scenario.

        Args:
            resolved: the scenario; its policy plays no part.
            max_response_tokens: no response that its workload draws is longer.
            moment_s: time in which a rollout makes some tokens and does not end.
        """
        self._mechanisms = Mechanisms(resolved)
        self.config = loop_config(resolved.scenario)
        self.replicas = tuple(range(len(self._mechanisms.replicas)))
        self.max_response_tokens, self.moment_s = max_response_tokens, moment_s
        self.engine = SimulatedEngine(self._mechanisms)
        self.trainer = self.weights = self._mechanisms.trainer
        self.buffer = SimulatedBuffer(self._mechanisms)

    def wait(self, timeout_s: float) -> Event | None:
        """Run the simulation until it reports something, or for so long."""
        env, facts = self._mechanisms.env, self._mechanisms.facts
        end = env.now + timeout_s
        while not facts and env.peek() <= end:
            env.step()
        if not facts and end > env.now:
            env.run(until=end)
        return facts.popleft() if facts else None

    def break_replica(self, replica: int) -> None:
        """It dies now, and serves again after a while with what is published then."""
        mechanisms = self._mechanisms
        env, broken = mechanisms.env, mechanisms.replicas[replica]
        mechanisms.report(ReplicaDown(env.now, replica, "broken on purpose", broken.die()))

        def up(_: object) -> None:
            broken.revive(mechanisms.published)
            mechanisms.report(ReplicaUp(env.now, replica, mechanisms.published))

        call_later(env, DOWN_S, MECHANICS, up)

    def close(self) -> None:
        """Nothing more comes; a simulation has no thread and no process."""
        self._mechanisms.env = simpy.Environment()
        self._mechanisms.facts.clear()
