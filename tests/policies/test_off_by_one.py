"""Where a system counts differently from this project, the translation is exact (known conventions)."""

from collections.abc import Iterable

import pytest
from systems import built, run, with_one_straggler

from interfaces.events import TrainingFinished
from interfaces.policies.presets.common import versions_of_syncs
from interfaces.rollout import Group
from interfaces.view import LoopConfig, Overload, View


def view(batch_size: int, **state: int) -> View:
    """At a version, with so many groups in each place."""
    picture = View(LoopConfig(batch_size, 1, 100))
    picture.version = picture.published = state.get("version", 0)
    picture.steps_started = state.get("steps_started", picture.version)
    picture.running = groups(range(state.get("running", 0)))
    picture.ready = groups(range(1000, 1000 + state.get("ready", 0)))
    picture.training = groups(range(2000, 2000 + state.get("training", 0)))
    return picture


def groups(numbers: Iterable[int]) -> dict[int, Group]:
    return {number: Group(number, number, 0, 1) for number in numbers}


def may_start(name: str, picture: View, **parameters: object) -> float:
    return quota(name, picture, **parameters)


def test_verl_credit_before_the_first_step_is_n_times_one_plus_s() -> None:
    """N = 512, s = 0.5: 768 samples, the `max_required_samples` of verl's own tables."""
    assert may_start("verl_fully_async", view(512), staleness_threshold=0.5) == 768
    assert int(may_start("verl_fully_async", view(512), staleness_threshold=0.1)) == 563


def test_verl_carries_over_what_is_queued_once() -> None:
    """verl#7938: bound 70, 70 generated, 64 trained, 6 in the queue: 6 are carried over, not 76."""
    picture = view(64, version=1, ready=6)
    assert int(may_start("verl_fully_async", picture, staleness_threshold=6 / 64)) == 70 - 6


def test_verl_counts_what_was_taken_since_the_sync() -> None:
    """In the period after sync 1 the trainer holds its batch: it counts until the next sync."""
    picture = view(64, version=1, steps_started=2, running=10, training=64)
    assert may_start("verl_fully_async", picture, staleness_threshold=0.5) == 96 - 64 - 10


@pytest.mark.parametrize(("max_span", "lag"), [(1, 0), (2, 1), (3, 2)])
@pytest.mark.parametrize("rule", ["wait", "drop"])
def test_verl_v1_span_is_lag_plus_one(max_span: int, lag: int, rule: str) -> None:
    """Threshold 1 is on policy, 2 is one step off; both are reached."""
    report = run("verl_v1_separate", {"max_span": max_span, "on_stale": rule}).report
    assert report["staleness"]["max"] == lag


def test_skyrl_capacity_before_the_first_step() -> None:
    """B = 4, S = 1: (S + g) B with g = 1 is 8, not 4."""
    assert may_start("skyrl_async", view(4), max_staleness_steps=1) == 8


def test_tinker_slots_are_held_while_a_batch_trains() -> None:
    picture = view(4, steps_started=1, training=4)
    assert may_start("tinker_async", picture, sampling_steps_ahead=1) == 4
    assert may_start("skyrl_async", view(4, steps_started=1, training=4), max_staleness_steps=1) == 4
    assert may_start("tinker_async", view(4, version=1, ready=8), sampling_steps_ahead=1) == 0


def test_prime_rl_starts_while_the_trainer_works_on_the_batch_before() -> None:
    """prime-rl#2937: lead 1, the trainer at version k, the next batch being built: must dispatch."""
    picture = view(4, version=3, steps_started=4, training=4, running=4, ready=3)
    assert may_start("prime_rl", picture, lead=1, concurrency="fixed") == 4
    waiting = view(4, version=3, steps_started=4, training=4, ready=4)
    assert may_start("prime_rl", waiting, lead=1, concurrency="fixed") == 0


@pytest.mark.parametrize(("syncs", "every", "versions"), [(0, 1, 0), (4, 1, 4), (0, 4, 3), (1, 4, 7)])
def test_syncs_translate_to_versions(syncs: int, every: int, versions: int) -> None:
    """xtuner: thresholds (n + 1) k, and what is *younger* than that may train."""
    assert versions_of_syncs(syncs, every) == versions


@pytest.mark.parametrize("every", [1, 3])
def test_trl_staleness_counts_weight_updates(every: int) -> None:
    bound = 2 * every - 1
    report = run("trl_async", {"max_staleness": 1, "weight_sync_steps": every}).report
    assert report["staleness"]["max"] == bound
    assert report["discarded_groups"].get("stale", 0) > 0


def test_roll_ratio_one_draws_the_previous_version_and_aborts_the_one_before() -> None:
    """ROLL commit 01a96191: the step advances before or after the draw."""
    report = run("roll_flash", {"async_generation_ratio": 1}).report
    assert report["staleness"]["max"] == 1
    assert report["discarded_groups"]["stale"] > 0


def test_one_step_off_is_exactly_one() -> None:
    histogram = run("verl_one_step_off").report["staleness"]["histogram"]
    assert {int(age): count for age, count in histogram.items()} == {0: 16, 1: 16 * 29}


def test_openrlhf_queue_of_q_batches_is_q_plus_one_versions() -> None:
    for queue in (1, 3):
        slow_trainer = {"cost": {"train_s": 20.0}, "workload": {"batch_size": 8, "group_size": 1}}
        report = run("openrlhf_async", {"async_queue_size": queue}, **slow_trainer).report
        assert report["staleness"]["max"] == queue + 1


def test_in_order_waits_for_exactly_the_groups_of_its_step() -> None:
    """NeMo-RL#3238: the straggler of step 0 stops it although later groups are ready."""
    finished = with_one_straggler("nemo_rl", which=1)
    (first, *_) = [event.at for event in finished.trace.events(TrainingFinished)]
    assert first == pytest.approx(13.0 + 0.4, abs=0.1)
    assert finished.report["staleness"]["max"] <= 1


def test_a_window_lets_so_many_batches_pass() -> None:
    """B = 2, window 6, one step ahead: a straggler may be 1 + 1 + (6 - 2) // 2 = 4 versions old, not more."""
    policy = built("nemo_rl", 2, order="windowed", window=6, in_flight_weight_updates=True)
    assert policy.guarantees.max_staleness == 4
    ages = [
        with_one_straggler("nemo_rl", which=which, order="windowed", window=6, in_flight_weight_updates=True)
        .report["staleness"]["max"]
        for which in range(8)
    ]  # fmt: skip
    assert max(ages) <= 4
    assert max(ages) > 1


@pytest.mark.parametrize("name", ["areal", "areal_strict", "staleflow", "verl_v1_separate"])
@pytest.mark.parametrize("bound", [0, 1, 3])
def test_a_fast_generator_reaches_a_bound_in_versions_exactly(name: str, bound: int) -> None:
    """Lag at consumption, versions from 0: eta and span - 1 are reached, not passed, by a slow trainer."""
    knobs = {
        "areal": {"max_staleness": bound},
        "areal_strict": {"max_staleness": bound},
        "staleflow": {"eta": bound},
        "verl_v1_separate": {"max_span": bound + 1},
    }
    report = run(name, knobs[name], cost={"train_s": 30.0, "load_s": 0.1}).report
    assert report["staleness"]["max"] == bound


@pytest.mark.parametrize("steps", [1, 3])
def test_prime_rl_cancels_at_one_more_than_max_off_policy_steps(steps: int) -> None:
    """`max_off_policy_steps` updates since it started may train, one more is cancelled."""
    report = run("prime_rl", {"max_off_policy_steps": steps}).report
    assert report["staleness"]["max"] == steps
    assert report["discarded_groups"]["stale"] > 0


@pytest.mark.parametrize(("syncs", "every", "bound"), [(0, 1, 0), (1, 1, 1), (0, 2, 1), (1, 3, 5)])
def test_xtuner_knobs_count_syncs(syncs: int, every: int, bound: int) -> None:
    """(max_staleness + 1) k steps is the first age that may not train; the same for tokens."""
    knobs = {"max_staleness": syncs, "sync_weights_interval": every}
    report = run("xtuner", knobs, cost={"train_s": 5.0}).report
    assert report["staleness"]["max"] == bound
    masked = run("xtuner", {**knobs, "max_token_staleness": 0}, cost={"train_s": 5.0}).report
    assert masked["token_staleness"]["max"] == min(bound, every - 1)


def test_knobs_in_samples_are_samples() -> None:
    """PipelineRL, TRL and Magistral count rollouts, this project groups: G = 4."""
    picture = View(LoopConfig(2, 4, 100))
    assert quota("pipeline_rl", picture, max_lag=24, max_concurrent_groups=100) == 24 / 4
    assert quota("trl_async", picture, max_inflight_tasks=12) == 12 / 4
    assert quota("magistral", picture, n_async=20) == 20 / 4
    picture.ready = groups(range(3))
    assert quota("trl_async", picture, max_inflight_tasks=12, queue_maxsize=12) == 0
    assert quota("trl_async", picture, max_inflight_tasks=12, queue_maxsize=16) == 3


def quota(name: str, picture: View, **parameters: object) -> float:
    config = picture.config
    return built(name, config.batch_size, config.group_size, **parameters).admission.quota(picture).groups


def test_roll_alpha_is_a_number_of_batches_beyond_the_one_in_training() -> None:
    """alpha = 0.5, B = 8: 12 groups before the first step."""
    assert may_start("roll_flash", view(8), async_generation_ratio=0.5) == 12


def test_rounds_hold_alpha_batches() -> None:
    """APRIL's alpha and slime's over_sampling_batch_size count prompts, those left over included."""
    assert may_start("april", view(8, running=3), alpha=1.5) == 12 - 3
    assert may_start("slime_partial", view(8), over_sampling_batch_size=20) == 20
    assert may_start("rollpacker", view(8), eta=1.25) == 10


def test_nemo_age_is_the_lag_of_the_oldest_weights() -> None:
    """A target step may be `max_trajectory_age_steps` after the weights it is generated with."""
    for age in (1, 2):
        report = run("nemo_rl", {"max_trajectory_age_steps": age}, cost={"train_s": 20.0}).report
        assert report["staleness"]["max"] == age


@pytest.mark.parametrize("mode", ["sync", "one_step_off"])
def test_streamrl_is_zero_or_one_version_behind(mode: str) -> None:
    assert run("streamrl", {"mode": mode}).report["staleness"]["max"] == (mode == "one_step_off")


def test_adaptive_concurrency_rises_two_percent_a_version_and_falls_by_a_quarter() -> None:
    """prime-rl's constants; 16 groups of one at first, an overload at version 10 with 40 running."""
    assert may_start("prime_rl", view(8, version=5), lead=9) == pytest.approx(16 * 1.02**5)
    picture = view(8, version=12, running=6)
    picture.overload = Overload(10, 40)
    assert may_start("prime_rl", picture, lead=9) == pytest.approx(30 * 1.02**2 - 6)
    assert may_start("prime_rl", view(8, version=90), lead=9, max_inflight=50) == 50
