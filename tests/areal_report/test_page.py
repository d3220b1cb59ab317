"""The page: what it shows, that it loads nothing, what it says when something is missing."""

import base64
import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

import plotly.graph_objects
import pytest
from recorded import SMALL, areal_sim

from areal_report.page import page
from areal_report.palette import KINDS, kind
from areal_report.source import SourceError, Sweep
from areal_report.sweep_charts import pareto, points

RUN_CHARTS = ["timeline", "time-share", "steps", "staleness", "staleness-steps-0", "lengths"]
SWEEP_CHARTS = ["sweep-lines-0", "sweep-heat-0", "sweep-pareto-0", "sweep-time-0"]
PLAN_CHARTS = ["plan-intervals-0", "plan-pools-0", "sweep-heat-plan-0", "sweep-pareto-plan-0"]
FIVE_MB = 5_000_000


def data_of(html: str) -> dict[str, Any]:
    packed = re.search(r'id="page-data">([^<]*)<', html)
    assert packed
    found: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed.group(1))))
    return found


def charts_of(html: str) -> list[str]:
    return [chart["id"] for chart in data_of(html)["charts"]]


def without(source: Path, copy: Path, *names: str) -> Path:
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns(*names))
    return copy


@pytest.mark.parametrize(
    ("name", "charts"),
    [
        ("run", RUN_CHARTS),
        ("compare", [*RUN_CHARTS[:5], "staleness-steps-1", "lengths"]),
        ("sweep", SWEEP_CHARTS),
        ("plan", [*PLAN_CHARTS, *RUN_CHARTS[:5], "staleness-steps-1", "lengths"]),
    ],
)
def test_every_command_writes_a_page_with_every_chart(results: Path, name: str, charts: list[str]) -> None:
    html = (results / name / "report.html").read_text()
    assert charts_of(html) == charts
    for chart in charts:
        assert f'<div id="{chart}"' in html


@pytest.mark.parametrize("name", ["run", "compare", "sweep", "plan"])
def test_a_page_loads_nothing(results: Path, name: str) -> None:
    html = (results / name / "report.html").read_text()
    assert not re.search(r"""(src|href)\s*=|url\(|@import|\bfetch\(|XMLHttpRequest""", html)
    assert "http" not in html.replace("http-equiv", "")


@pytest.mark.parametrize("name", ["run", "compare", "sweep", "plan"])
def test_figures_are_figures_that_plotly_accepts(results: Path, name: str) -> None:
    for chart in data_of((results / name / "report.html").read_text())["charts"]:
        plotly.graph_objects.Figure(chart["traces"], chart["layout"])


def test_every_axis_says_what_it_shows(results: Path) -> None:
    for name in ("run", "compare", "sweep", "plan"):
        for chart in data_of((results / name / "report.html").read_text())["charts"]:
            axes = {key: value for key, value in chart["layout"].items() if "axis" in key}
            untitled = [key for key, value in axes.items() if not value["title"]["text"]]
            assert untitled in ([], ["yaxis"] if "time" in chart["id"] else [])


def test_a_long_run_stays_small(tmp_path: Path) -> None:
    areal_sim("run", "areal/table7", *SMALL, "--set", "run.steps=250", "--out", tmp_path / "a")
    html = tmp_path / "a" / "report.html"
    assert html.stat().st_size < FIVE_MB
    (timeline,) = data_of(html.read_text())["charts"][0]["timelines"]
    assert timeline["tracks"][0]["kind"].count(timeline["kinds"].index("train")) == 250


def test_headline_has_the_numbers_and_the_physical_floor(results: Path) -> None:
    html = (results / "run" / "report.html").read_text()
    for words in (
        "step time",
        "limit: at least",
        "limit: at most",
        "bottleneck",
        "policy areal",
        "6 rollout",
    ):
        assert words in html


def test_a_comparison_has_ratios_and_one_time_axis(results: Path) -> None:
    html = (results / "compare" / "report.html").read_text()
    assert "speedup (throughput)" in html
    timelines = data_of(html)["charts"][0]["timelines"]
    assert [one["name"] for one in timelines] == ["1_table1_1_5b_sync", "2_table1_1_5b_async"]


def test_a_kind_has_one_colour(results: Path) -> None:
    data = data_of((results / "run" / "report.html").read_text())
    bars = {trace["name"]: trace["marker"]["color"] for trace in data["charts"][1]["traces"]}
    looks = {look["label"]: look["colour"] for look in data["palette"]["kinds"].values()}
    assert bars.items() <= looks.items()
    assert len({look.colour for look in KINDS.values()}) == len(KINDS)
    assert kind("idle:my_own_limit").label == "idle: my own limit"


def test_without_a_trace_everything_else_is_there(results: Path, tmp_path: Path) -> None:
    html = page([without(results / "run", tmp_path / "a", "trace*")])
    assert charts_of(html) == RUN_CHARTS[1:]
    assert "no timeline: no trace.jsonl.gz; run it again with --trace full" in html


def test_summary_runs_write_a_page_too(tmp_path: Path) -> None:
    areal_sim("run", "areal/table7", *SMALL, "--trace", "summary", "--out", tmp_path / "a")
    assert charts_of((tmp_path / "a" / "report.html").read_text()) == RUN_CHARTS[1:]


def test_without_a_report_the_trace_tells_the_same(results: Path, tmp_path: Path) -> None:
    whole = data_of((results / "run" / "report.html").read_text())["charts"]
    html = page([without(results / "run", tmp_path / "a", "report*", "scenario*")])
    assert charts_of(html) == RUN_CHARTS
    assert "metrics come from the trace" in html
    again = {chart["id"]: chart for chart in data_of(html)["charts"]}
    assert again["lengths"]["traces"] == whole[-1]["traces"]
    assert again["staleness"]["traces"][0]["customdata"] == whole[3]["traces"][0]["customdata"]


def test_a_report_of_an_earlier_version_gives_what_it_has(results: Path, tmp_path: Path) -> None:
    old = without(results / "run", tmp_path / "a", "trace*")
    report = json.loads((old / "report.json").read_text())
    del report["per_step"], report["length_histogram"]
    (old / "report.json").write_text(json.dumps(report))
    html = page([old])
    assert charts_of(html) == ["time-share", "staleness"]
    assert "no series over steps" in html


def test_a_stalled_run_says_why(tmp_path: Path) -> None:
    stalled = tmp_path / "a"
    stalled.mkdir()
    (stalled / "report.json").write_text(
        '{"partial": true, "ended": "stall", "error": "credit <b> is missing"}'
    )
    assert "credit &lt;b&gt; is missing" in page([stalled])


def test_directories_side_by_side(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "both.html"
    areal_sim("report", results / "run", results / "sweep", "-o", out)
    assert charts_of(out.read_text()) == [*RUN_CHARTS, *SWEEP_CHARTS]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, "no such directory"),
        ({}, "holds neither report.json"),
        ({"report.json": "{"}, "cannot be read"),
        ({"report.json": "[]"}, "is not a JSON object"),
        ({"sweep.csv": "a,b\n1,2\n"}, "is not a table of `areal-sim sweep`"),
    ],
)
def test_a_bad_directory_is_one_message(tmp_path: Path, files: dict[str, str] | None, message: str) -> None:
    place = tmp_path / "a"
    if files is not None:
        place.mkdir()
        for name, text in files.items():
            (place / name).write_text(text)
    with pytest.raises(SourceError, match=re.escape(message)):
        page([place])


def test_seeds_are_one_point_and_the_front_is_what_nothing_beats() -> None:
    speed, age = "effective_throughput_tokens_per_s", "staleness.mean"
    rows = tuple(
        {"policy.max_staleness": eta, "run.seed": seed, "error": "", speed: str(value), age: stale}
        for eta, seed, value, stale in [
            ("0", "0", 10, "0"), ("0", "1", 20, "0"),
            ("1", "0", 40, "1"), ("2", "0", 30, "2"), ("4", "0", 50, "2"),
        ]
    )  # fmt: skip
    found = points(Sweep("s", ("policy.max_staleness", "run.seed"), rows))
    assert found[0].numbers[speed] == (15, 10, 20)
    assert [point.values["policy.max_staleness"] for point in pareto(found)] == ["0", "1", "4"]


def test_a_plan_says_what_it_found_and_how_sure_it_is(results: Path) -> None:
    html = (results / "plan" / "report.html").read_text()
    for words in (
        "plan 1",
        "synchronous",
        "as given",
        "speedup over synchronous",
        "may be",
        "more for rollout",
    ):
        assert words in html
    intervals = next(c for c in data_of(html)["charts"] if c["id"] == "plan-intervals-0")
    predicted = intervals["traces"][0]
    assert predicted["y"][:1] == ["plan 1"]
    assert all(size >= 0 for size in predicted["error_x"]["array"] + predicted["error_x"]["arrayminus"])


def test_a_damaged_plan_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(SourceError, match="is not a plan"):
        page([tmp_path])
