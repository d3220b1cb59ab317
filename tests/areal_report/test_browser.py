"""The page in a real browser: every chart drawn, a silent console, hover and zoom, dark and light."""

import importlib.util
from pathlib import Path

import browser
import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(browser.BROWSER is None, reason=browser.WHY_NOT)

TIMELINE = """
const div = document.getElementById("timeline"), tip = div.parentElement.querySelector(".tip");
const hover = (row, share) => {
  const box = div.getBoundingClientRect(), { xaxis, yaxis } = div._fullLayout;
  const clientX = box.left + xaxis._offset + share * xaxis._length;
  const clientY = box.top + yaxis._offset + yaxis.d2p(-row);
  div.dispatchEvent(new MouseEvent("mousemove", { clientX, clientY }));
  return tip.style.display === "none" ? "" : tip.innerText;
};
const points = () => div.data.reduce((sum, trace) => sum + trace.x.length, 0);
"""
PLAN_LESS = ("--simulations", "2", "--samples", "1", "--best", "1", "--jobs", "1")
NATIVE_HOVER = """
const div = document.getElementById("steps"), drag = div.querySelector(".nsewdrag");
const box = drag.getBoundingClientRect();
const event = { clientX: box.left + 300, clientY: box.top + 40, bubbles: true };
drag.dispatchEvent(new MouseEvent("mouseover", event));
drag.dispatchEvent(new MouseEvent("mousemove", event));
await sleep(300);
return { label: div.querySelector(".hoverlayer").textContent };
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["run", "compare", "sweep", "plan"])
def test_every_chart_is_drawn_and_the_console_is_silent(results: Path, name: str, dark: bool) -> None:
    seen = browser.visit(results / name / "report.html", dark=dark)
    assert seen["problems"] == []
    assert seen["not_drawn"] == []
    assert len(seen["drawn"]) >= 4


def test_dark_pages_are_dark(results: Path) -> None:
    script = "return { colour: document.getElementById('steps').layout.paper_bgcolor };"
    page = results / "run" / "report.html"
    light, dark = (browser.visit(page, script, dark=dark)["found"]["colour"] for dark in (False, True))
    assert (light, dark) == ("#ffffff", "#1a2029")


def test_hovering_over_the_timeline_says_what_when_and_how_much(results: Path) -> None:
    script = TIMELINE + "return { trainer: hover(0, 0.5), replica: hover(1, 0.5), outside: hover(1, 1.2) };"
    seen = browser.visit(results / "run" / "report.html", script)
    assert seen["problems"] == []
    assert seen["found"]["trainer"].startswith("trainer: ")
    assert seen["found"]["replica"].startswith("replica 0: ")
    assert " s to " in seen["found"]["replica"]
    assert seen["found"]["outside"] == ""


def test_zooming_out_draws_more_and_back_in_less(results: Path) -> None:
    script = (
        TIMELINE
        + """
      const click = async (label) => {
        [...document.querySelectorAll(".controls button")].find((b) => b.textContent === label).click();
        await sleep(300);
        return points();
      };
      return { few: await click("2 steps"), all: await click("Whole run"), again: await click("2 steps") };
    """
    )
    seen = browser.visit(results / "run" / "report.html", script)
    assert seen["problems"] == []
    found = seen["found"]
    assert found["few"] == found["again"] < found["all"]


def test_hovering_over_a_chart_shows_its_values(results: Path) -> None:
    seen = browser.visit(results / "run" / "report.html", NATIVE_HOVER)
    assert seen["problems"] == []
    assert "step time" in seen["found"]["label"]


@pytest.mark.parametrize(("name", "more"), [("report.png", ()), ("plan.png", PLAN_LESS)])
def test_the_script_takes_the_pictures_of_the_documentation(
    tmp_path: Path, name: str, more: tuple[str, ...]
) -> None:
    spec = importlib.util.spec_from_file_location("screenshots", ROOT / "docs" / "screenshots.py")
    assert spec is not None
    assert spec.loader is not None
    screenshots = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(screenshots)
    few = ("--set", "workload.batch_size=32", "--set", "workload.group_size=4")
    for image in (screenshots.take(tmp_path, name, *few, *more), ROOT / "docs" / "images" / name):
        assert image.read_bytes().startswith(b"\x89PNG")
        assert 20_000 < image.stat().st_size < 300_000


def test_a_narrow_window_does_not_overflow(results: Path) -> None:
    script = "return { wide: document.documentElement.scrollWidth - document.documentElement.clientWidth };"
    seen = browser.visit(results / "run" / "report.html", script, width=800)
    assert seen["found"]["wide"] <= 0
