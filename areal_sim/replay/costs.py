"""Costs of a recorded real run: fitted to its own trace, part by part, unless the scenario names a file.

One run often cannot tell two parameters apart (every step has the same number of micro-batches). For its own
replay that does not matter: the simpler form without one of them is fitted instead, and said.
"""

from pathlib import Path

from areal_sim.calibration.assemble import calibrate
from areal_sim.calibration.read import read_all
from areal_sim.calibration.samples import Measured
from areal_sim.cost import CostModel, build_cost
from areal_sim.cost.calibrated import CalibratedCost
from interfaces.calibration import Calibration, PartName
from interfaces.errors import DataError
from interfaces.scenario import Resolved


def costs_of(trace: Path, resolved: Resolved, *, real: bool) -> tuple[CostModel, list[str]]:
    """The cost model to replay with, and what a user must know about it.

    A simulated run keeps its own; so does a scenario with a `cost.file` or constants. Else each part that
    the trace identifies is fitted to it, and the rest comes from the roofline.
    """
    if not real or resolved.scenario.cost.file is not None or resolved.scenario.cost.model == "constant":
        return build_cost(resolved), []
    fitted, notes = fit_parts(read_all([trace]))
    if fitted is None:
        return build_cost(resolved), notes
    return CalibratedCost(resolved, fitted), notes


def fit_parts(measured: Measured) -> tuple[Calibration | None, list[str]]:
    """Every part that the data identify, in the fullest form that they do; what is simpler or missing."""
    made: Calibration | None = None
    notes = []
    for part in dict.fromkeys(sample.part for sample in measured.samples):
        samples = [sample for sample in measured.samples if sample.part == part]
        only = Measured(samples, measured.about, measured.sources, set(measured.tensor_parallel))
        fitted, note = _fullest(part, only)
        notes += [note] if note else []
        if fitted is not None:
            parts = {**(made.parts if made is not None else {}), **fitted.parts}
            made = fitted.model_copy(update={"parts": parts})
    return made, notes


def _fullest(part: PartName, measured: Measured) -> tuple[Calibration | None, str]:
    try:
        fitted, _ = calibrate(measured, "line", simplify=True, keep_outliers=True)
    except DataError as error:
        return None, f"costs of {part} come from the roofline: {error}"
    left_out = [name for name, why in fitted.parts[part].assumed.items() if "left out" in why]
    return fitted, f"costs of {part}: {', '.join(left_out)} left out, one run cannot tell" if left_out else ""
