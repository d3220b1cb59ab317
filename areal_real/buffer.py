"""The replay buffer: rollouts with their tokens in a database, so that a killed run goes on where it was.

SQLite in WAL mode, one file. Tokens are written when an engine reports them; what a step consumed is
forgotten in the same transaction that makes its checkpoint the one to resume from.
"""

import contextlib
import json
import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from areal_real.tasks.task import Item, Task
from areal_real.tokens import Sample
from interfaces import actions
from interfaces.errors import TestbedError
from interfaces.rollout import PolicyVersion, Trajectory

SCHEMA = """
CREATE TABLE IF NOT EXISTS rollouts (
    id INTEGER PRIMARY KEY, prompt INTEGER NOT NULL, member INTEGER NOT NULL, attempt INTEGER NOT NULL,
    ids BLOB NOT NULL, logprobs BLOB NOT NULL, versions BLOB NOT NULL, ended INTEGER NOT NULL, reward REAL,
    gone INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS checkpoints (step INTEGER PRIMARY KEY, state TEXT NOT NULL, at REAL NOT NULL);
"""


class DatabaseError(TestbedError):
    """The database of a run cannot be written or read."""

    exit_code = 6


class Resume(NamedTuple):
    """Where a killed run goes on."""

    step: int
    """Step whose checkpoint it is."""
    state: dict[str, Any]
    """Snapshot of the core (`interfaces.snapshot`)."""
    at: float
    """Time of the run at which it was whole."""


class Question(NamedTuple):
    """What a reward function is asked."""

    prompt: str
    response: str
    ended: bool
    answer: Mapping[str, Any]


@dataclass(slots=True)
class _Row:
    prompt: int
    member: int
    attempt: int
    ids: "array[int]" = field(default_factory=lambda: array("i"))
    logprobs: "array[float]" = field(default_factory=lambda: array("f"))
    versions: "array[int]" = field(default_factory=lambda: array("i"))
    ended: bool = False
    reward: float | None = None


class SqliteBuffer:
    """Implements `interfaces.backend.ReplayBuffer` and `areal_real.tokens.TokenStore`.

    A rollout that was consumed or discarded is kept until a checkpoint no longer needs it: going on from the
    checkpoint before, it may be ready again.
    """

    def __init__(self, path: Path, task: Task, dataset_size: int | None) -> None:
        """Open the database of a run, or begin one.

        Raises:
            DatabaseError: the file cannot be written, or is not such a database.
        """
        self.path, self.task = path, task
        self._dataset_size = dataset_size
        self._rows: dict[int, _Row] = {}
        self._items: dict[int, Item] = {}
        with self._translated():
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.executescript(SCHEMA)

    def close(self) -> None:
        """Write what is pending and close the file."""
        with contextlib.suppress(sqlite3.Error):
            self._db.close()

    # ---- prompts and tokens ---------------------------------------------------------------------------

    def item(self, prompt: int) -> Item:
        """The task's item of a prompt (index in the run: epoch * dataset_size + position)."""
        item = self._items.get(prompt)
        if item is None:
            place = prompt if self._dataset_size is None else prompt % self._dataset_size
            item = self._items[prompt] = self.task.item(place)
        return item

    def prompt_ids(self, prompt: int) -> tuple[int, ...]:
        """Tokens of a prompt."""
        return self.item(prompt).prompt_ids

    def trajectory(self, rollout: int, prompt: int) -> Trajectory:
        """What was generated of a rollout so far; empty response if nothing was."""
        row = self._rows.get(rollout) or _Row(prompt, 0, 0)
        return Trajectory(
            rollout, self.prompt_ids(prompt), tuple(row.ids), tuple(row.logprobs), tuple(row.versions)
        )

    def extend(
        self, rollout: int, ids: Sequence[int], logprobs: Sequence[float], versions: Sequence[PolicyVersion],
        *, ended: bool,
    ) -> None:  # fmt: skip
        """Append what an engine generated since the last dispatch; `ended`: the model itself stopped."""
        row = self._rows.get(rollout)
        if row is None:
            return  # discarded meanwhile
        row.ids.extend(ids)
        row.logprobs.extend(logprobs)
        row.versions.extend(versions)
        row.ended = ended
        self._write(rollout, row)

    def restart(self, rollout: int) -> None:
        """Forget what was generated of a rollout: it begins again from token 0."""
        row = self._rows.get(rollout)
        if row is not None and row.ids:
            self._rows[rollout] = fresh = _Row(row.prompt, row.member, row.attempt)
            self._write(rollout, fresh)

    # ---- rollouts -------------------------------------------------------------------------------------

    def admit(self, action: actions.Generate) -> None:
        """A rollout starts, again or for the first time."""
        row = self._rows.get(action.rollout)
        if row is None:
            row = self._rows[action.rollout] = _Row(action.prompt, action.member, action.attempt)
            self._write(action.rollout, row)
        elif not action.resume_tokens:
            row.attempt = action.attempt
            self.restart(action.rollout)

    def reward(self, rollout: int, reward: float) -> None:
        """The reward of a finished rollout is known."""
        row = self._rows.get(rollout)
        if row is not None:
            row.reward = reward
            self._execute("UPDATE rollouts SET reward = ? WHERE id = ?", (reward, rollout))

    def question(self, rollout: int) -> Question:
        """What the reward function is asked about a finished rollout."""
        row = self._rows[rollout]
        item = self.item(row.prompt)
        return Question(item.text, self.task.decode(row.ids), row.ended, item.answer)

    def samples(self, action: actions.Train) -> list[Sample]:
        """The rollouts of a training step, in its order; they count as consumed from now on."""
        taken = [(rollout, self._rows[rollout]) for rollout in action.rollouts]
        samples = [
            Sample(row.prompt, self.trajectory(rollout, row.prompt), _known(rollout, row.reward))
            for rollout, row in taken
        ]
        self.discard(action.rollouts)
        return samples

    def discard(self, rollouts: Sequence[int], running: Sequence[int] = ()) -> None:  # noqa: ARG002
        """Forget rollouts; unknown ids are ignored, and so is what is still reported of those `running`."""
        known = [rollout for rollout in rollouts if rollout in self._rows]
        for rollout in known:
            prompt = self._rows.pop(rollout).prompt
            self._items.pop(prompt, None)
        self._execute_many("UPDATE rollouts SET gone = 1 WHERE id = ?", ((rollout,) for rollout in known))

    def __len__(self) -> int:
        """Rollouts held that may still train."""
        return len(self._rows)

    # ---- checkpoints ----------------------------------------------------------------------------------

    def commit(self, step: int, state: Mapping[str, Any], at: float) -> None:
        """Make a step's checkpoint the state to resume from, and forget what it consumed: both or neither."""
        keep = _ready(state)
        with self._translated(), self._transaction():
            self._db.execute(
                "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?)", (step, json.dumps(state), at)
            )
            self._db.execute("DELETE FROM checkpoints WHERE step < ?", (step,))
            gone = [row[0] for row in self._db.execute("SELECT id FROM rollouts WHERE gone = 1")]
            forget = [(rollout,) for rollout in gone if rollout not in keep]
            self._db.executemany("DELETE FROM rollouts WHERE id = ?", forget)

    def recover(self) -> Resume | None:
        """The last checkpoint that is whole; rollouts are as they were then. None: begin at the beginning.

        Rollouts that were under way are gone: the snapshot admits their prompts again.
        """
        with self._translated():
            row = self._db.execute("SELECT step, state, at FROM checkpoints ORDER BY step DESC").fetchone()
            resume = None if row is None else Resume(row[0], json.loads(row[1]), row[2])
            keep = set() if resume is None else _ready(resume.state)
            with self._transaction():
                ids = [row[0] for row in self._db.execute("SELECT id FROM rollouts")]
                self._db.executemany(
                    "DELETE FROM rollouts WHERE id = ?", ((i,) for i in ids if i not in keep)
                )
                self._db.execute("UPDATE rollouts SET gone = 0")
            self._rows = {row[0]: _row(row) for row in self._db.execute("SELECT * FROM rollouts")}
        missing = sorted(keep - self._rows.keys())
        if missing:
            raise DatabaseError(
                f"{self.path}: rollout {missing[0]} is ready at the checkpoint of step {row[0]}, but not "
                "here; the file is damaged: begin a new run"
            )
        return resume

    # ---- the database ---------------------------------------------------------------------------------

    def _write(self, rollout: int, row: _Row) -> None:
        blobs = (row.ids.tobytes(), row.logprobs.tobytes(), row.versions.tobytes())
        values = (rollout, row.prompt, row.member, row.attempt, *blobs, row.ended, row.reward)
        self._execute("INSERT OR REPLACE INTO rollouts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0)", values)

    def _execute(self, statement: str, values: tuple[Any, ...]) -> None:
        with self._translated():
            self._db.execute(statement, values)

    def _execute_many(self, statement: str, values: Iterable[tuple[Any, ...]]) -> None:
        with self._translated(), self._transaction():
            self._db.executemany(statement, values)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """One message for what the database or the file system refuses."""
        try:
            yield
        except sqlite3.Error as error:
            raise DatabaseError(
                f"{self.path}: {error}; make room or give write access, then `areal-real resume` the run: "
                "its last checkpoint is whole"
            ) from None


def _ready(state: Mapping[str, Any]) -> set[int]:
    """Rollouts that a snapshot holds as finished."""
    return {rollout["id"] for group in state["ready"] for rollout in group["rollouts"]}


def _row(row: tuple[Any, ...]) -> _Row:
    _, prompt, member, attempt, ids, logprobs, versions, ended, reward, _ = row
    return _Row(
        prompt,
        member,
        attempt,
        array("i", ids),
        array("f", logprobs),
        array("i", versions),
        bool(ended),
        reward,
    )


def _known(rollout: int, reward: float | None) -> float:
    if reward is None:
        raise DatabaseError(f"rollout {rollout} is to be trained and has no reward: a defect of the driver")
    return reward
