import os
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from areal_real.buffer import DatabaseError, SqliteBuffer
from areal_real.tasks.letter_chain import LetterChain
from areal_real.tokens import TokenStore
from interfaces import actions
from interfaces.backend import ReplayBuffer


def generate(rollout: int, prompt: int = 0, member: int = 0, resume: int = 0) -> actions.Generate:
    return actions.Generate(rollout, prompt, member, 0, 0, resume, None)


def train(*rollouts: int, step: int = 0) -> actions.Train:
    return actions.Train(step, step, (0,), rollouts, None, True)


def state(*ready: int) -> dict[str, object]:
    return {"ready": [{"rollouts": [{"id": rollout}]} for rollout in ready]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "buffer.sqlite"


def opened(path: Path, dataset_size: int | None = 4) -> SqliteBuffer:
    return SqliteBuffer(path, LetterChain(), dataset_size)


def fill(buffer: SqliteBuffer, rollout: int, prompt: int = 0) -> None:
    buffer.admit(generate(rollout, prompt))
    buffer.extend(rollout, [5, 6], [-0.5, -0.25], [3, 4], ended=True)
    buffer.reward(rollout, 1.0)


def test_keeps_the_contracts(path: Path) -> None:
    buffer = opened(path)
    store: TokenStore = buffer
    contract: ReplayBuffer = buffer
    assert len(contract) == 0
    assert store.prompt_ids(1) == LetterChain().item(1).prompt_ids


def test_tokens_survive_a_process_that_never_closed(path: Path) -> None:
    fill(opened(path), 7, prompt=2)
    again = opened(path)
    again.commit(0, state(7), 1.5)
    resume = again.recover()
    assert resume is not None
    assert (resume.step, resume.at) == (0, 1.5)
    sample = again.samples(train(7))[0]
    assert sample.reward == 1.0
    assert sample.trajectory.response_ids == (5, 6)
    assert sample.trajectory.response_logprobs == (-0.5, -0.25)
    assert sample.trajectory.response_versions == (3, 4)
    assert sample.trajectory.prompt_ids == LetterChain().item(2).prompt_ids


def test_segments_are_appended_and_a_restart_forgets_them(path: Path) -> None:
    buffer = opened(path)
    buffer.admit(generate(1))
    buffer.extend(1, [5], [-1.0], [0], ended=False)
    buffer.admit(generate(1, resume=1))
    buffer.extend(1, [6], [-2.0], [1], ended=False)
    assert buffer.trajectory(1, 0).response_ids == (5, 6)
    buffer.admit(generate(1))
    assert buffer.trajectory(1, 0).response_ids == ()


def test_consumed_rollouts_stay_until_a_checkpoint_no_longer_needs_them(path: Path) -> None:
    buffer = opened(path)
    for rollout in (1, 2):
        fill(buffer, rollout)
    buffer.commit(0, state(1, 2), 1.0)
    buffer.samples(train(1))
    buffer.discard([2])
    assert len(buffer) == 0
    again = opened(path)
    again.recover()
    assert len(again) == 2, "killed before the next checkpoint: both are ready again"
    again.samples(train(1))
    again.commit(1, state(2), 2.0)
    last = opened(path)
    last.recover()
    assert [len(last), last.trajectory(1, 0).response_ids] == [1, ()]


def test_what_was_under_way_at_the_kill_is_gone(path: Path) -> None:
    buffer = opened(path)
    fill(buffer, 1)
    buffer.commit(0, state(1), 1.0)
    fill(buffer, 2)
    again = opened(path)
    again.recover()
    assert again.trajectory(2, 0).response_ids == ()
    assert len(again) == 1


def test_without_a_checkpoint_a_run_begins_at_the_beginning(path: Path) -> None:
    buffer = opened(path)
    fill(buffer, 1)
    again = opened(path)
    assert again.recover() is None
    assert len(again) == 0


def test_a_commit_that_fails_changes_nothing(path: Path) -> None:
    buffer = opened(path)
    fill(buffer, 1)
    buffer.commit(0, state(1), 1.0)
    buffer.samples(train(1))
    with pytest.raises(TypeError):
        buffer.commit(1, {**state(), "unwritable": object()}, 2.0)
    resume = opened(path).recover()
    assert resume is not None
    assert resume.step == 0


def test_tokens_of_discarded_rollouts_are_refused_silently(path: Path) -> None:
    buffer = opened(path)
    buffer.admit(generate(1))
    buffer.discard([1, 99])
    buffer.extend(1, [5], [-1.0], [0], ended=True)
    buffer.reward(1, 1.0)
    assert len(buffer) == 0


def test_epochs_repeat_the_prompts(path: Path) -> None:
    buffer = opened(path, dataset_size=3)
    assert buffer.item(5) == buffer.item(2)
    assert buffer.item(4) != buffer.item(2)


def test_a_missing_rollout_is_a_clear_error(path: Path) -> None:
    buffer = opened(path)
    fill(buffer, 1)
    buffer.commit(0, state(1), 1.0)
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM rollouts")
    with pytest.raises(DatabaseError, match="rollout 1 is ready at the checkpoint of step 0"):
        opened(path).recover()


def test_a_file_that_is_no_database_is_a_clear_error(path: Path) -> None:
    path.write_text("not a database, but long enough to be taken for one\n" * 100)
    with pytest.raises(DatabaseError, match=r"buffer\.sqlite: .*not a database"):
        opened(path)


def test_a_missing_directory_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="unable to open"):
        opened(tmp_path / "absent" / "buffer.sqlite")


FULL = f"""
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_sqlite_buffer import fill, opened, state
from areal_real.buffer import DatabaseError
buffer = opened(Path(sys.argv[1]))
fill(buffer, 1)
buffer.commit(0, state(1), 1.0)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))
try:
    for rollout in range(2, 5000):
        fill(buffer, rollout)
except DatabaseError as error:
    print(error)
"""


def test_a_full_disk_is_a_clear_error_and_the_checkpoint_stays(path: Path) -> None:
    """A limit on the size of files stands in for a full disk."""
    root = Path(__file__).parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], cwd=root, capture_output=True, text=True, check=True,
        timeout=120, env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert "make room or give write access" in done.stdout
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 150_000
    resume = opened(path).recover()
    assert resume is not None
    assert resume.step == 0
