"""Shipped scenarios, cut short: their reports stay as they were.

After a change that is meant to move numbers: `UPDATE_GOLDEN=1 pytest tests/golden`; the commit says why.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from areal_sim.simulation import Simulation
from interfaces.scenario_file import load

RUNS: dict[str, tuple[str, list[str]]] = {
    "table7": ("areal/table7", ["run.steps=6", "run.warmup_steps=1"]),
    "table7_not_interruptible": (
        "areal/table7",
        ["run.steps=4", "run.warmup_steps=1", "policy.interruptible=false", "run.seed=3"],
    ),
    "table1_7b_sync": ("areal/table1_7b_sync", ["run.steps=2", "run.warmup_steps=0"]),
    "table1_1_5b_async": ("areal/table1_1_5b_async", ["run.steps=3", "run.warmup_steps=0"]),
}
FOLDER = Path(__file__).parent


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """A report flattened to `path: leaf`, so that a difference names its place."""
    if isinstance(value, dict):
        return {k: v for key, below in value.items() for k, v in leaves(below, f"{path}.{key}").items()}
    if isinstance(value, list):
        return {k: v for i, below in enumerate(value) for k, v in leaves(below, f"{path}[{i}]").items()}
    return {path.removeprefix("."): value}


@pytest.mark.parametrize("name", RUNS)
def test_report_is_as_recorded(name: str) -> None:
    """Counts and words exactly; times and rates to 1e-9, as mathematical libraries differ in the last bit."""
    scenario, sets = RUNS[name]
    report = Simulation(load(scenario, sets)).run()
    del report["wall_s"]
    file = FOLDER / f"{name}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(json.dumps(report, indent=2, sort_keys=True) + "\n")
    found, recorded = leaves(json.loads(json.dumps(report))), leaves(json.loads(file.read_text()))
    assert found.keys() == recorded.keys()
    for place, value in recorded.items():
        expected = pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
        assert found[place] == expected, place
