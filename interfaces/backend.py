"""The contracts a backend implements, simulated or real, and what it must be capable of.

Every method starts something and returns at once; the outcome is an event given to `report`. So one shape
fits a discrete-event simulator and asyncio alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from interfaces import actions
from interfaces.actions import InFlight
from interfaces.errors import ScenarioError
from interfaces.events import Event
from interfaces.policies.protocols import Policy
from interfaces.view import LoopConfig

Report = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do, declared; checks are skipped by it, policies refused by it."""

    in_flight: frozenset[InFlight] = frozenset(InFlight)
    abort: bool = True
    colocated: bool = True
    streaming: bool = True
    """Train in parts (`Train.last = False`)."""
    token_masks: bool = True
    last_segment_masks: bool = True
    """Leave all tokens but those of a rollout's newest version out of the loss (`Train.last_segment`)."""
    multi_turn: bool = True
    recovers_replicas: bool = True
    moves_keep_kv: bool = True
    """The KV of a rollout can follow it to another replica."""
    engine_load: bool = True
    """How full the replicas are is reported (`EngineLoad`)."""
    token_budgets: bool = True
    """Stop after `Generate.token_budget` new tokens."""
    several_replicas: bool = True
    quick_runs: bool = True
    """A whole run of a few small steps takes seconds: it is checked under every policy that it can carry."""
    deterministic: bool = False
    """The same seed gives the same events at the same times."""


class RolloutEngine(Protocol):
    """One replica: an inference engine that generates under the version it last loaded."""

    def generate(self, action: actions.Generate) -> None:
        """Start or resume a rollout; ends in RolloutFinished, RolloutAborted or RolloutFailed."""

    def abort(self, action: actions.Abort) -> None:
        """Take a rollout off; RolloutAborted follows unless it finished first. Unknown ids are ignored."""

    def load(self, action: actions.LoadWeights) -> None:
        """Interrupt, load, resume; WeightsLoaded follows, after the RolloutAborted of what it aborted."""


class Trainer(Protocol):
    """Turns rollouts into the next version."""

    def train(self, action: actions.Train) -> None:
        """Train; TrainingFinished follows."""

    def checkpoint(self, action: actions.Checkpoint) -> None:
        """Write a checkpoint; CheckpointFinished follows. Never delays a publish asked for before."""

    def evaluate(self, action: actions.Evaluate) -> None:
        """Evaluate; EvaluationFinished follows."""

    def switch(self, action: actions.SwitchRole) -> None:
        """Give shared GPUs the other role; RoleSwitched follows. Never called unless `colocated`."""


class WeightSync(Protocol):
    """Moves weights from the trainer to where replicas can load them."""

    def publish(self, action: actions.Publish) -> None:
        """Publish; WeightsPublished follows."""


class ReplayBuffer(Protocol):
    """Finished rollouts that have not been given to the trainer."""

    def discard(self, rollouts: Sequence[int], running: Sequence[int] = ()) -> None:
        """Forget rollouts; unknown ids are ignored. Those still `running` are not kept when they finish."""

    def __len__(self) -> int:
        """Rollouts held."""


class RewardService(Protocol):
    """Scores finished rollouts; the backend asks it, before it reports `RolloutFinished(reward=None)`."""

    def score(self, rollout: int) -> None:
        """Compute a reward; RewardReady or RewardFailed follows."""


class Backend(Protocol):
    """The parts of a backend without a core above them, and a clock: what `check_backend` talks to.

    It is ready when it is given: every replica serves version 0, no work is under way.
    """

    config: LoopConfig
    """Shape of the run it is set up for; at least two groups a batch, two steps, and prompts enough."""
    replicas: tuple[int, ...]
    max_response_tokens: int
    moment_s: float
    """In so many seconds a rollout makes some tokens and (as good as) never ends."""
    engine: RolloutEngine
    """Of all replicas: the action says which."""
    trainer: Trainer
    weights: WeightSync
    buffer: ReplayBuffer

    def wait(self, timeout_s: float) -> Event | None:
        """The next event, in the order of `at`; None if there is none within so many seconds of its clock."""

    def break_replica(self, replica: int) -> None:
        """Let a replica die: ReplicaDown follows, then ReplicaUp. Never called unless `recovers_replicas`."""

    def close(self) -> None:
        """Stop everything that is under way and leave no thread or process behind."""


def refuse_unless_able(policy: Policy, capabilities: Capabilities, config: LoopConfig, where: str) -> None:
    """Refuse a policy that this backend or this run cannot carry.

    Raises:
        ScenarioError: names the missing capability or the capacity that cannot be met.
    """
    missing = sorted(action.value for action in policy.in_flight - capabilities.in_flight)
    if missing:
        raise ScenarioError(
            where, "policy.name", policy.name, f"asks for {', '.join(missing)}, which this backend cannot do",
            "choose another policy or backend",
        )  # fmt: skip
    if policy.capacity.colocated and not capabilities.colocated:
        raise ScenarioError(
            where, "policy.name", policy.name, "shares GPUs between generation and training, which this "
            "backend cannot do", "choose a policy with separate pools",
        )  # fmt: skip
    if policy.moves_keep_kv and not capabilities.moves_keep_kv:
        raise ScenarioError(
            where, "policy.name", policy.name, "moves rollouts together with their KV cache, which this "
            "backend cannot do", "choose another policy or backend",
        )  # fmt: skip
    if policy.guarantees.last_segment and not capabilities.last_segment_masks:
        raise ScenarioError(
            where, "policy.name", policy.name, "trains only the last segment of each rollout, which this "
            "backend cannot do", "choose another policy or backend",
        )  # fmt: skip
    if policy.reads_engine_load and not capabilities.engine_load:
        raise ScenarioError(
            where, "policy.name", policy.name, "decides by the use of the KV cache, which this backend does "
            "not report", "choose a policy (or a parameter of this one) with a fixed concurrency",
        )  # fmt: skip
    needed, prompts = policy.min_outstanding_groups, config.prompts
    if prompts is not None and prompts < needed:
        raise ScenarioError(
            where, "workload.dataset_size", config.dataset_size,
            f"times {config.epochs} epochs is fewer prompts than the {needed} groups a step needs",
            "use more data or a smaller workload.batch_size",
        )  # fmt: skip
