"""First fidelity: the AReaL paper's ratios within the goals of docs/accuracy.md (shorter runs than there)."""

import tomllib
from importlib.resources import files
from typing import Any

import pytest

from areal_sim.simulation import Simulation
from interfaces.actions import Action
from interfaces.events import Event
from interfaces.scenario_file import load, shipped

PAPER: dict[str, Any] = tomllib.loads(
    (files("scenarios") / "measured" / "areal_paper.toml").read_text(encoding="utf-8")
)
SHORT = ["run.steps=14", "run.warmup_steps=5"]


def report(name: str, *sets: str) -> dict[str, Any]:
    return Simulation(load(name, [*sets, *SHORT])).run()


def ratios_to_synchronous(figure: str, etas: list[str]) -> list[float]:
    values = [
        report(PAPER[figure]["scenario"], f"policy.max_staleness={eta}")["effective_throughput_tokens_per_s"]
        for eta in ["0", *etas]
    ]
    return [value / values[0] for value in values[1:]]


@pytest.mark.parametrize(("figure", "etas"), [("table7", ["1", "2", "4", "8"]), ("fig5c", ["1", "2", "inf"])])
def test_gain_from_staleness(figure: str, etas: list[str]) -> None:
    published = dict(
        zip(PAPER[figure]["max_staleness"], PAPER[figure]["throughput_k_tokens_per_s"], strict=True)
    )
    predicted = ratios_to_synchronous(figure, etas)
    expected = [published[eta] / published["0"] for eta in etas]
    assert predicted == pytest.approx(expected, rel=0.15)
    assert predicted == pytest.approx(sorted(predicted), rel=0.005), "more staleness never costs throughput"


@pytest.mark.parametrize("place", range(4), ids=PAPER["table1"]["models"])
def test_synchronous_against_asynchronous_hours(place: int) -> None:
    table = PAPER["table1"]
    model = table["models"][place]
    sync = report(f"areal/table1_{model}_sync")["step_time_s"]["mean"]
    asynchronous = report(f"areal/table1_{model}_async")["step_time_s"]["mean"]
    published = table["sync_hours"][place] / table["async_hours"][place]
    assert sync / asynchronous == pytest.approx(published, rel=0.25)
    assert sync > asynchronous


@pytest.mark.parametrize("name", shipped())
def test_no_prediction_beats_the_physical_floor(name: str) -> None:
    """The floor law, over the whole scenario tree."""
    values = Simulation(load(name, ["run.steps=4", "run.warmup_steps=1"])).run()
    floor = values["floor"]
    assert 0 < floor["step_time_s"] <= values["step_time_s"]["mean"]
    assert floor["rollout_bound"] in ("hbm", "flop")


@pytest.mark.parametrize(("limit", "most"), [(1, 1), (2, 2), (None, 6)])
def test_a_rolling_update_loads_no_more_replicas_at_once_than_allowed(limit: int | None, most: int) -> None:
    sets = [] if limit is None else [f"policy.max_loading_replicas={limit}"]
    simulation = Simulation(load("areal/table7", [*sets, *SHORT]))
    feed, seen = simulation.loop.feed, []

    def watched(event: Event) -> list[Action]:
        answer = feed(event)
        seen.append(sum(replica.loading for replica in simulation.loop.view.pool))
        return answer

    simulation.loop.feed = watched  # type: ignore[method-assign]
    simulation.run()
    assert max(seen) == most
