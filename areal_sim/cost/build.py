"""The cost model that a scenario names."""

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
    match resolved.scenario.cost.model:
        case "constant":
            return ConstantCost(resolved)
        case "fitted":
            return FittedCost(resolved)
        case "roofline":
            return RooflineCost(resolved)
