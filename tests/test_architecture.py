"""Who may import whom, and what every module owes its reader."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = [
    name for name in ("interfaces", "areal_report", "areal_sim", "areal_real") if (ROOT / name).is_dir()
]
MODULES = [path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py"))]
ALLOWED = {
    # beside the standard library and itself; the conformance kit also imports hypothesis and pytest
    "interfaces": {"pydantic", "pydantic_core", "scenarios"},
}
FORBIDDEN = {
    "interfaces": {"areal_sim", "areal_real", "areal_report"},
    "areal_report": {"areal_sim", "areal_real"},
    "areal_sim": {"areal_real"},
    "areal_real": {"areal_sim"},
}


def imported(path: Path) -> Iterator[str]:
    """Top-level packages that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield (node.module or "").partition(".")[0]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_one_way(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    names = set(imported(path))
    assert not names & FORBIDDEN[package]
    if package in ALLOWED:
        extra = {"hypothesis", "pytest"} if "conformance" in path.parts else set()
        assert names <= ALLOWED[package] | extra | {package} | sys.stdlib_module_names


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_say_what_they_are(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert docstring
    assert len(docstring) > 20


def modules_after(statement: str) -> set[str]:
    """Top-level packages loaded once a fresh interpreter has run a statement."""
    code = f"{statement}\nimport sys; print(' '.join({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module", ["interfaces", "interfaces.loop", "interfaces.setup", "interfaces.scenario_file"]
)
def test_the_core_loads_neither_simulator_nor_tensors(module: str) -> None:
    assert find_spec("simpy") is not None
    assert not modules_after(f"import {module}") & {"simpy", "numpy", "scipy", "pyarrow", "torch", "vllm"}


def test_the_core_reads_no_clock_and_no_randomness() -> None:
    for path in sorted((ROOT / "interfaces").glob("*.py")) + sorted(
        (ROOT / "interfaces/policies").rglob("*.py")
    ):
        assert not set(imported(path)) & {"time", "random", "asyncio", "threading", "socket"}, name_of(path)


def test_nothing_is_executed_from_a_scenario() -> None:
    confined = ROOT / "areal_real/rewards/confined_child.py"  # runs what a model wrote, under kernel limits
    for path in (path for path in MODULES if path != confined):
        calls = [
            n.func for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.Call)
        ]
        names = {call.id for call in calls if isinstance(call, ast.Name)}
        assert not names & {"eval", "exec", "compile", "__import__"}, name_of(path)
