import re
from pathlib import Path

HERE = Path(__file__).parent
TABLE = HERE.parents[1] / "docs" / "reference" / "known_faults.md"


def test_every_test_the_table_names_exists():
    text = TABLE.read_text()
    module = ""
    missing = []
    for found in re.finditer(r"`(\w*)::(test_\w+)`", text):
        module = found[1] or module
        if f"def {found[2]}(" not in (HERE / f"{module}.py").read_text():
            missing.append(found[0])
    assert not missing


def test_every_known_fault_test_is_in_the_table():
    text = TABLE.read_text()
    tests = [
        name
        for path in HERE.glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    ]
    assert [name for name in tests if name not in text and "table" not in name] == []
