import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from areal_real.buffer import Question
from areal_real.clock import Clock
from areal_real.rewards.functions import exact_match, math_equal, python_tests
from areal_real.rewards.service import RewardError, RewardPool
from interfaces import errors
from interfaces.events import Event, RewardFailed, RewardReady


class Pool:
    """A pool whose rollout numbers are looked up in a list of responses."""

    def __init__(
        self,
        responses: list[str],
        timeout_s: float = 20.0,
        function: str = "strange_rewards:reward",
    ) -> None:
        self.responses = responses
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.failures: list[errors.TestbedError] = []
        self.pool = RewardPool(
            function, self.question, self.events.put_nowait, Clock(), workers=1, timeout_s=timeout_s,
            on_failure=self.failures.append,
        )  # fmt: skip

    def question(self, rollout: int) -> Question:
        if self.responses[rollout] == "gone":
            raise KeyError(rollout)
        return Question("abc", self.responses[rollout], True, {"plus": rollout})

    async def scored(self, *rollouts: int) -> list[Any]:
        for rollout in rollouts:
            self.pool.score(rollout)
        return [await asyncio.wait_for(self.events.get(), 60) for _ in rollouts]


def in_pool(pool: Callable[[], Pool], use: Callable[[Pool], Any]) -> None:
    async def main() -> None:
        made = pool()
        await made.pool.start()
        try:
            await use(made)
        finally:
            await made.pool.close()
        assert not made.pool.pids

    asyncio.run(main())


def test_what_goes_wrong_fails_its_rollout_and_nothing_else() -> None:
    bad = {
        "crash": "died",
        "raise": "RuntimeError: no idea",
        "nan": "not a finite number",
        "none": "TypeError",
    }

    async def use(made: Pool) -> None:
        for rollout, why in enumerate(bad.values()):
            (event,) = await made.scored(rollout)
            assert isinstance(event, RewardFailed)
            assert why in event.reason
        (event,) = await made.scored(4)
        assert isinstance(event, RewardReady)
        assert event.reward == 3 + 1 + 4

    in_pool(lambda: Pool([*bad, "print"]), use)


def test_a_hanging_reward_is_ended_by_its_time_limit() -> None:
    async def use(made: Pool) -> None:
        (event,) = await made.scored(0)
        assert isinstance(event, RewardFailed)
        assert "no reward within 0.5 s (real.reward_timeout_s)" in event.reason

    in_pool(lambda: Pool(["hang"], timeout_s=0.5), use)


def test_a_killed_worker_is_replaced() -> None:
    async def use(made: Pool) -> None:
        os.kill(made.pool.pids[0], signal.SIGKILL)
        first, second = [(await made.scored(rollout))[0] for rollout in (0, 1)]
        assert isinstance(first, RewardFailed)
        assert isinstance(second, RewardReady)

    in_pool(lambda: Pool(["", ""]), use)


def test_rollouts_discarded_while_they_waited_are_passed_over() -> None:
    async def use(made: Pool) -> None:
        made.pool.score(0)
        (event,) = await made.scored(1)
        assert event.rollout == 1

    in_pool(lambda: Pool(["gone", "x"]), use)


def test_all_is_answered_also_where_a_rollout_was_passed_over() -> None:
    async def use(made: Pool) -> None:
        made.pool.score(1)
        made.pool.score(0)
        await asyncio.wait_for(made.pool.answered(), 60)
        assert [event.rollout for event in [made.events.get_nowait()]] == [1]  # type: ignore[attr-defined]
        assert made.events.empty()

    in_pool(lambda: Pool(["gone", "print"]), use)


def test_a_function_that_cannot_be_imported_is_one_message() -> None:
    with pytest.raises(RewardError, match=r"reward no_such_module:f: ModuleNotFoundError"):
        in_pool(lambda: Pool([], function="no_such_module:f"), lambda made: made.scored())


def test_exact_match() -> None:
    assert exact_match("", " 42\n", True, {"answer": 42}) == 1.0
    assert exact_match("", "43", True, {"answer": 42}) == 0.0
    assert exact_match("", "42", False, {"answer": 42}) == 0.0


def test_math_equal() -> None:
    assert math_equal("", r"so it is $\boxed{\frac{1}{2}}$", True, {"answer": "0.5"}) == 1.0
    assert math_equal("", r"so it is $\boxed{\frac{1}{3}}$", True, {"answer": "0.5"}) == 0.0


TESTS = {"tests": "assert double(4) == 8"}


def test_python_code_that_passes_its_tests() -> None:
    response = "Here:\n```python\ndef double(x):\n    return 2 * x\n```"
    assert python_tests("", response, True, TESTS) == 1.0


@pytest.mark.parametrize(
    "code",
    [
        "def double(x): return x",
        "def double(x): return",
        "syntax error",
        "import os; os._exit(0)",
        "import sys; sys.exit(0)",
        "while True: pass",
        "import time; time.sleep(1000)",
        "x = bytearray(10**10)",
        "import socket; socket.create_connection(('127.0.0.1', 9)); double = lambda x: 2 * x",
        "import socket; socket.socket(); double = lambda x: 2 * x",
        "import os; os.kill(os.getppid(), 9); double = lambda x: 2 * x",
        "open('big', 'wb').write(bytes(10**8)); double = lambda x: 2 * x",
    ],
)
def test_python_code_that_does_not(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("areal_real.rewards.functions.WALL_S", 2.0)
    assert python_tests("", code, True, TESTS) == 0.0


def test_code_cannot_touch_files_outside_its_directory(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    double = "\ndouble = lambda x: 2 * x"
    for attack in ("open({!r}, 'w')", "__import__('os').remove({!r})", "open({!r} + '2', 'w')"):
        assert python_tests("", attack.format(str(precious)) + double, True, TESTS) == 0.0
    assert precious.read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
    assert python_tests("", "open('scratch', 'w').write('mine')" + double, True, TESTS) == 1.0


@pytest.mark.parametrize("start", ["Popen(['sleep', '987'])", "Popen(['setsid', 'sleep', '987'])"])
def test_what_the_code_started_is_gone(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("areal_real.rewards.functions.WALL_S", 2.0)
    python_tests("", f"import subprocess; subprocess.{start}; double = lambda x: 2 * x", True, TESTS)
    for _ in range(100):
        if not running(b"sleep\x00987\x00"):
            return
        time.sleep(0.05)
    raise AssertionError("a process that the code started is still there")


def running(command: bytes) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes() == command:
                return True
    return False
