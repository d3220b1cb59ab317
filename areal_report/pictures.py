"""The charts of a page as PNG files, drawn by a headless browser: the page is the only place that draws.

Pictures have the light theme, whatever the system's, and three times the size on screen.
"""

import base64
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from html import unescape
from pathlib import Path

from areal_report.run_directory import writing
from interfaces.errors import TestbedError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
WIDTH = 1100
"""Pixels of a picture before it is scaled."""
SCALE = 3
_PATIENCE_S = 180
_SCRIPT = """
<script>
(async () => {
  const root = document.documentElement, pictures = {};
  const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
  while (!root.dataset.ready && document.getElementById("failed").hidden) await sleep(50);
  for (const div of document.querySelectorAll(".chart > div[id]")) {
    if (!div.dataset.drawn) continue;
    const size = { format: "png", width: WIDTH, height: div.offsetHeight, scale: SCALE };
    pictures[div.id] = (await Plotly.toImage(div, size)).split(",")[1];
  }
  const result = document.createElement("pre");
  result.id = "pictures";
  result.textContent = JSON.stringify(pictures);
  document.body.replaceChildren(result);
})();
</script>
"""


class BrowserError(TestbedError):
    """There is no browser, or it drew nothing."""

    exit_code = 11


def find_browser() -> str:
    """Path of the browser.

    Raises:
        BrowserError: there is none.
    """
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        raise BrowserError(
            f"--png: no browser ({', '.join(NAMES)}) on this machine: install chromium, or open the page "
            "elsewhere and use the camera button of a chart"
        )
    return found


def call(browser: str, arguments: Sequence[str], dark: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the browser without a window and without network, with a profile of its own.

    Raises:
        BrowserError: it does not end.
    """
    with tempfile.TemporaryDirectory() as profile:
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}",
            # Chromium's own switch: 0 is dark, 1 is light
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            "--virtual-time-budget=20000", "--enable-logging=stderr", *arguments,
        ]  # fmt: skip
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
        except subprocess.TimeoutExpired:
            raise BrowserError(f"{browser}: did not finish within {_PATIENCE_S} s; try again") from None


def save_pictures(page: Path, browser: str) -> list[Path]:
    """Every chart of a page as `PAGE_png/CHART.png` beside it; the files, in the order of the page.

    Raises:
        BrowserError: the browser draws nothing.
        OutputError: the pictures cannot be written.
    """
    script = _SCRIPT.replace("WIDTH", str(WIDTH)).replace("SCALE", str(SCALE))
    html = page.read_text(encoding="utf-8").replace("</body>", script + "</body>", 1)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "page.html"
        copy.write_text(html, encoding="utf-8")
        done = call(browser, [f"--window-size={WIDTH + 140},1600", "--dump-dom", copy.as_uri()])
    found = re.search(r'<pre id="pictures">(.*?)</pre>', done.stdout, re.DOTALL)
    if found is None:
        raise BrowserError(f"{page}: {browser} drew nothing: {done.stderr[-500:].strip()}")
    pictures: dict[str, str] = json.loads(unescape(found.group(1)))
    folder_of = page.with_name(page.stem + "_png")
    with writing(folder_of):
        folder_of.mkdir(parents=True, exist_ok=True)
        for name, data in pictures.items():
            (folder_of / f"{name}.png").write_bytes(base64.b64decode(data))
    return [folder_of / f"{name}.png" for name in pictures]
