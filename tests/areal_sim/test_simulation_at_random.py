"""Random scenarios under random products of the five decisions: the laws that hold for all of them."""

from dataclasses import dataclass
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import Fifo, HandMadeCost, Trace, exponential, lognormal, policy, prepare, small

from areal_sim.simulation import Simulation
from interfaces.actions import InFlight, Train
from interfaces.errors import StallError
from interfaces.policies.admission import Concurrency, CountGate
from interfaces.policies.buffering import Bounded, OldestFirst, Straggler
from interfaces.policies.capacity import FixedPools
from interfaces.policies.dispatch import GroupAffinity, LeastLoaded
from interfaces.policies.protocols import Policy
from interfaces.policies.sync import EveryStep
from interfaces.scenario import Resolved

COST = HandMadeCost(
    base=lambda n: 0.008 + 0.0001 * n, decode_per_context_token_s=2e-7, prefill_token_s=2e-5,
    train=lambda lengths: 0.4 + 2e-5 * float(lengths.sum()), publish=0.21, load=lambda n: 0.3 + 0.02 * n,
    switch=0.5,
)  # fmt: skip
LONG = 400_000
"""Events of the clock that no run of this size needs: a run that does hangs."""

moments = st.floats(0.0, 20.0, allow_subnormal=False)
deaths = st.builds(
    lambda replica, at_s, down_s: {"replica": replica, "at_s": at_s, "down_s": down_s},
    st.integers(0, 3), moments, st.floats(0.1, 5.0),
)  # fmt: skip
slowdowns = st.builds(
    lambda replica, at_s, slowdown: {"replica": replica, "at_s": at_s, "slowdown": slowdown},
    st.integers(0, 3), moments, st.floats(1.1, 4.0),
)  # fmt: skip
turns = st.builds(
    lambda number: {
        "number": {"type": "constant", "value": float(number)},
        "tool_time_s": exponential(0.5),
        "tool_tokens": {"type": "constant", "value": 10.0},
    },
    st.integers(1, 4),
)


@dataclass(frozen=True)
class Case:
    resolved: Resolved
    policy: Policy
    kv: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    replicas = draw(st.integers(1, 4))
    faults = [
        fault for fault in draw(st.lists(deaths | slowdowns, max_size=4)) if fault["replica"] < replicas
    ]
    workload: dict[str, Any] = {
        "batch_size": draw(st.integers(1, 6)),
        "group_size": draw(st.integers(1, 4)),
        "response_tokens": lognormal(draw(st.sampled_from([20.0, 120.0])), draw(st.sampled_from([0.3, 1.0]))),
        "prompt_tokens": exponential(draw(st.sampled_from([1.0, 60.0]))),
        "turns": draw(st.none() | turns),
        "dataset_size": draw(st.none() | st.integers(6, 40)),
    }
    resolved = small(
        run={
            "steps": draw(st.integers(1, 10)), "seed": draw(st.integers(0, 1000)),
            "last_batch": draw(st.sampled_from(["drop", "train"])),
            "evaluation_every_steps": draw(st.integers(0, 2)), "evaluation_s": 1.0,
            "evaluation_on": draw(st.sampled_from(["trainer", "rollout"])),
            "checkpoint_every_steps": draw(st.sampled_from([0, 2])), "checkpoint_s": 0.3,
        },
        cluster={"rollout_gpus": replicas, "trainer_gpus": replicas},
        workload=workload,
        faults={
            "replica": tuple(faults),
            "rollout_failure_probability": draw(st.sampled_from([0.0, 0.1])),
        },
        reward={
            "latency_s": draw(st.sampled_from([{"type": "constant", "value": 0.0}, exponential(0.3)])),
            "workers": draw(st.sampled_from([None, 1, 3])),
        },
        engine={"max_num_seqs": draw(st.sampled_from([1, 4, 64])), "prefix_caching": draw(st.booleans())},
    )  # fmt: skip
    eta = draw(st.integers(0, 5))
    in_flight = draw(st.sampled_from(list(InFlight)))
    seats = draw(st.integers(1, 8))
    return Case(
        resolved,
        policy(
            CountGate(eta),
            Concurrency(draw(st.sampled_from([6, 12, 30, inf]))),
            sync=EveryStep(in_flight, max_loading=draw(st.sampled_from([None, 1, 2]))),
            dispatch=draw(
                st.sampled_from([LeastLoaded(), GroupAffinity(), LeastLoaded(max_per_replica=seats)])
            ),
            buffering=draw(
                st.sampled_from(
                    [Fifo(), OldestFirst(), OldestFirst(max_ready=10), OldestFirst(filter_zero_variance=True)]
                    + [Bounded(eta, rule) for rule in Straggler]
                )
            ),
            capacity=FixedPools(colocated=draw(st.booleans())),
        ),
        draw(st.sampled_from([10**9, 900, 200])),
    )


@given(case=cases())
@settings(max_examples=200, deadline=None)
def test_a_run_ends_trains_nothing_twice_and_leaves_nothing_behind(case: Case) -> None:
    """Or says why it cannot go on; but it never hangs, and its books add up."""
    trace = Trace()
    simulation = prepare(case.resolved, policy=case.policy, cost=COST, kv=case.kv, trace=trace)
    events = 0
    step = simulation.env.step

    def counted() -> None:
        nonlocal events
        events += 1
        assert events < LONG, f"hangs at {simulation.env.now} s"
        step()

    simulation.env.step = counted  # type: ignore[method-assign]
    try:
        simulation.run()
    except StallError as stall:
        why = str(stall)
    else:
        check_end(simulation, trace)
        return
    assert "filtered" in why, "only a filter can stop these policies"


def check_end(simulation: Simulation, trace: Trace) -> None:
    trained = [rollout for action in trace.actions(Train) for rollout in action.rollouts]
    assert len(set(trained)) == len(trained)
    for replica in simulation.replicas:
        assert not any((replica.batch.running, replica.waiting, replica.away))
        assert (replica.batch.kv, replica.batch.context) == (0, 0)
    assert not simulation.loop.ledger.groups
    assert not simulation.loop.ledger.rollouts
    check_books(trace, len(simulation.replicas))


def check_books(trace: Trace, replicas: int) -> None:
    for usage in trace.usages:
        assert sum(usage.rollout_s.values()) == pytest.approx(replicas * usage.at, rel=1e-9, abs=1e-9)
        assert sum(usage.trainer_s.values()) == pytest.approx(usage.at, rel=1e-9, abs=1e-9)
        assert min(usage.rollout_s.values()) >= 0.0
    ends: dict[str, float] = {}
    for span in trace.spans:
        assert span.start >= ends.get(span.track, 0.0) - 1e-9, "spans overlap"
        ends[span.track] = span.end
