"""What can be done to a run, as values: remembered, left out, made again."""

from collections.abc import Container
from typing import TYPE_CHECKING, Any, NamedTuple

from interfaces.view import LoopConfig

if TYPE_CHECKING:
    from interfaces.conformance.adversary import Adversary


class Move(NamedTuple):
    """One method of the adversary called, with its arguments."""

    name: str
    arguments: dict[str, Any]


class Origin(NamedTuple):
    """How a run came to its violation: enough to run it again, in part or in another shape."""

    config: LoopConfig
    replicas: int
    moves: tuple[Move, ...]


def can(backend: "Adversary", move: Move) -> bool:
    """Whether a move makes sense now: what it answers is owed."""
    if backend.ended:
        return False
    owed: dict[str, tuple[str, Container[int]]] = {
        "finish": ("rollout", backend.flights), "fail": ("rollout", backend.flights),
        "come_back": ("rollout", backend.aborting), "reward": ("rollout", backend.rewards),
        "reward_fails": ("rollout", backend.rewards), "loaded": ("replica", backend.loads),
        "die": ("replica", backend.alive), "tell_load": ("replica", backend.alive),
        "revive": ("replica", backend.dead),
    }  # fmt: skip
    if move.name in owed:
        key, among = owed[move.name]
        return move.arguments[key] in among
    if move.name in ("save", "fall_back", "stop"):
        return True
    return any(answer.__name__ == move.name and bool(queue) for queue, answer in backend.queues())


def faultless(backend: "Adversary") -> list[Move]:
    """Everything but faults that could be reported next, in its plainest form."""
    if backend.ended:
        return []
    finishes = [Move("finish", {"rollout": r, "tokens": 1, "reward": 1.0}) for r in backend.flights]
    aborts = [Move("come_back", {"rollout": rollout}) for rollout in backend.aborting]
    rewards = [Move("reward", {"rollout": rollout, "value": 1.0}) for rollout in backend.rewards]
    loads = [Move("loaded", {"replica": replica, "silent": True}) for replica in backend.loads]
    answers = [Move(answer.__name__, {}) for queue, answer in backend.queues() if queue]
    return [*finishes, *aborts, *rewards, *loads, *answers]
