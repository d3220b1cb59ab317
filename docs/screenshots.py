"""Takes the pictures of the documentation: `make pictures`. Needs chromium."""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
sys.path.insert(0, str(ROOT / "tests" / "areal_report"))

import browser  # noqa: E402

COMPARISON = [
    "compare", "areal/table1_1_5b_sync", "areal/table1_1_5b_async", "--set", "run.steps=6",
    "--set", "run.warmup_steps=2", "--seed", "0",
]  # fmt: skip


def take(images: Path, *more: str) -> Path:
    """The picture of a comparison, into this folder; `more` arguments for the simulation."""
    images.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "areal_sim", *COMPARISON, *more, "--out", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        page = Path(folder) / "report.html"
        browser.screenshot(page, images / "report.png", width=1240, height=1540)
    return images / "report.png"


if __name__ == "__main__":
    if browser.BROWSER is None:
        sys.exit(f"error: {browser.WHY_NOT}")
    sys.stdout.write(f"written: {take(IMAGES)}\n")
