"""Counts the mutations of the core that the suite does not notice: `python tests/meta/mutate.py [N ...]`.

Each mutant is a copy of the package with one line changed, against which the core's tests run (fast ones
first). Exit code 1 when one survives or a line is not found.
"""

import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count, environ
from pathlib import Path

from mutants import MUTANTS

ROOT = Path(__file__).resolve().parents[2]
SUITES = (
    ["tests/known_faults"],
    ["tests/conformance/test_presets.py"],
)
IGNORED = shutil.ignore_patterns("__pycache__", "runs")
EQUIVALENT: dict[str, str] = {
    "quiet = view": "",
}
"""Mutants that change nothing that can be seen, and why."""


def killed_by(number: int) -> str | None:
    """The suite that notices a mutant; None: it survives."""
    name, before, after = MUTANTS[number]
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        for part in ("interfaces", "tests/known_faults", "tests/conformance"):
            shutil.copytree(ROOT / part, work / part, ignore=IGNORED)
        shutil.copy(ROOT / "pyproject.toml", work)
        source = (work / name).read_text()
        if before not in source:
            return "NOT FOUND"
        (work / name).write_text(source.replace(before, after, 1))
        for suite in SUITES:
            command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *suite]
            try:
                done = subprocess.run(
                    command, cwd=work, env={**environ, "PYTHONPATH": str(work)}, capture_output=True, timeout=300,
                    check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return f"{suite[0]} (timeout)"
            if done.returncode:
                return suite[0]
    return None


def main() -> int:
    """Run all mutants (or those named by number) and print a line for each."""
    chosen = [int(argument) for argument in sys.argv[1:]] or list(range(len(MUTANTS)))
    survivors = 0
    with ThreadPoolExecutor(max_workers=max(1, (cpu_count() or 2) - 0)) as pool:
        for number, verdict in zip(chosen, pool.map(killed_by, chosen), strict=True):
            name, before, after = MUTANTS[number]
            bad = verdict is None or verdict == "NOT FOUND"
            survivors += bad
            word = "SURVIVES" if verdict is None else verdict
            print(f"{number:3d} {word:45s} {name}: {before.strip()[:60]!r} -> {after.strip()[:60]!r}", flush=True)
    print(f"{len(chosen)} mutants, {survivors} not killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
