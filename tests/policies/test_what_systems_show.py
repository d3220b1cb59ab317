"""Published and analytic behaviour of the named systems."""

from math import inf
from typing import Any

import pytest
from small_runs import Finished, HandMadeCost, exponential, policy, simulate, small
from systems import with_one_straggler

from interfaces.actions import Generate, InFlight, Train
from interfaces.events import EngineLoad
from interfaces.policies.admission import Concurrency, CountGate


def over_provisioned(**parameters: Any) -> Finished:
    """64 of 128 train; exponential lengths of mean 1000, every rollout at its own pace."""
    resolved = small(
        run={"steps": 40, "warmup_steps": 10},
        workload={"batch_size": 64, "response_tokens": exponential(1000.0)},
        policy={"name": "slime_partial", "over_sampling_batch_size": 128, **parameters},
    )
    return simulate(resolved, traced=False)


@pytest.mark.parametrize("colocate", [True, False])
def test_over_provision_and_abort_trains_the_short_half(colocate: bool) -> None:
    """Mean of the lower half of exponential lengths: 1 - ln 2 = 0.307 of the mean."""
    report = over_provisioned(partial_rollout=False, colocate=colocate).report
    assert report["mean_length"]["trained"] == pytest.approx(307.0, rel=0.06)
    assert report["dropped_tokens"] > report["trained_tokens"]
    assert report["staleness"]["max"] == 0


def test_resume_first_restores_the_mean_length() -> None:
    """APRIL: what was stopped goes on first; in the steady state all lengths train."""
    report = over_provisioned(partial_rollout=True).report
    assert report["mean_length"]["trained"] == pytest.approx(1000.0, rel=0.06)
    assert report["dropped_tokens"] == 0
    assert report["staleness"]["max"] > 1


def test_drop_at_use_trains_shorter_rollouts_than_the_workload_has() -> None:
    """The longest are the stalest: a sweep at use biases lengths down without aborting anything."""
    resolved = small(
        run={"steps": 60, "warmup_steps": 20},
        engine={"max_num_seqs": 64},
        workload={"batch_size": 8, "response_tokens": exponential(300.0)},
        policy={"name": "trl_async", "max_staleness": 2},
    )
    report = simulate(resolved, traced=False).report
    assert report["mean_length"]["trained"] < 0.8 * 300.0
    assert report["dropped_tokens"] > 0


def test_a_rollout_longer_than_the_publish_interval_starves_under_restart_and_finishes_under_keep() -> None:
    """miles#2589: every publish aborts it; while others keep the trainer busy it never ends."""
    resolved = small(run={"steps": 40}, workload={"batch_size": 4}, cost={"train_s": 1.0})

    def trained_at(action: InFlight) -> int | None:
        finished = simulate(
            resolved,
            policy=policy(CountGate(inf), Concurrency(8), in_flight=action),
            lengths=lambda prompt, _: 500 if prompt == 0 else 40,
        )
        for train in finished.trace.actions(Train):
            if 0 in train.groups:
                return int(train.step)
        return None

    assert trained_at(InFlight.ABORT_RESTART) is None
    restarting = policy(CountGate(inf), Concurrency(8), in_flight=InFlight.ABORT_RESTART)
    report = simulate(
        resolved, policy=restarting, lengths=lambda prompt, _: 500 if prompt == 0 else 40
    ).report
    assert report["starving"]["prompts"] == 1
    assert report["starving"]["most_starts"] > 30
    kept = trained_at(InFlight.KEEP_RECOMPUTE)
    assert kept is not None
    assert kept < 10


def step_time(name: str, tokens: float, train_s: float) -> float:
    resolved = small(
        run={"steps": 30, "warmup_steps": 10},
        workload={"batch_size": 8, "response_tokens": {"type": "constant", "value": tokens}},
        cost={"train_s": train_s},
        policy={"name": name},
    )
    mean: float = simulate(resolved, traced=False).report["step_time_s"]["mean"]
    return mean


@pytest.mark.parametrize("name", ["verl_one_step_off", "areal", "staleflow", "pipeline_rl", "laminar"])
@pytest.mark.parametrize(("tokens", "train_s"), [(100.0, 10.0), (1000.0, 1.0)])
def test_overlap_gains_no_more_than_the_shorter_phase(name: str, tokens: float, train_s: float) -> None:
    """UniRL#94: 10 s and 1 s overlapped take 10 s at best, 11 s in turns: trainer-bound, nothing to gain."""
    in_turns = step_time("sync", tokens, train_s)
    assert in_turns == pytest.approx(11.0, rel=1e-3)
    overlapped = step_time(name, tokens, train_s)
    if train_s == 10.0 or name == "verl_one_step_off":
        assert in_turns / overlapped <= 1.1 + 1e-6


def test_synchronous_generation_stops_scaling_when_the_tail_binds() -> None:
    """verl's 7B rows: twice the GPUs, and generation takes as long as its longest rollout."""

    def generation(replicas: int) -> float:
        resolved = small(
            run={"steps": 12},
            cluster={"rollout_gpus": replicas, "trainer_gpus": replicas},
            engine={"max_num_seqs": 8},
            workload={"batch_size": 64, "response_tokens": exponential(100.0)},
            policy={"name": "verl_sync"},
        )
        mean: float = simulate(resolved, traced=False).report["step_time_s"]["mean"]
        return mean - 1.0

    few, more, most = generation(1), generation(8), generation(16)
    assert few > 1.5 * more
    assert most == pytest.approx(more, rel=1e-6)


def test_a_hard_bound_has_a_price_waiting_in_time_dropping_in_long_rollouts() -> None:
    """The table of docs/explanation/systems.md: exponential lengths, two batches in flight, a bound of 4."""

    def measure(name: str, **parameters: Any) -> tuple[float, float]:
        resolved = small(
            run={"steps": 60, "warmup_steps": 20},
            engine={"max_num_seqs": 64},
            workload={"batch_size": 8, "response_tokens": exponential(300.0)},
            policy={"name": name, **parameters},
        )
        report = simulate(resolved, traced=False).report
        return report["effective_throughput_tokens_per_s"], report["mean_length"]["trained"]

    soft, whole = measure("areal", max_staleness=4, max_concurrent_groups=16)
    waits, waited = measure("staleflow", eta=4)
    at_use, used = measure("trl_async", max_staleness=4, max_inflight_tasks=16)
    early, cancelled = measure("prime_rl", max_off_policy_steps=4, concurrency="fixed")
    assert waits / soft == pytest.approx(0.53, abs=0.03)
    assert at_use / soft == pytest.approx(0.66, abs=0.03)
    assert early / soft == pytest.approx(0.70, abs=0.03)
    assert waited == pytest.approx(whole, rel=0.05)
    assert used == pytest.approx(196.0, rel=0.03)
    assert cancelled == pytest.approx(182.0, rel=0.03)


@pytest.mark.parametrize("name", ["roll_flash", "xtuner"])
def test_drop_and_requeue_starves_a_rollout_longer_than_the_bound_and_says_so(name: str) -> None:
    """Prompt 0 takes 13 s, a step 1 s, the bound is 1 version: each start is cancelled, the next one too."""
    knobs = {
        "roll_flash": {"async_generation_ratio": 1},
        "xtuner": {"max_staleness": 1, "tail_batch_trigger_size": 1},
    }
    report = with_one_straggler(name, **knobs[name]).report
    assert report["starving"]["prompts"] == 1
    assert report["starving"]["most_starts"] >= 6
    assert with_one_straggler("areal", max_staleness=1).report["starving"] == {"prompts": 0, "most_starts": 0}


def test_rollpacker_packs_a_batch_of_long_prompts_after_four_short_rounds() -> None:
    """A tail of one in ten rollouts twenty times as long: four rounds in five do not wait for it."""
    resolved = small(
        run={"steps": 40},
        workload={"batch_size": 16, "group_size": 1},
        policy={"name": "rollpacker"},
    )
    slow = simulate(resolved.model_copy(update={"scenario": resolved.scenario}), lengths=tail)
    rounds = [row["step_time_s"] for row in slow.report["per_step"]]
    long_rounds = [number for number, seconds in enumerate(rounds) if seconds > 15.0]
    assert long_rounds == list(range(4, 40, 5))
    trained = [rollout for train in slow.trace.actions(Train) for rollout in train.groups]
    assert len(trained) == len(set(trained)) == 40 * 16
    whole = simulate(
        small(run={"steps": 40}, workload={"batch_size": 16}, policy={"name": "verl_sync"}), lengths=tail
    )
    assert slow.report["sim_time_s"] < 0.6 * whole.report["sim_time_s"]
    assert slow.report["staleness"]["max"] == 0


def tail(prompt: int, _: int) -> int:
    return 2000 if prompt % 10 == 3 else 100


def test_seer_moves_chunks_without_computing_them_again() -> None:
    """One replica gets all long rollouts of its groups; chunks spread them, at no recomputation."""

    def run(name: str, **parameters: Any) -> dict[str, Any]:
        resolved = small(
            run={"steps": 4},
            cluster={"rollout_gpus": 4, "trainer_gpus": 4},
            workload={"batch_size": 8, "group_size": 4, "prompt_tokens": {"type": "constant", "value": 50.0}},
            policy={"name": name, **parameters},
        )
        cost = HandMadeCost(base=lambda n: 0.01 * n, prefill_token_s=1e-5)
        return simulate(
            resolved, cost=cost, lengths=lambda prompt, _: 1600 if prompt % 8 == 0 else 100
        ).report

    whole, chunks = run("verl_sync"), run("seer", chunk_tokens=100)
    assert chunks["recomputed_tokens"] == 0
    assert chunks["step_time_s"]["mean"] < 0.4 * whole["step_time_s"]["mean"]
    assert run("kimi_partial", token_budget=100)["recomputed_tokens"] > 0


def test_kimi_trains_the_last_segment_of_each_rollout_and_no_other_token() -> None:
    """Budget 100: of 250 tokens the last 50 train; its sister of 80, done two iterations before, whole."""
    resolved = small(
        run={"steps": 12},
        workload={"batch_size": 4, "group_size": 2},
        policy={"name": "kimi_partial", "token_budget": 100},
    )
    report = simulate(resolved, lengths=lambda prompt, member: 250 if prompt % 2 and member else 80).report
    assert report["trained_tokens"] / report["trained_rollouts"] == pytest.approx(
        (80 + 80 + 80 + 50) / 4, rel=0.05
    )
    assert report["masked_tokens"] / report["trained_rollouts"] == pytest.approx(200 / 4, rel=0.1)


def test_streamrl_gives_long_rollouts_replicas_of_their_own() -> None:
    resolved = small(
        run={"steps": 6},
        cluster={"rollout_gpus": 4, "trainer_gpus": 4},
        workload={"batch_size": 16},
        policy={"name": "streamrl", "long_pool": 0.25, "long_tokens": 100},
    )
    placed = simulate(resolved, lengths=tail).trace.actions(Generate)
    assert {action.replica for action in placed if action.resume_tokens >= 100} == {0}
    assert {action.replica for action in placed if not action.resume_tokens} == {1, 2, 3}


def test_prime_rl_raises_its_concurrency_until_the_kv_cache_is_full_and_then_cuts_it() -> None:
    """4000 KV tokens hold 20 rollouts of 200 at their end; 16 start, 2 % more each step."""
    resolved = small(
        run={"steps": 60},
        workload={"batch_size": 8, "response_tokens": {"type": "constant", "value": 200.0}},
        cost={"train_s": 0.1},
        policy={"name": "prime_rl", "max_off_policy_steps": 50},
    )
    finished = simulate(resolved, kv=3500)
    loads = [event for event in finished.trace.events(EngineLoad) if event.preemptions]
    assert loads
    fixed = small(
        run={"steps": 60},
        workload={"batch_size": 8, "response_tokens": {"type": "constant", "value": 200.0}},
        cost={"train_s": 0.1},
        policy={
            "name": "prime_rl",
            "max_off_policy_steps": 50,
            "concurrency": "fixed",
            "oversampling_factor": 6.0,
        },
    )
    assert finished.report["preemptions"] < 0.5 * simulate(fixed, kv=3500).report["preemptions"]
    assert not simulate(fixed, kv=3500).trace.events(EngineLoad)
