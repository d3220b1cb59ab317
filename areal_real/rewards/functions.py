"""Reward functions that come with the project; name one as `module:function` in a task of your own.

Each takes the prompt, the response, whether the response ended by itself, and the item's `answer`.
"""

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CHILD = Path(__file__).with_name("confined_child.py")
WALL_S = 8.0
CODE = re.compile(r"```(?:python|py)?\s*\n(.*?)```", re.DOTALL)


def exact_match(prompt: str, response: str, ended: bool, answer: Mapping[str, Any]) -> float:  # noqa: ARG001
    """1 if the response is `answer["answer"]`, spaces around it left out; else 0."""
    return float(ended and response.strip() == str(answer["answer"]).strip())


def math_equal(prompt: str, response: str, ended: bool, answer: Mapping[str, Any]) -> float:  # noqa: ARG001
    """1 if math-verify finds the response's final answer equal to `answer["answer"]`; else 0."""
    from math_verify import parse, verify  # noqa: PLC0415 (loads slowly)

    gold = parse(f"${answer['answer']}$")
    return float(ended and verify(gold, parse(response)))


def python_tests(prompt: str, response: str, ended: bool, answer: Mapping[str, Any]) -> float:  # noqa: ARG001
    """1 if the response's code passes `answer["tests"]` (Python source of assertions), confined; else 0.

    The code is the last fenced block, or the whole response. See `confinement` for what is limited. Code that
    inspects the frames of its own tests can still cheat.

    Raises:
        OSError: this system cannot confine code, so none was run.
    """
    blocks = CODE.findall(response)
    secret = secrets.token_hex(16)
    request = {"code": blocks[-1] if blocks else response, "tests": answer["tests"], "secret": secret}
    with tempfile.TemporaryDirectory(prefix="areal-answer-") as directory:
        code, output, errors = _run(directory, json.dumps(request))
    if "cannot confine" in errors or "No module named 'confinement'" in errors:
        raise OSError(f"code cannot be confined here: {errors[-300:]}")
    return float(ended and code == 0 and output == secret)


def _run(directory: str, request: str) -> tuple[int, str, str]:
    """Exit status, output and errors of the child; all that it started is gone afterwards."""
    command = [sys.executable, "-I", str(CHILD), directory]
    with subprocess.Popen(
        command, cwd=directory, env={"PATH": "/usr/bin:/bin"}, text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as child:  # fmt: skip
        try:
            output, errors = child.communicate(request, timeout=WALL_S)
        except subprocess.TimeoutExpired:
            output, errors = "", f"no end within {WALL_S:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    return child.returncode, output, errors
