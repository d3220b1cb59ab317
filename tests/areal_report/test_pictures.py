"""`--png`: every chart of a page as a picture, or one message where there is no browser."""

import struct
from pathlib import Path

import browser
import pytest

from areal_report import pictures
from areal_report.pictures import SCALE, WIDTH, BrowserError, find_browser, save_pictures
from areal_sim.commands.report import write_page


@pytest.mark.skipif(browser.BROWSER is None, reason=browser.WHY_NOT)
def test_every_chart_becomes_a_picture(results: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_bytes((results / "run" / "report.html").read_bytes())
    files = save_pictures(page, find_browser())
    names = [file.stem for file in files]
    assert names == ["timeline", "time-share", "steps", "staleness", "staleness-steps-0", "lengths"]
    for file in files:
        data = file.read_bytes()
        assert data.startswith(b"\x89PNG")
        assert struct.unpack(">I", data[16:20])[0] == WIDTH * SCALE
        assert len(data) > 10_000


def test_without_a_browser_it_says_so_before_it_works(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures.shutil, "which", lambda _: None)
    with pytest.raises(BrowserError, match="install chromium"):
        write_page([results / "run"], tmp_path / "page.html", png=True)
    assert not (tmp_path / "page.html").exists()


def test_a_browser_that_draws_nothing_is_one_message(results: Path) -> None:
    with pytest.raises(BrowserError, match="drew nothing"):
        save_pictures(results / "run" / "report.html", "true")
