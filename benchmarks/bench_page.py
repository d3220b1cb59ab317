"""The page of a 250-step run: its size, and how long a browser takes until every chart is drawn.

    python benchmarks/bench_page.py [--steps 250]

Needs chromium. Seconds are of the browser's own clock, from the start of the page to the last chart; beside
them the time of a fixed pure-Python loop, since machines differ.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_simulator_speed import unit_s

from areal_report.pictures import find_browser

SAY = """
<script>
(async () => {
  while (!document.documentElement.dataset.ready) await new Promise((done) => setTimeout(done, 20));
  console.warn("ready after ms: " + document.documentElement.dataset.ready);
})();
</script>
"""


def ready_s(page: Path, patience_s: float = 120.0) -> float:
    """Seconds from the start of the page until it is interactive, in real time."""
    copy = page.with_name("said.html")
    copy.write_text(page.read_text(encoding="utf-8").replace("</body>", SAY + "</body>"), encoding="utf-8")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:  # its children linger
        command = [
            find_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}", "--enable-logging=stderr",
            "--remote-debugging-port=0", "--window-size=1320,1600", copy.as_uri(),
        ]  # fmt: skip
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            end = time.monotonic() + patience_s
            while time.monotonic() < end:
                assert browser.stderr is not None
                found = re.search(r"ready after ms: (\d+)", browser.stderr.readline())
                if found:
                    return int(found.group(1)) / 1e3
            raise SystemExit("the page was never ready")
        finally:
            browser.terminate()
            browser.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=250)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as folder:
        sets = [f"--set=run.steps={steps}", "--set=workload.batch_size=64", "--trace=full", f"--out={folder}"]
        command = [sys.executable, "-m", "areal_sim", "run", "areal/table7", *sets]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        page = Path(folder) / "report.html"
        print(f"page of {steps} steps: {page.stat().st_size / 1e6:.2f} MB (goal: 5)")
        unit, times = unit_s(), sorted(ready_s(page) for _ in range(3))
        print(
            f"interactive after {times[0]:.2f} s (goal: 2), median {times[1]:.2f} s; fixed loop {unit:.2f} s"
        )


if __name__ == "__main__":
    main()
