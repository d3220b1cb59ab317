"""What the size buffer holds, and that it forgets what nobody wants."""

from areal_sim.buffer import SizeBuffer
from areal_sim.simulation import Simulation
from interfaces.scenario_file import load


def test_a_rollout_discarded_while_running_is_not_kept_when_it_finishes() -> None:
    buffer = SizeBuffer()
    buffer.put(1, 10)
    buffer.discard([1, 2], running=[2])
    buffer.put(2, 20)
    assert len(buffer) == 0
    buffer.put(2, 30)
    assert buffer.take([2]).tolist() == [30]


def test_one_that_left_unfinished_may_come_again() -> None:
    buffer = SizeBuffer()
    buffer.discard([3], running=[3])
    buffer.left(3)
    buffer.put(3, 5)
    assert len(buffer) == 1


def test_nothing_is_left_behind_by_a_bound_that_drops() -> None:
    resolved = load(
        "areal/table7",
        [
            "run.steps=20", "run.warmup_steps=2", "policy.name=areal_strict", "policy.max_staleness=1",
            "policy.straggler=drop", "workload.batch_size=4", "workload.group_size=2",
            "trainer.minibatches=1", "workload.response_tokens.sigma=1.6", "reward.latency_s.value=0.0",
        ],
    )  # fmt: skip
    simulation = Simulation(resolved)
    report = simulation.run()
    assert report["dropped_tokens"] > 0
    assert report["staleness"]["max"] <= 1
    ready = 0 if simulation.loop.ended else None
    assert len(simulation.buffer) == ready
