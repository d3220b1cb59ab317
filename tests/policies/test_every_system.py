"""Every named system runs to its end, loses nothing and keeps what it promises."""

import pytest
from small_runs import exponential, simulate, small
from systems import SYSTEMS, Parameters, built, label, run

from interfaces.actions import Train
from interfaces.events import Event, TrainingFinished
from interfaces.loop import TrainingLoop

each_system = pytest.mark.parametrize(("name", "parameters"), SYSTEMS, ids=map(label, SYSTEMS))


@each_system
def test_a_hard_bound_holds_and_no_run_stalls(name: str, parameters: Parameters) -> None:
    promised = built(name, **parameters).guarantees
    for seed in range(10):
        finished = run(name, parameters, seed=seed)
        report = finished.report
        assert report["ended"] == "steps"
        ages = report["token_staleness" if promised.per_token else "staleness"]
        if promised.hard:
            assert promised.max_staleness is not None
            assert ages["max"] <= promised.max_staleness
        if promised.no_drops:
            assert report["dropped_rollouts"] == 0
            assert set(report["discarded_groups"]) <= {"run_end"}


@each_system
def test_admitted_groups_are_running_ready_training_trained_or_discarded(
    name: str, parameters: Parameters
) -> None:
    seen = 0

    def conserved(loop: TrainingLoop, event: Event) -> None:
        nonlocal seen
        view = loop.view
        where = view.untaken + len(view.training) + view.trained_groups + view.discarded_groups
        assert loop.ledger.admitted_groups == where
        assert view.running_rollouts >= 0
        assert view.pending_rollouts >= 0
        seen += type(event) is TrainingFinished and event.last

    resolved = small(
        run={"steps": 12},
        cluster={"rollout_gpus": 2, "trainer_gpus": 2},
        engine={"max_num_seqs": 16},
        workload={"batch_size": 6, "group_size": 2, "response_tokens": exponential(120.0)},
        reward={"latency_s": exponential(0.3), "workers": 4},
        faults={
            "rollout_failure_probability": 0.03,
            "replica": ({"replica": 1, "at_s": 6.0, "down_s": 3.0},),
        },
        policy={"name": name, **parameters},
    )
    finished = simulate(resolved, watch=conserved)
    assert seen == 12
    trained: set[int] = set()
    for action in finished.trace.actions(Train):
        assert trained.isdisjoint(action.rollouts), "trained twice"
        trained.update(action.rollouts)


@each_system
def test_the_end_of_the_data_is_an_end(name: str, parameters: Parameters) -> None:
    """NeMo-RL#2899, tinker-cookbook#480: the last prompts must not leave anyone waiting."""
    resolved = small(
        run={"steps": 100, "last_batch": "train"},
        cluster={"rollout_gpus": 2, "trainer_gpus": 2},
        workload={
            "batch_size": 4, "group_size": 2, "dataset_size": 10, "epochs": 2,
            "response_tokens": exponential(100.0),
        },
        policy={"name": name, **parameters},
    )  # fmt: skip
    finished = simulate(resolved)
    ledger, view = finished.simulation.loop.ledger, finished.simulation.loop.view
    assert finished.report["ended"] == "data"
    assert view.untaken == len(view.training) == 0
    if built(name, **parameters).guarantees.no_drops:
        assert view.trained_groups == 20
    assert ledger.admitted_groups == view.trained_groups + view.discarded_groups


@each_system
def test_single_version_means_one_segment(name: str, parameters: Parameters) -> None:
    """verl#6882, slime#2092: partial rollouts off, and one sample still spans several versions."""
    finished = run(name, parameters, seed=3)
    spans = {
        rollout: head
        for event, _ in finished.trace.fed_
        if (head := getattr(event, "segments", None)) is not None
        and (rollout := getattr(event, "rollout", None)) is not None
    }
    if built(name, **parameters).guarantees.single_version:
        assert all(len(segments) <= 1 for segments in spans.values())
