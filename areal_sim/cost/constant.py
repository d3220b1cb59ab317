"""Costs written in the scenario: for studies with an exact answer, where physics would be in the way."""

from areal_sim.cost.protocol import Ints, TrainingTime
from interfaces.errors import ScenarioError
from interfaces.scenario import Resolved
from interfaces.scenario_errors import MISSING


class ConstantCost:
    """The `[cost]` constants, whatever the batch, the context or the hardware. Nothing physical: no floor.

    Raises:
        ScenarioError: a constant that has no default is missing.
    """

    provenance = "constants of the scenario"
    floor = None
    decode_per_context_token_s = 0.0

    def __init__(self, resolved: Resolved) -> None:
        cost = resolved.scenario.cost
        self._cost = cost
        self._minibatches = resolved.scenario.trainer.minibatches
        self._overhead_s = resolved.scenario.weight_sync.overhead_s
        self._decode_s = _required(resolved, "decode_step_s", cost.decode_step_s)
        self._train_s = _required(resolved, "train_s", cost.train_s)

    def decode_base_s(self, n: int) -> float:  # noqa: ARG002 - whatever the batch
        """`decode_step_s`."""
        return self._decode_s

    def prefill_s(self, tokens: int, squared_tokens: float, sequences: int = 1) -> float:  # noqa: ARG002
        """`prefill_s` for each sequence with anything to prefill."""
        return self._cost.prefill_s * sequences if tokens > 0 else 0.0

    def training_step_s(
        self,
        lengths: Ints,  # noqa: ARG002
        *,
        minibatches: int | None = None,
        update: bool = True,
    ) -> TrainingTime:
        """`train_s`, in equal optimizer steps; all of it in the part of a streamed step that updates."""
        steps = minibatches or self._minibatches
        total = self._train_s if update else 0.0
        return TrainingTime(total, 0.0, (total / steps,) * steps, 0.0, 1.0, steps, 1.0)

    def publish_s(self) -> float:
        """`publish_s`."""
        return self._cost.publish_s

    def load_s(self, replicas_loading: int) -> float:  # noqa: ARG002
        """`load_s` and the fixed overhead."""
        return self._cost.load_s + self._overhead_s

    def switch_s(self) -> float:
        """No time."""
        return 0.0


def _required(resolved: Resolved, key: str, value: float | None) -> float:
    if value is None:
        rule, remedy = 'is required by cost.model = "constant"', f"add {key} = ... to [cost]"
        raise ScenarioError(resolved.where, f"cost.{key}", MISSING, rule, remedy)
    return value
