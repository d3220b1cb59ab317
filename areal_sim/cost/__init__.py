"""How long things take: one protocol, three models (roofline, fitted, constant) and the physical floor."""

from areal_sim.cost.build import build_cost
from areal_sim.cost.floor import Floor, RunFloor, Totals
from areal_sim.cost.protocol import CostModel, TrainingTime

__all__ = ["CostModel", "Floor", "RunFloor", "Totals", "TrainingTime", "build_cost"]
