import numpy as np
import pytest
from cost_scenarios import dense, hardware, resolved
from hypothesis import given
from hypothesis import strategies as st

from areal_sim.cost import CostModel, build_cost
from areal_sim.cost.constant import ConstantCost
from interfaces.errors import ScenarioError

WEIGHTS = 2e9


def cost(method: str, **parts: object) -> CostModel:
    sync = {"method": method, "overhead_s": 0.5}
    return build_cost(resolved(machine=hardware(), model=dense(), sync=sync, **parts))  # type: ignore[arg-type]


def test_disk_is_written_once_and_read_by_every_node() -> None:
    disk = cost("disk", rollout_gpus=32)
    assert disk.publish_s() == pytest.approx(WEIGHTS / 4e9)  # storage, slower than the writer's links
    copy_s = WEIGHTS / 5e9
    assert disk.load_s(1) == disk.load_s(8) == pytest.approx(0.5 + WEIGHTS / 4e9 + copy_s)
    assert disk.load_s(9) == pytest.approx(0.5 + 2 * WEIGHTS / 4e9 + copy_s)
    assert disk.load_s(32) == pytest.approx(0.5 + 4 * WEIGHTS / 4e9 + copy_s)


def test_shards_are_copied_side_by_side() -> None:
    disk = cost("disk", engine={"tensor_parallel": 4}, rollout_gpus=32)
    assert disk.load_s(2) == pytest.approx(0.5 + WEIGHTS / 4e9 + WEIGHTS / 4 / 5e9)
    assert disk.load_s(3) == pytest.approx(0.5 + 2 * WEIGHTS / 4e9 + WEIGHTS / 4 / 5e9)


def test_fast_storage_leaves_the_links_as_limit() -> None:
    machine = hardware(storage_bytes_per_s=1e15)
    disk = build_cost(resolved(machine=machine, model=dense(), sync={"method": "disk"}))
    assert disk.publish_s() == pytest.approx(WEIGHTS / 5e9)
    assert disk.load_s(1) == pytest.approx(WEIGHTS / (8 * 1e10) + WEIGHTS / 5e9)


def test_a_broadcast_takes_as_long_for_many_as_for_one() -> None:
    broadcast = cost("broadcast", rollout_gpus=32)
    assert broadcast.load_s(1) == broadcast.load_s(32) == pytest.approx(0.5 + WEIGHTS / 1e10)


def test_a_broadcast_inside_one_node_uses_nvlink() -> None:
    assert cost("broadcast", rollout_gpus=4, trainer_gpus=4).load_s(4) == pytest.approx(0.5 + WEIGHTS / 1e11)


def test_tensor_parallel_shards_are_gathered_before_a_broadcast() -> None:
    assert cost("broadcast").publish_s() == 0
    parallel = cost("broadcast", trainer={"tensor_parallel": 4, "pipeline_parallel": 2})
    assert parallel.publish_s() == pytest.approx(3 / 4 * WEIGHTS / 2 / 1e11)


def test_a_role_switch_moves_weights_and_optimizer_state() -> None:
    switch = cost("broadcast", trainer_gpus=8, engine={"tensor_parallel": 2}).switch_s()
    assert switch == pytest.approx((12 * 1e9 / 8 + WEIGHTS / 2) / 5e9)
    whole = cost("broadcast", trainer_gpus=8, trainer={"distributed_optimizer": False}).switch_s()
    assert whole == pytest.approx((12 * 1e9 + WEIGHTS) / 5e9)


@given(st.integers(1, 64), st.integers(1, 64))
def test_more_replicas_never_load_faster(few: int, more: int) -> None:
    disk = cost("disk", rollout_gpus=128)
    assert disk.load_s(few) <= disk.load_s(few + more)


CONSTANTS = {"model": "constant", "decode_step_s": 0.02, "prefill_s": 0.3, "train_s": 8.0, "load_s": 2.0}


def test_constants_are_what_the_scenario_says() -> None:
    fixed = build_cost(resolved(cost=CONSTANTS | {"publish_s": 1.5}, sync={"overhead_s": 0.25}))
    assert isinstance(fixed, ConstantCost)
    assert fixed.floor is None
    assert fixed.decode_base_s(1) == fixed.decode_base_s(500) == 0.02
    assert fixed.decode_per_context_token_s == 0
    assert fixed.prefill_s(1000, 1e6, sequences=3) == pytest.approx(0.9)
    assert fixed.prefill_s(0, 0.0) == 0
    step = fixed.training_step_s(np.array([5, 6]))
    assert (step.total_s, sum(step.minibatch_s), step.forward_s) == (8.0, 8.0, 0.0)
    assert (fixed.publish_s(), fixed.load_s(7), fixed.switch_s()) == (1.5, 2.25, 0.0)


def test_the_parts_of_a_streamed_step_take_one_step_together() -> None:
    fixed = build_cost(resolved(cost=CONSTANTS))
    parts = [
        fixed.training_step_s(np.array([5]), minibatches=1, update=last) for last in (False, False, True)
    ]
    assert sum(part.total_s for part in parts) == 8.0


@pytest.mark.parametrize("missing", ["decode_step_s", "train_s"])
def test_a_constant_without_a_default_must_be_given(missing: str) -> None:
    constants = {key: value for key, value in CONSTANTS.items() if key != missing}
    with pytest.raises(ScenarioError, match=f"cost.{missing} = <missing> is required"):
        build_cost(resolved(cost=constants))
