"""Small recorded results, made by the command line."""

import sys

import pytest

from areal_sim.__main__ import main

SMALL = (
    "--set", "workload.batch_size=8", "--set", "workload.group_size=4", "--set", "run.steps=16",
    "--set", "run.warmup_steps=4", "--set", "policy.max_concurrent_groups=8",
)  # fmt: skip

TINY = (
    "--set", "workload.batch_size=32", "--set", "workload.group_size=4", "--set", "run.steps=6",
    "--set", "run.warmup_steps=1",
)  # fmt: skip


def areal_sim(*arguments: object) -> None:
    """Run the command line in this process."""
    before, sys.argv = sys.argv, ["areal-sim", *map(str, arguments)]
    try:
        with pytest.raises(SystemExit) as end:
            main()
    finally:
        sys.argv = before
    assert not end.value.code
