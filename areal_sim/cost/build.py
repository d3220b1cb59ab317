"""The cost model that a scenario names."""

from areal_sim.cost.calibrated import CalibratedCost
from areal_sim.cost.constant import ConstantCost
from areal_sim.cost.fitted import FittedCost
from areal_sim.cost.protocol import CostModel
from areal_sim.cost.roofline import RooflineCost
from interfaces.scenario import Resolved


def build_cost(resolved: Resolved) -> CostModel:
    """The cost model of `cost.model`.

    Raises:
        ScenarioError: a constant is missing, or `cost.file` cannot serve.
    """
    file = resolved.scenario.cost.file
    match resolved.scenario.cost.model:
        case "constant":
            return ConstantCost(resolved)
        case "fitted" if file is not None and file.endswith(".json"):
            return CalibratedCost(resolved)
        case "fitted":
            return FittedCost(resolved)
        case "roofline":
            return RooflineCost(resolved)


def outside_calibration(cost: CostModel, largest_batch: int, largest_context_tokens: int) -> list[str]:
    """What was asked of calibrated costs beyond the range of their data, one sentence each."""
    if isinstance(cost, CalibratedCost):
        return cost.outside(largest_batch, largest_context_tokens)
    return []
