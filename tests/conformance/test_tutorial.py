"""The tutorial prints what it shows."""

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "check_a_policy.md"


def test_the_tutorial_prints_what_it_shows():
    text = PAGE.read_text(encoding="utf-8")
    printed = io.StringIO()
    names = {"__name__": "tutorial"}
    with contextlib.redirect_stdout(printed):
        for block in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S):
            exec(compile(block, str(PAGE), "exec"), names)
    seen = [line.rstrip() for line in printed.getvalue().splitlines() if line.strip()]
    shown = "".join(re.findall(r"^```text\n(.*?)^```$", text, re.M | re.S))
    assert seen == [line for line in shown.splitlines() if line.strip()]
    assert names["violation_events"] == 6
