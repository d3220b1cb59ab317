"""Counts the mutations of the core that the suite does not notice: `python tests/meta/mutate.py [N ...]`.

Each mutant is a copy of the package with one line changed, against which the core's tests run, fast ones
first, until one fails. A suite that fails without any mutation is an error. Exit code 1 when a mutant
survives that is not explained, or a line is not found.
`MUTATION_JOBS` is the number of mutants at a time (default 1).
"""

import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from os import environ
from pathlib import Path

from mutants import EXPLAINED, MUTANTS

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("interfaces", "areal_sim", "areal_report", "scenarios", "docs", "tests", "pyproject.toml")
SUITES = (
    ["tests/known_faults"],
    ["tests/interfaces/test_loop_edges.py"],
    ["tests/conformance/test_presets.py"],
    ["tests/policies", "--deselect", "tests/policies/test_user_package.py"],
    ["tests/conformance/test_registry.py"],
)
"""Of the core's tests, in the order of their time."""
LIMIT_S = 900


def killed_by(number: int) -> str | None:
    """The suite that notices a mutant (or "NOT FOUND"); None: it survives."""
    name, before, after = MUTANTS[number]
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        _copy(work)
        source = (work / name).read_text()
        if before not in source:
            return "NOT FOUND"
        (work / name).write_text(source.replace(before, after, 1))
        for suite in SUITES:
            _passes_unmutated(suite[0])
            if _fails(work, suite):
                return suite[0]
        return None


@cache
def _passes_unmutated(name: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        _copy(Path(directory))
        if _fails(Path(directory), next(suite for suite in SUITES if suite[0] == name)):
            sys.exit(f"{name} fails without any mutation")


def _copy(work: Path) -> None:
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, work / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, work)


def _fails(work: Path, suite: list[str]) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *suite]
    paths = {"PYTHONPATH": str(work), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=work, env={**environ, **paths}, capture_output=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return True  # a livelock
    return done.returncode != 0


def main() -> int:
    """Run all mutants (or those named by number) and print a line for each."""
    chosen = [int(argument) for argument in sys.argv[1:]] or list(range(len(MUTANTS)))
    killed = unexplained = 0
    with ThreadPoolExecutor(max_workers=int(environ.get("MUTATION_JOBS", "1"))) as pool:
        for number, suite in zip(chosen, pool.map(killed_by, chosen), strict=True):
            name, before, after = MUTANTS[number]
            reason = EXPLAINED.get(MUTANTS[number])
            found = suite not in (None, "NOT FOUND")
            killed += found
            unexplained += not found and (reason is None or suite is not None)
            word = suite or (f"survives: {reason}" if reason else "SURVIVES")
            print(f"{number:3d} {word}\n    {name}: {_line(before)} -> {_line(after)}", flush=True)
    print(f"{killed} of {len(chosen)} mutants killed, {unexplained} neither killed nor explained")
    return 1 if unexplained else 0


def _line(text: str) -> str:
    return repr(text.strip()[:70])


if __name__ == "__main__":
    sys.exit(main())
