import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from cost_scenarios import resolved
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv, parquet
from scipy import stats

from areal_sim.quantiles import quantile
from areal_sim.streams import Stream
from areal_sim.workload import BLOCK, GroupDraw, Workload
from interfaces.distributions import Constant, Distribution, Empirical, Exponential, LogNormal
from interfaces.errors import ScenarioError
from interfaces.scenario import Drift, Faults, Reward, Run, Scenario, Turns
from interfaces.scenario import Workload as Section

LOGNORMAL = LogNormal(type="lognormal", median=6579.0, sigma=0.786, max=16384.0)


def scenario(
    *,
    response: Distribution = LOGNORMAL,
    group_size: int = 16,
    seed: int = 0,
    reward: Reward | None = None,
    faults: Faults | None = None,
    **section: object,
) -> Scenario:
    base = {"batch_size": 64, "group_size": group_size, "response_tokens": response}
    return resolved().scenario.model_copy(
        update={
            "run": Run(steps=10, seed=seed),
            "workload": Section(**(base | section)),  # type: ignore[arg-type]
            "reward": reward or Reward(),
            "faults": faults or Faults(),
        }
    )


def groups(workload: Workload, prompts: int = 2000) -> list[GroupDraw]:
    return [workload.group(prompt) for prompt in range(prompts)]


def lengths(workload: Workload, prompts: int = 2000) -> np.ndarray:
    return np.array([draw.response_tokens for draw in groups(workload, prompts)])


def test_uniform_numbers_are_uniform_and_independent() -> None:
    u = Stream(7, "test").members(np.arange(4000, dtype=np.uint64), 16)
    assert stats.kstest(u.ravel(), "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(u[:, 0], u[:, 1])[0, 1]) < 0.05
    assert abs(np.corrcoef(u[:-1, 0], u[1:, 0])[0, 1]) < 0.05
    other = Stream(7, "other").members(np.arange(4000, dtype=np.uint64), 16)
    assert abs(np.corrcoef(u.ravel(), other.ravel())[0, 1]) < 0.02


@given(
    st.integers(0, 2**32), st.text(max_size=5), st.integers(0, 10**9), st.integers(0, 40), st.integers(0, 9)
)
def test_one_number_equals_its_place_among_many(
    seed: int, name: str, prompt: int, member: int, attempt: int
) -> None:
    stream = Stream(seed, name)
    many = stream.members(np.array([5, prompt], dtype=np.uint64), 41, attempt, 2)
    assert stream.one(prompt, member, attempt, 2) == many[1, member]
    assert 0 < stream.one(prompt, member) < 1


@pytest.mark.parametrize(
    ("law", "reference"),
    [
        (LogNormal(type="lognormal", median=5000.0, sigma=0.8), stats.lognorm(s=0.8, scale=5000)),
        (Exponential(type="exponential", mean=3000.0), stats.expon(scale=3000)),
        (Constant(type="constant", value=1234.0), None),
    ],
)
def test_lengths_follow_their_distribution(law: Distribution, reference: object) -> None:
    drawn = lengths(Workload(scenario(response=law))).ravel()
    if reference is None:
        assert (drawn == 1234).all()
    else:
        assert stats.kstest(drawn, reference.cdf).pvalue > 1e-3  # type: ignore[attr-defined]
        assert drawn.mean() == pytest.approx(reference.mean(), rel=0.03)  # type: ignore[attr-defined]


@given(st.floats(-8, 8), st.floats(1, 1e4), st.floats(0, 2))
def test_quantiles_match_scipy(z: float, scale: float, sigma: float) -> None:
    u, point = stats.norm.cdf(z), np.array([z])
    lognormal = quantile(LogNormal(type="lognormal", median=scale, sigma=sigma), "x", "y")
    assert lognormal(point)[0] == pytest.approx(scale * math.exp(sigma * z))
    exponential = quantile(Exponential(type="exponential", mean=scale), "x", "y")
    assert exponential(point)[0] == pytest.approx(stats.expon(scale=scale).isf(stats.norm.sf(z)), rel=1e-6)
    assert 0 <= u <= 1


def test_the_cap_truncates_as_in_the_published_fit() -> None:
    drawn = lengths(Workload(scenario()), 4000)
    assert drawn.max() == 16384
    # AReaL's v0.1 log, 7B at 16k: 12.28 % truncated, mean response 7802.
    assert (drawn == 16384).mean() == pytest.approx(0.1228, abs=0.01)
    assert drawn.mean() == pytest.approx(7802, rel=0.02)


def test_a_cap_that_is_not_whole_is_not_exceeded_by_rounding() -> None:
    law = LogNormal(type="lognormal", median=50.0, sigma=1.0, max=10.6)
    assert lengths(Workload(scenario(response=law)), 100).max() == 10


def test_a_response_has_at_least_one_token() -> None:
    law = LogNormal(type="lognormal", median=0.1, sigma=0.1)
    assert (lengths(Workload(scenario(response=law)), 10) == 1).all()


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.8])
def test_members_of_a_group_correlate_as_asked(rho: float) -> None:
    law = LogNormal(type="lognormal", median=5000.0, sigma=0.8)
    scores = np.log(lengths(Workload(scenario(response=law, group_correlation=rho, group_size=2)), 20_000))
    assert np.corrcoef(scores.T)[0, 1] == pytest.approx(rho, abs=0.03)
    assert scores.std() == pytest.approx(
        0.8, rel=0.03
    )  # correlation leaves the distribution of one member alone


@given(st.integers(0, 5), st.lists(st.integers(0, 5000), min_size=1, max_size=12))
def test_the_order_of_asking_does_not_matter(seed: int, prompts: list[int]) -> None:
    first, second = (Workload(scenario(seed=seed, group_correlation=0.5)) for _ in range(2))
    ahead = {prompt: first.group(prompt) for prompt in prompts}
    backwards = {prompt: second.group(prompt) for prompt in reversed(prompts)}
    assert ahead == backwards


def rich(**changes: object) -> Scenario:
    """Everything random at once."""
    small = LogNormal(type="lognormal", median=3.0, sigma=0.5)
    return scenario(
        prompt_tokens=LogNormal(type="lognormal", median=100.0, sigma=0.4),
        group_correlation=0.4,
        drift=(Drift(step=2, scale=1.0), Drift(step=8, scale=2.0)),
        turns=Turns(number=small, tool_time_s=small, tool_tokens=small),
        reward=Reward(latency_s=Exponential(type="exponential", mean=2.0), difficulty_spread=0.3),
        **changes,  # type: ignore[arg-type]
    )


def test_a_prompt_drawn_alone_equals_itself_in_a_block() -> None:
    workload = Workload(rich())
    for prompt in (0, 1, BLOCK - 1, BLOCK, 777):
        alone = workload._draw(np.array([prompt], dtype=np.uint64), 0)[0]
        assert alone == workload.group(prompt)


def test_forgotten_blocks_come_back_the_same() -> None:
    workload = Workload(rich())
    before = workload.group(3)
    for block in range(40):
        workload.group(block * BLOCK)
    assert workload.group(3) == before
    assert workload.group(3) is not before


def test_another_attempt_is_another_draw_of_the_same_prompt() -> None:
    workload = Workload(rich())
    first, again = workload.group(5), workload.group(5, 1)
    assert again.prompt_tokens == first.prompt_tokens
    assert again.response_tokens != first.response_tokens
    assert workload.group(5, 1) == again == Workload(rich()).group(5, 1)
    assert workload.group(5, 2) != again


def test_what_is_not_asked_of_a_rollout_leaves_its_length_alone() -> None:
    plain = Workload(scenario(group_correlation=0.4))
    faulty = Workload(
        scenario(
            group_correlation=0.4, prompt_tokens=LOGNORMAL, reward=Reward(difficulty_spread=0.5),
            faults=Faults(rollout_failure_probability=0.5),
        )
    )  # fmt: skip
    assert (lengths(plain, 100) == lengths(faulty, 100)).all()


def test_a_larger_group_keeps_the_members_it_had() -> None:
    small, large = (lengths(Workload(scenario(group_size=size)), 100) for size in (4, 16))
    assert (large[:, :4] == small).all()


def test_seeds_differ() -> None:
    assert (lengths(Workload(scenario(seed=1)), 50) != lengths(Workload(scenario(seed=2)), 50)).mean() > 0.8


def test_drift_multiplies_by_nominal_step() -> None:
    law = LogNormal(type="lognormal", median=5000.0, sigma=0.5)
    drift = (Drift(step=2, scale=0.5), Drift(step=4, scale=1.5))
    plain = lengths(Workload(scenario(response=law)), 64 * 8).reshape(8, -1)
    drifted = lengths(Workload(scenario(response=law, drift=drift)), 64 * 8).reshape(8, -1)
    expected = [1, 1, 0.5, 1.0, 1.5, 1.5, 1.5, 1.5]
    assert (drifted / plain).mean(axis=1) == pytest.approx(expected, rel=1e-3)


def test_drift_does_not_lift_the_cap() -> None:
    drifted = lengths(Workload(scenario(drift=(Drift(step=0, scale=100.0),))), 10)
    assert (drifted == 16384).mean() > 0.9


def test_an_epoch_brings_the_same_prompts_again() -> None:
    workload = Workload(rich(dataset_size=100))
    assert workload.group(105).prompt_tokens == workload.group(5).prompt_tokens
    assert workload.group(105).response_tokens != workload.group(5).response_tokens


@pytest.mark.parametrize(("rate", "spread"), [(0.3, 0.0), (0.5, 0.2), (0.7, 0.9)])
def test_rewards_are_beta_binomial(rate: float, spread: float) -> None:
    workload = Workload(scenario(reward=Reward(success_rate=rate, difficulty_spread=spread), group_size=8))
    rewards = np.array([draw.rewards for draw in groups(workload, 8000)])
    assert set(np.unique(rewards)) <= {0.0, 1.0}
    assert rewards.mean() == pytest.approx(rate, abs=0.02)
    wins = np.bincount(rewards.sum(axis=1).astype(int), minlength=9) / 8000
    if spread:
        strength = (1 - spread) / spread
        law = stats.betabinom(8, rate * strength, (1 - rate) * strength)
    else:
        law = stats.binom(8, rate)
    assert wins == pytest.approx(law.pmf(np.arange(9)), abs=0.02)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_certain_rewards_are_certain(rate: float) -> None:
    workload = Workload(scenario(reward=Reward(success_rate=rate, difficulty_spread=0.5)))
    assert set(workload.group(0).rewards) == {rate}


def test_reward_latency_is_absent_when_it_is_zero() -> None:
    assert Workload(scenario()).group(0).reward_latency_s is None
    latency = Reward(latency_s=Exponential(type="exponential", mean=2.0, max=5.0))
    drawn = np.array([draw.reward_latency_s for draw in groups(Workload(scenario(reward=latency)))])
    assert drawn.max() == 5.0
    assert drawn.mean() == pytest.approx(2 * (1 - math.exp(-2.5)), rel=0.03)


@given(st.floats(1, 40), st.floats(0, 1.5), st.floats(1, 60))
def test_turns_add_up_to_the_response(number: float, sigma: float, median: float) -> None:
    turns = Turns(
        number=LogNormal(type="lognormal", median=number, sigma=sigma, max=50.0),
        tool_time_s=Exponential(type="exponential", mean=1.0),
        tool_tokens=Constant(type="constant", value=7.0),
    )
    law = LogNormal(type="lognormal", median=median, sigma=1.0)
    draw = Workload(scenario(response=law, turns=turns)).group(0)
    assert draw.turns is not None
    for response, turn in zip(draw.response_tokens, draw.turns, strict=True):
        assert sum(turn.tokens) == response
        assert min(turn.tokens) >= 1
        assert max(turn.tokens) - min(turn.tokens) <= 1
        assert len(turn.tool_time_s) == len(turn.tool_tokens) == len(turn.tokens) - 1
        assert set(turn.tool_tokens) <= {7}


def test_tools_take_a_new_time_after_each_turn() -> None:
    turns = Turns(
        number=Constant(type="constant", value=4.0), tool_time_s=Exponential(type="exponential", mean=2.0)
    )
    draws = groups(Workload(scenario(turns=turns)), 500)
    times = np.array([[turn.tool_time_s for turn in draw.turns or ()] for draw in draws]).reshape(-1, 3)
    assert times.mean(axis=0) == pytest.approx([2, 2, 2], rel=0.1)
    assert abs(np.corrcoef(times.T)[0, 1]) < 0.05


def test_failures_happen_as_often_as_asked_and_not_for_ever() -> None:
    workload = Workload(scenario(faults=Faults(rollout_failure_probability=0.3)))
    fails = [workload.failure(prompt, member) for prompt in range(1000) for member in range(4)]
    assert np.mean(fails) == pytest.approx(0.3, abs=0.03)
    again = [workload.failure(0, 0, attempt) for attempt in range(50)]
    assert 0 < sum(again) < 50
    assert not any(Workload(scenario()).failure(prompt, 0) for prompt in range(100))


def empirical(folder: Path, name: str, **columns: list[object]) -> Workload:
    data = pa.table(columns)
    if name.endswith(".csv"):
        csv.write_csv(data, folder / name)
    else:
        parquet.write_table(data, folder / name)
    law = Empirical(type="empirical", file=name, column="length", max=9000.0)
    return Workload(scenario(response=law), str(folder / "scenario.toml"))


@pytest.mark.parametrize("name", ["lengths.csv", "lengths.parquet"])
def test_lengths_can_come_from_a_file(tmp_path: Path, name: str) -> None:
    values: list[object] = [100, 200, 200, 50_000]
    drawn = lengths(empirical(tmp_path, name, other=["a", "b", "c", "d"], length=values))
    found, counts = np.unique(drawn, return_counts=True)
    assert found.tolist() == [100, 200, 9000]
    assert counts / drawn.size == pytest.approx([0.25, 0.5, 0.25], abs=0.02)


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("size", [1, 2], r"response_tokens.column = 'length' is not in lengths.csv; use row, size"),
        ("length", ["long", "short"], "is not numeric"),
        ("length", [1, -2], "is negative in row 1"),
        ("length", [1.0, float("nan")], "is not a finite number in row 1"),
        ("length", [5, None], "is not a finite number in row 1"),
        ("length", [], "has no values|is not numeric"),
    ],
)
def test_a_column_of_no_use_is_refused(
    tmp_path: Path, column: str, values: list[object], message: str
) -> None:
    for name in ("lengths.csv", "lengths.parquet"):
        with pytest.raises(ScenarioError, match=message.replace(".csv", r"\.(csv|parquet)")):
            empirical(tmp_path, name, row=list(range(len(values))), **{column: values})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("none.csv", None, "is not a file; give a path relative to"),
        ("lengths.json", "[1]", "is neither .csv nor .parquet"),
        ("broken.parquet", "text", "cannot be read"),
        ("empty.csv", "", "cannot be read"),
    ],
)
def test_a_file_of_no_use_is_refused(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    law = Empirical(type="empirical", file=name, column="length")
    with pytest.raises(ScenarioError, match=message):
        Workload(scenario(prompt_tokens=law), str(tmp_path / "scenario.toml"))
