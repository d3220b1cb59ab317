import time

import numpy as np
import pytest
from cost_scenarios import dense, efficiencies, hardware, resolved
from hypothesis import given
from hypothesis import strategies as st

from areal_sim.cost import TrainingTime, build_cost
from areal_sim.cost.pipeline import forward_only, one_f_one_b
from areal_sim.cost.roofline import RooflineCost
from interfaces.scenario_file import available

ALL = [("h800", name) for name in available("models")] + [
    (name, "qwen2.5-7b") for name in available("hardware")
]
FORWARD = 2 * 0.9e9 * 1000 + 2 * 4 * 8 * 64 * 1000**2
"""FLOPs of one forward pass of the toy model over 1000 tokens."""


def train(
    lengths: list[int], gpus: int = 1, machine_overhead_s: float = 0.0, **trainer: object
) -> TrainingTime:
    machine = hardware(efficiencies(microbatch_overhead_s=machine_overhead_s))
    settings = {"minibatches": 1, "recompute_proximal": False} | trainer
    cost = RooflineCost(resolved(machine=machine, model=dense(), trainer_gpus=gpus, trainer=settings))
    return cost.training_step_s(np.array(lengths))


def compute_s(time: TrainingTime) -> float:
    """Without the optimizer."""
    return time.total_s - len(time.minibatch_s) * time.update_s


def test_useful_flops_at_the_share_is_the_definition_of_mfu() -> None:
    assert compute_s(train([1000])) == pytest.approx(3 * FORWARD / (0.75 * 1e15))


def test_without_checkpointing_the_second_forward_is_saved() -> None:
    assert compute_s(train([1000], activation_checkpointing=False)) == pytest.approx(3 * FORWARD / 1e15)


def test_the_proximal_forward_is_a_quarter_of_a_training_pass() -> None:
    time = train([1000], machine_overhead_s=0.01, recompute_proximal=True)
    assert time.forward_s == pytest.approx(FORWARD / 1e15 + 0.01 / 4)
    assert time.total_s == pytest.approx(time.forward_s + sum(time.minibatch_s))


def test_every_micro_batch_has_its_overhead() -> None:
    one = train([1000] * 6, machine_overhead_s=0.01)
    three = train([1000] * 6, machine_overhead_s=0.01, max_tokens_per_microbatch=2000)
    assert (one.microbatches, three.microbatches) == (1, 3)
    assert three.total_s - one.total_s == pytest.approx(0.02)
    assert three.fill == 1.0


def test_the_slowest_rank_decides() -> None:
    time = train([3000, 1000, 1000], gpus=2)
    alone = train([3000])
    assert compute_s(time) == pytest.approx(compute_s(alone))
    assert time.imbalance > 1.2


def test_minibatches_are_cut_in_training_order() -> None:
    time = train([1000, 1000, 4000, 4000], minibatches=2)
    first, second = (seconds - time.update_s for seconds in time.minibatch_s)
    assert second > 3 * first
    assert len(time.minibatch_s) == 2


@pytest.mark.parametrize("kind", ["dynamic", "fixed"])
def test_fewer_sequences_than_micro_batches_are_all_trained(kind: str) -> None:
    settings = {
        "microbatching": kind,
        "pipeline_parallel": 2,
        "minibatches": 4,
        "distributed_optimizer": False,
    }
    time = train([1000, 1000], gpus=4, **settings)
    assert [seconds > time.update_s for seconds in time.minibatch_s] == [False, True, False, True]


def test_a_streamed_part_updates_only_at_the_end() -> None:
    cost = RooflineCost(resolved(machine=hardware(), model=dense()))
    part = cost.training_step_s(np.array([1000] * 8), minibatches=1, update=False)
    last = cost.training_step_s(np.array([1000] * 8), minibatches=1)
    assert len(part.minibatch_s) == len(last.minibatch_s) == 1
    assert last.update_s > part.update_s == 0
    assert last.total_s - part.total_s == pytest.approx(last.update_s)


def test_an_update_exchanges_gradients_and_streams_the_optimizer_state() -> None:
    params = 1e9
    sharded = train([1000] * 8, gpus=8).update_s
    assert sharded == pytest.approx(7 / 8 * 6 * params / 1e11 + 30 * params / 8 / 1e12)
    whole = train([1000] * 8, gpus=8, distributed_optimizer=False).update_s
    assert whole == pytest.approx(7 / 8 * 8 * params / 1e11 + 30 * params / 1e12)
    network = train([1000] * 16, gpus=16).update_s
    assert network == pytest.approx(15 / 16 * 6 * params / 1e10 + 30 * params / 16 / 1e12)


def test_nothing_to_train_takes_only_the_update() -> None:
    time = train([])
    assert (time.total_s, time.microbatches) == (time.update_s, 0)


trainers = st.builds(
    lambda ranks, **settings: {"tensor_parallel": ranks[0], "pipeline_parallel": ranks[1], **settings},
    ranks=st.sampled_from([(1, 1), (1, 2), (2, 2), (2, 4), (8, 1)]),
    microbatching=st.sampled_from(["dynamic", "fixed"]),
    activation_checkpointing=st.booleans(),
    recompute_proximal=st.booleans(),
)


@given(st.sampled_from(ALL), st.lists(st.integers(1, 40_000), min_size=1, max_size=60), trainers)
def test_no_training_step_beats_the_hardware(
    pair: tuple[str, str], lengths: list[int], trainer: dict[str, object]
) -> None:
    cost = build_cost(resolved(machine=pair[0], model=pair[1], trainer_gpus=16, trainer=trainer))
    assert cost.floor is not None
    array = np.array(lengths)
    floor = cost.floor.training_floor_s(array.sum(), float((array.astype(float) ** 2).sum()))
    assert cost.training_step_s(array).total_s >= floor


def reference_1f1b(times: list[float], stages: int, share: float) -> float:
    """Runs every stage's list of operations, each as soon as what it waits for is done."""
    count = len(times)
    plans = []
    for stage in range(stages):
        warm = min(count, stages - stage - 1)
        steady = [op for i in range(count - warm) for op in (("F", warm + i), ("B", i))]
        plans.append(
            [("F", i) for i in range(warm)] + steady + [("B", i) for i in range(count - warm, count)]
        )
    done: dict[tuple[str, int, int], float] = {}
    clock, position = [0.0] * stages, [0] * stages
    while any(position[s] < len(plans[s]) for s in range(stages)):
        for stage in range(stages):
            while position[stage] < len(plans[stage]):
                kind, i = plans[stage][position[stage]]
                before = (kind, i, stage - 1 if kind == "F" else stage + 1)
                needs = stage > 0 if kind == "F" else stage < stages - 1
                if needs and before not in done:
                    break
                start = max(clock[stage], done[before] if needs else 0.0)
                clock[stage] = start + times[i] * (share if kind == "F" else 1 - share)
                done[kind, i, stage] = clock[stage]
                position[stage] += 1
    return max(clock)


ranks_of_microbatches = st.lists(st.lists(st.floats(0.01, 10), max_size=12), min_size=1, max_size=4)


@given(ranks_of_microbatches, st.integers(1, 8), st.sampled_from([0.25, 1 / 3]))
def test_the_pipeline_schedule_equals_running_it(ranks: list[list[float]], stages: int, share: float) -> None:
    most = max(1, *map(len, ranks)) if ranks else 1
    table = np.array([row + [0.0] * (most - len(row)) for row in ranks])
    expected = [reference_1f1b(row, stages, share) for row in ranks]
    assert one_f_one_b(table, np.array([len(row) for row in ranks]), stages, share) == pytest.approx(expected)


def test_equal_micro_batches_fill_and_drain_the_pipeline_once() -> None:
    table = np.full((1, 10), 2.0)
    assert one_f_one_b(table, np.array([10]), 4, 0.25) == pytest.approx([2.0 * 13])
    assert forward_only(table, 4) == pytest.approx([2.0 * 13])


def lengths_of_a_batch(groups: int = 512) -> np.ndarray:
    """Lognormal as in AReaL's v0.1 log (7B at 16k), groups of 16 with an assumed correlation of 1/2."""
    rng = np.random.default_rng(0)
    z = (rng.standard_normal((groups, 1)) + rng.standard_normal((groups, 16))) / np.sqrt(2)
    return (np.minimum(6579 * np.exp(0.786 * z), 16384).astype(int) + 106).ravel()


@pytest.mark.parametrize(
    ("model", "gpus", "tensor", "stages", "published"),
    [("1.5b", 8, 1, 2, 1.057), ("7b", 16, 1, 4, 1.50), ("32b", 64, 2, 8, 1.37)],
)
def test_dynamic_micro_batches_gain_as_in_figure_6a(
    model: str, gpus: int, tensor: int, stages: int, published: float
) -> None:
    """AReaL (arXiv 2505.24298) Fig. 6a: 32768 tokens a micro-batch against 32 micro-batches.

    The splits are those of its benchmark configuration; batch and lengths are not stated. Direction and
    rough size.
    """
    seconds = {}
    for kind in ("dynamic", "fixed"):
        trainer = {"tensor_parallel": tensor, "pipeline_parallel": stages, "microbatching": kind}
        name = f"deepseek-r1-distill-qwen-{model}"
        cost = build_cost(resolved(model=name, trainer_gpus=gpus, trainer=trainer))
        seconds[kind] = sum(cost.training_step_s(lengths_of_a_batch()).minibatch_s)
    gain = seconds["fixed"] / seconds["dynamic"]
    assert gain > 1.05
    assert gain == pytest.approx(published, rel=0.2)


def test_a_step_of_8192_sequences_is_priced_quickly() -> None:
    trainer = {"pipeline_parallel": 2}
    cost = build_cost(resolved(model="qwen2.5-1.5b", trainer_gpus=32, trainer=trainer))
    lengths = lengths_of_a_batch()
    cost.training_step_s(lengths)
    start = time.process_time()
    for _ in range(5):
        cost.training_step_s(lengths)
    assert (time.process_time() - start) / 5 < 0.05  # 4 ms; ten times that means an accident
