"""Makes a counterexample short: fewer moves, a smaller run, plainer arguments, the same law broken."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import chain, combinations
from typing import Any

from interfaces.conformance.adversary import Adversary
from interfaces.conformance.invariants import Monitor
from interfaces.conformance.machine import play_out
from interfaces.conformance.moves import Move, Origin, can, faultless
from interfaces.conformance.target import Target
from interfaces.conformance.violation import InvariantViolation
from interfaces.errors import TestbedError
from interfaces.loop import TrainingLoop
from interfaces.view import LoopConfig

ATTEMPTS = 800
"""Runs at most, of each way to make it shorter."""
BLOCK = 4
"""Most neighbouring moves that are left out at once, but for halves."""
PLAIN = {
    "tokens": 1, "reward": 1.0, "value": 1.0, "silent": True, "save": False, "newest": True, "now": True,
}  # fmt: skip
"""Arguments of a story that is easy to read."""
SIMPLER: tuple[dict[str, Any], ...] = (
    {"group_size": 1}, {"batch_size": 1}, {"batch_size": 2},
    {"dataset_size": None, "epochs": 1, "last_batch": "drop"}, {"epochs": 1}, {"last_batch": "drop"},
    {"checkpoint_every_steps": 0}, {"evaluation_every_steps": 0}, {"max_retries": 0},
    {"steps": 2}, {"steps": 3}, {"steps": 4},
)  # fmt: skip


class Shrinker:
    """Tries variations of a run; keeps what breaks the same law with less."""

    def __init__(
        self,
        target: Target,
        ignore: Collection[int],
        loop_class: type[TrainingLoop],
        violation: InvariantViolation,
    ) -> None:
        self.best = violation
        self._target, self._ignore, self._loop_class = target, ignore, loop_class
        self._left = ATTEMPTS

    def run(self) -> InvariantViolation:
        """The shortest violation found; its `origin` runs it again."""
        self._leave_out()
        self._look_for_shorter()
        return self.best

    def _leave_out(self) -> None:
        """Without some moves, in a smaller shape, with plainer arguments, as long as that helps."""
        self._left = ATTEMPTS
        before = None
        while self._left > 0 and before != size(self.best):
            before = size(self.best)
            for origin in chain(self._fewer(), self._smaller(), self._plainer(), self._without_pairs()):
                if self._left <= 0:
                    break
                self._try(origin)

    def _try(self, origin: Origin) -> None:
        self._left -= 1
        backend, violation = run(self._target, origin, self._ignore, self._loop_class, play=True)
        if backend is not None and violation is not None:
            self._offer(violation)

    def _offer(self, violation: InvariantViolation) -> bool:
        better = violation.number == self.best.number and size(violation) < size(self.best)
        if better:
            self.best = violation
        return better

    # ---- variations, one change each, of the best run at the time -------------------------------------

    def _fewer(self) -> Iterator[Origin]:
        length = len(self.best.origin.moves)
        halves = [length >> shift for shift in range(length.bit_length()) if length >> shift > BLOCK]
        for count in (*halves, *range(BLOCK, 0, -1)):
            start = 0
            while start < len(self.best.origin.moves):
                kept = self.best
                moves = kept.origin.moves
                yield kept.origin._replace(moves=moves[:start] + moves[start + count :])
                start += self.best is kept

    def _without_pairs(self) -> Iterator[Origin]:
        for first, second in combinations(range(len(self.best.origin.moves)), 2):
            moves = self.best.origin.moves
            if second < len(moves):
                rest = (move for number, move in enumerate(moves) if number not in (first, second))
                yield self.best.origin._replace(moves=tuple(rest))

    def _smaller(self) -> Iterator[Origin]:
        yield self.best.origin._replace(replicas=1)
        for change in SIMPLER:
            if not (self._target.fixed_batch and "batch_size" in change):
                origin = self.best.origin
                yield origin._replace(config=replace(origin.config, **change))

    def _plainer(self) -> Iterator[Origin]:
        for number in range(len(self.best.origin.moves)):
            moves = list(self.best.origin.moves)
            if number < len(moves):
                name, given = moves[number]
                moves[number] = Move(name, {key: PLAIN.get(key, value) for key, value in given.items()})
                yield self.best.origin._replace(moves=tuple(moves))

    # ---- all short runs -------------------------------------------------------------------------------

    def _look_for_shorter(self) -> None:
        """Every run of the smallest shape without faults, shortest first, while it would be shorter."""
        self._left = ATTEMPTS
        config = self.best.origin.config
        batch = self._target.fixed_batch or 1
        for group_size in {1, config.group_size}:
            shape = LoopConfig(batch, group_size, max(3, config.steps))
            frontier: list[tuple[Move, ...]] = [()]
            while frontier and len(frontier[0]) + 1 < len(self.best.history):
                frontier = self._longer(shape, frontier)

    def _longer(self, shape: LoopConfig, frontier: list[tuple[Move, ...]]) -> list[tuple[Move, ...]]:
        """One move more than each of these; nothing once something shorter was found."""
        longer: list[tuple[Move, ...]] = []
        for moves in frontier:
            self._left -= 1
            origin = Origin(shape, 1, moves)
            backend, violation = run(self._target, origin, self._ignore, self._loop_class, play=False)
            if (violation is not None and self._offer(violation)) or self._left <= 0:
                return []
            if backend is not None and violation is None:
                longer += [(*moves, move) for move in faultless(backend)]
        return longer


def run(
    target: Target, origin: Origin, ignore: Collection[int], loop_class: type[TrainingLoop], *, play: bool
) -> tuple[Adversary | None, InvariantViolation | None]:
    """Make these moves (and play the rest fairly); no adversary: the run makes no sense."""
    config = origin.config
    try:
        policy = target.policy(config)
    except TestbedError:
        return None, None
    filters = getattr(policy.buffering, "filter_zero_variance", False)
    scarce = config.prompts is not None and config.prompts < policy.min_outstanding_groups
    if scarce or (filters and config.group_size == 1):
        return None, None  # a shape that no run of this policy may have
    backend = Adversary(Monitor(loop_class(policy, config), ignore=ignore), origin.replicas)
    try:
        backend.start()
        for move in origin.moves:
            if not can(backend, move):
                return None, None
            backend.make(move.name, **move.arguments)
        if play:
            play_out(backend)
    except InvariantViolation as violation:
        violation.origin = backend.origin
        return backend, violation
    return backend, None


def size(violation: InvariantViolation) -> tuple[int, int, int, int]:
    """Events told, then moves, then the shape of the run, then arguments that are not plain."""
    config, replicas, moves = violation.origin
    shape = (
        config.batch_size, config.group_size, config.steps, config.epochs, config.dataset_size is not None,
        config.checkpoint_every_steps, config.evaluation_every_steps, config.max_retries,
        config.last_batch != "drop", replicas,
    )  # fmt: skip
    odd = sum(PLAIN.get(key, value) != value for move in moves for key, value in move.arguments.items())
    return len(violation.history), len(moves), sum(map(int, shape)), odd
