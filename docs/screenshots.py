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
PLAN = ["plan", "areal/fig6b_7b", "--gpus", "64", "--seed", "0"]
PICTURES = {"report.png": (COMPARISON, 1540), "plan.png": (PLAN, 1250)}
"""Command, and height of the picture in pixels."""


def take(images: Path, name: str, *more: str) -> Path:
    """One picture, into this folder; `more` arguments for the command."""
    images.mkdir(parents=True, exist_ok=True)
    command, height = PICTURES[name]
    with tempfile.TemporaryDirectory() as folder:
        whole = [sys.executable, "-m", "areal_sim", *command, *more, "--out", folder]
        subprocess.run(whole, check=True, stdout=subprocess.DEVNULL)
        browser.screenshot(Path(folder) / "report.html", images / name, width=1240, height=height)
    return images / name


if __name__ == "__main__":
    if browser.BROWSER is None:
        sys.exit(f"error: {browser.WHY_NOT}")
    for picture in PICTURES:
        sys.stdout.write(f"written: {take(IMAGES, picture)}\n")
