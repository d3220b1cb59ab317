"""Recorded results that several tests read: a run, a comparison, a sweep, a plan."""

from pathlib import Path

import pytest
from recorded import SMALL, TINY, areal_sim


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directories `run`, `compare`, `sweep` and `plan`, each with the page that the command wrote."""
    root = tmp_path_factory.mktemp("results")
    areal_sim("run", "areal/table7", *SMALL, "--out", root / "run")
    names = ("areal/table1_1_5b_sync", "areal/table1_1_5b_async")
    areal_sim("compare", *names, *TINY, "--jobs", "1", "--out", root / "compare")
    over = ("--over", "policy.max_staleness=0,1,4", "--over", "cluster.trainer_gpus=2,4", "--jobs", "1")
    areal_sim("sweep", "areal/table7", *SMALL, *over, "--out", root / "sweep")
    few = ("--gpus", 4, "--max-staleness", 2, "--samples", 2, "--best", 2, "--jobs", 1)
    areal_sim("plan", "areal/table7", *SMALL, *few, "--out", root / "plan")
    return root
