"""The documentation is true: its commands print what it shows, its Python runs, its names and links exist."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from interfaces.scenario_file import load, shipped

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "scenarios/README.md",
    *sorted(ROOT.glob("docs/**/*.md")),
]


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


generate = _generator()


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def with_block(language: str) -> list[Path]:
    return [page for page in PAGES if f"```{language}\n" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", with_block("console"), ids=name_of)
def test_commands_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    """To bring pages up to date: make docs."""
    for block in generate.BLOCK.findall(page.read_text(encoding="utf-8")):
        for command in generate.commands(block):
            assert generate.run(command.line, tmp_path) == command.output, f"$ {command.line}"


@pytest.mark.parametrize("page", with_block("python"), ids=name_of)
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "docs"}
    for block in re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S):
        exec(compile(block, name_of(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_scenarios_named_exist(page: Path) -> None:
    text = generate.BLOCK.sub("", page.read_text(encoding="utf-8"))
    for name in re.findall(r"\bareal/\w+\b(?!/)(?![{_])", text):
        assert name in shipped(), name
    for path in re.findall(r"\bscenarios/[\w./-]+\.toml\b", text):
        assert (ROOT / path).is_file(), path


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_toml_blocks_are_scenarios(tmp_path: Path) -> None:
    found = 0
    for page in PAGES:
        for block in re.findall(r"^```toml\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S):
            if "[run]" in block:
                found += 1
                (tmp_path / "s.toml").write_text(block)
                load(tmp_path / "s.toml")
    assert found


def test_scenario_reference_is_up_to_date() -> None:
    """To bring it up to date: make docs."""
    assert generate.REFERENCE.read_text(encoding="utf-8") == generate.scenario_reference()


def test_readme_says_what_matters_on_the_first_screen() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    first_screen = "\n".join(lines[:40])
    for words in ("make demo", "make test", "areal-sim", "docs/accuracy.md"):
        assert words in first_screen
