"""A real browser without a window: opens a page from disk, runs a script in it, returns what it found."""

import json
import re
import shutil
import tempfile
from html import unescape
from pathlib import Path
from typing import Any

from areal_report import pictures

BROWSER = next((found for name in pictures.NAMES if (found := shutil.which(name))), None)
WHY_NOT = f"no browser ({', '.join(pictures.NAMES)}) here: install chromium to check the page in one"

_PROBE = """
<script>
window.problems = [];
window.addEventListener("error", (event) => window.problems.push(String(event.message)));
window.addEventListener("unhandledrejection", (event) => window.problems.push(String(event.reason)));
for (const level of ["error", "warn"]) {
  const before = console[level];
  console[level] = (...words) => { window.problems.push(words.join(" ")); before(...words); };
}
</script>
"""
_WAIT = """
<script>
(async () => {
  const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
  const root = document.documentElement;
  while (!root.dataset.ready && document.getElementById("failed").hidden) await sleep(50);
  let found = {};
  try { found = await (async () => { SCRIPT })(); } catch (error) { problems.push(String(error)); }
  await sleep(50);
  const result = document.createElement("pre");
  result.id = "probe";
  const charts = [...document.querySelectorAll(".chart > div[id]")];
  result.textContent = JSON.stringify({
    problems, found, ready_ms: Number(root.dataset.ready ?? -1),
    drawn: charts.filter((c) => c.dataset.drawn && c.querySelector(".main-svg")).map((c) => c.id),
    not_drawn: charts.filter((c) => !(c.dataset.drawn && c.querySelector(".main-svg"))).map((c) => c.id),
  });
  document.body.append(result);
})();
</script>
"""


def visit(page: Path, script: str = "return {};", *, dark: bool = False, width: int = 1320) -> dict[str, Any]:
    """Open a copy of the page; `script` (JavaScript, may await `sleep(ms)`) runs when all is drawn."""
    html = page.read_text(encoding="utf-8")
    html = html.replace("<head>", "<head>" + _PROBE, 1).replace(
        "</body>", _WAIT.replace("SCRIPT", script) + "</body>", 1
    )
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "page.html"
        copy.write_text(html, encoding="utf-8")
        assert BROWSER is not None
        done = pictures.call(BROWSER, [f"--window-size={width},1600", "--dump-dom", copy.as_uri()], dark)
    result = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert result, f"the page did not finish: {done.stderr[-2000:]}"
    found: dict[str, Any] = json.loads(unescape(result.group(1)))
    found["problems"] += re.findall(r"CONSOLE.*", done.stderr)
    return found


def screenshot(page: Path, image: Path, *, dark: bool = False, width: int = 1320, height: int = 1200) -> None:
    """Save what a reader sees."""
    assert BROWSER is not None
    arguments = [f"--window-size={width},{height}", f"--screenshot={image}", page.resolve().as_uri()]
    done = pictures.call(BROWSER, arguments, dark)
    assert image.is_file(), done.stderr[-2000:]
