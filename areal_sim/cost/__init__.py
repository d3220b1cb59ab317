"""How long things take: one protocol, its models (roofline, fitted, calibrated, constant), the floor."""

from areal_sim.cost.build import build_cost, outside_calibration
from areal_sim.cost.floor import Floor, RunFloor, Totals
from areal_sim.cost.protocol import CostModel, TrainingTime

__all__ = ["CostModel", "Floor", "RunFloor", "Totals", "TrainingTime", "build_cost", "outside_calibration"]
