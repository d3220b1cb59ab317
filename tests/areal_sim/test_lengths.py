"""Length models: a form that made the data is found again, and published numbers are met exactly."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri
from small_runs import small
from typer.testing import CliRunner

from areal_sim.__main__ import app
from areal_sim.lengths import forms
from areal_sim.lengths.fit import detect_cap, fit_all, ks_distance
from areal_sim.lengths.summary import from_truncation
from areal_sim.quantiles import quantile
from areal_sim.workload import Workload
from interfaces.distributions import Exponential, Gamma, LogNormal, Mixture, MixturePart
from interfaces.errors import DataError, ScenarioError

SHARES = (np.arange(4000) + 0.5) / 4000
GAMMA = Gamma(type="gamma", mean=3000.0, shape=2.5)
MIXTURE = Mixture(
    type="mixture",
    parts=(
        MixturePart(weight=3.0, median=400.0, sigma=0.4),
        MixturePart(weight=1.0, median=9000.0, sigma=0.5),
    ),
)
LOGNORMAL = LogNormal(type="lognormal", median=6000.0, sigma=0.8)
EXPONENTIAL = Exponential(type="exponential", mean=2500.0)


def test_gamma_quantiles_are_those_of_scipy() -> None:
    z = ndtri(np.array([1e-9, 0.01, 0.3, 0.5, 0.9, 0.999, 1 - 1e-9]))
    found = quantile(GAMMA, "x", "y")(z)
    assert found == pytest.approx(stats.gamma(2.5, scale=1200.0).ppf(stats.norm.cdf(z)), rel=1e-9)


def test_mixture_quantiles_invert_its_distribution() -> None:
    z = np.linspace(-6.0, 6.0, 41)
    values = quantile(MIXTURE, "x", "y")(z)
    assert (np.diff(values) > 0).all()
    share = 0.75 * stats.norm.cdf(np.log(values / 400.0) / 0.4)
    share += 0.25 * stats.norm.cdf(np.log(values / 9000.0) / 0.5)
    assert share == pytest.approx(stats.norm.cdf(z), rel=1e-9)


def test_a_mixture_of_one_is_a_lognormal() -> None:
    one = Mixture(type="mixture", parts=(MixturePart(weight=2.0, median=6000.0, sigma=0.8),))
    z = np.linspace(-5.0, 5.0, 21)
    assert quantile(one, "x", "y")(z) == pytest.approx(quantile(LOGNORMAL, "x", "y")(z))


@pytest.mark.parametrize("form", [EXPONENTIAL, LOGNORMAL, GAMMA, MIXTURE], ids=lambda form: form.type)
def test_densities_integrate_to_the_distribution(form: forms.Form) -> None:
    grid = np.exp(np.linspace(np.log(1e-3), np.log(2e6), 400_001))
    density = np.exp(forms.log_density(form, grid))
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(grid))])
    assert np.abs(1.0 - np.exp(forms.log_survival(form, grid)) - below).max() < 1e-5


@pytest.mark.parametrize("form", [EXPONENTIAL, LOGNORMAL, GAMMA, MIXTURE], ids=lambda form: form.type)
@pytest.mark.parametrize("cap", [None, 8000.0])
def test_the_form_that_made_the_data_is_found(form: forms.Form, cap: float | None) -> None:
    """With a cap, a tenth or more of the lengths are only known to reach it."""
    values = np.maximum(np.random.default_rng(5).permutation(forms.values_at(form, SHARES)), 1.0)
    seen = values if cap is None else np.minimum(values, cap)
    best = fit_all(seen, cap)[0]
    alike = {"exponential": {"exponential", "gamma"}}.get(form.type, {form.type})  # gamma holds exponential
    assert best.form.type in alike
    assert best.ks < 0.01
    uncapped = best.form.model_copy(update={"max": None})
    for share in (0.1, 0.5, 0.9):  # of the lengths behind the cap, too
        at = np.array([share])
        assert forms.values_at(uncapped, at) == pytest.approx(forms.values_at(form, at), rel=0.08)


def test_ks_sees_a_wrong_form() -> None:
    values = forms.values_at(MIXTURE, SHARES)
    assert ks_distance(LOGNORMAL, values, None) > 0.4
    assert ks_distance(MIXTURE, values, None) < 1e-3


def test_a_pile_at_the_end_is_a_cap() -> None:
    values = forms.values_at(LOGNORMAL, SHARES)
    assert detect_cap(values) is None
    assert detect_cap(np.minimum(values, 16384.0)) == 16384.0


@pytest.mark.parametrize(
    ("mean", "share", "cap"), [(8000.0, 0.12, 16384.0), (14_000.0, 0.6, 16384.0), (900.0, 0.001, 16384.0)]
)
def test_published_numbers_are_met_exactly(mean: float, share: float, cap: float) -> None:
    found = from_truncation(mean, share, cap)
    assert found
    for form in found:
        assert forms.mean(form) == pytest.approx(mean, rel=2e-3), form
        assert np.exp(forms.log_survival(form, np.array([cap]))) == pytest.approx(share, rel=1e-6)


@pytest.mark.parametrize(
    ("mean", "share", "told"),
    [
        (1500.0, 0.12, "lies between 1966"),
        (17_000.0, 0.12, "lies between"),
        (800.0, 0.0, "not between 0 and 1"),
    ],
)
def test_impossible_numbers_are_refused(mean: float, share: float, told: str) -> None:
    with pytest.raises(DataError, match=told):
        from_truncation(mean, share, 16384.0)


@pytest.mark.parametrize("form", [GAMMA, MIXTURE, LOGNORMAL], ids=lambda form: form.type)
def test_what_is_printed_runs_in_a_scenario(form: forms.Form) -> None:
    """The TOML parses to the same distribution, draws are deterministic and have its mean."""
    capped = form.model_copy(update={"max": 20_000.0})
    table = tomllib.loads(f"response_tokens = {forms.toml(capped)}")["response_tokens"]
    scenario = small(workload={"response_tokens": table, "group_size": 8}).scenario

    def draws() -> list[int]:
        workload = Workload(scenario)
        return [n for prompt in range(1000) for n in workload.group(prompt).response_tokens]

    lengths = draws()
    assert lengths == draws()
    assert np.mean(lengths) == pytest.approx(forms.mean(capped), rel=0.05)
    assert max(lengths) <= 20_000


def invoke(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["lengths", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_on_a_column(tmp_path: Path) -> None:
    values = np.minimum(np.rint(forms.values_at(GAMMA, SHARES)), 6000)
    (tmp_path / "l.csv").write_text("n\n" + "\n".join(f"{value:.0f}" for value in values) + "\n")
    text = invoke(str(tmp_path / "l.csv"), "--column", "n")
    assert "4,000 lengths" in text
    assert "at the cap 6000" in text
    assert 'response_tokens = {type = "gamma", mean = ' in text
    assert 'type = "empirical", file = "l.csv", column = "n"' in text
    data = json.loads(invoke(str(tmp_path / "l.csv"), "--column", "n", "--json"))
    assert data["data"]["cap"] == 6000.0
    assert data["fits"][0]["form"] == "gamma"
    assert data["fits"][0]["aic"] == min(fit["aic"] for fit in data["fits"])
    with pytest.raises(ScenarioError, match="use n"):
        invoke(str(tmp_path / "l.csv"), "--column", "m")


def test_the_command_on_published_numbers() -> None:
    text = invoke("--mean", "8000", "--truncated-share", "0.12", "--cap", "16384")
    assert text.count("response_tokens = ") == 2
    assert 'type = "exponential", mean = 8000.0' in invoke("--mean", "8000")
    assert CliRunner().invoke(app, ["lengths", "--mean", "8000", "--cap", "16384"]).exit_code == 2


@pytest.mark.parametrize(
    ("values", "told"), [([5.0] * 10, "too few"), ([0.0] * 30, "below 1"), ([7.0] * 30, "fewer than 5")]
)
def test_columns_that_cannot_serve_are_refused(values: list[float], told: str) -> None:
    with pytest.raises(DataError, match=told):
        fit_all(np.array(values), None)
