"""The contracts of a backend by name, and what several of them do alike."""

from collections.abc import Callable
from typing import NamedTuple

from interfaces import actions
from interfaces.actions import InFlight
from interfaces.backend import Capabilities
from interfaces.conformance.dialogue import Dialogue
from interfaces.rollout import PolicyVersion

Able = Callable[[Capabilities], bool]


class Contract(NamedTuple):
    """One thing that a backend promises."""

    name: str
    sentence: str
    check: Callable[[Dialogue], None]
    able: Able
    """Whether a backend with these capabilities promises it."""


CONTRACTS: dict[str, Contract] = {}


def contract(
    sentence: str, able: Able = lambda _: True
) -> Callable[[Callable[[Dialogue], None]], Callable[[Dialogue], None]]:
    """Register a check under the name of its function."""

    def add(check: Callable[[Dialogue], None]) -> Callable[[Dialogue], None]:
        add_contract(check.__name__, sentence, check, able)
        return check

    return add


def add_contract(name: str, sentence: str, check: Callable[[Dialogue], None], able: Able) -> None:
    """Register a check."""
    CONTRACTS[name] = Contract(name, sentence, check, able)


# ---- what several checks do ---------------------------------------------------------------------------


def fill(talk: Dialogue, groups: int, replica: int = 0) -> list[list[int]]:
    """Generate so many whole groups on one replica, to the end, with rewards; their rollouts by group."""
    config, place = talk.backend.config, talk.backend.replicas[replica]
    batch = []
    for _ in range(groups):
        first = talk.generate(place)
        prompt = talk.books.members[first].group.prompt
        rest = [talk.generate(place, prompt=prompt, member=m) for m in range(1, config.group_size)]
        batch.append([first, *rest])
    talk.until(lambda: not talk.flying and not talk.books.rewarding, "rollouts finish and are rewarded")
    return batch


def train(
    talk: Dialogue, batch: list[list[int]], *, last: bool = True, mask_below: PolicyVersion | None = None
) -> None:
    """Ask for a training on these groups, and wait for its end."""
    books = talk.books
    step = books.steps_started - books.step_open
    groups = tuple(talk.finished[group[0]].group.prompt for group in batch)
    rollouts = tuple(rollout for group in batch for rollout in group)
    talk.ask(actions.Train(step, books.version, groups, rollouts, mask_below, last))
    talk.until(lambda: not books.states["training"], "TrainingFinished")


def publish(talk: Dialogue) -> PolicyVersion:
    """Publish the newest version, and wait until it is out."""
    talk.ask(actions.Publish(talk.books.version))
    talk.until(lambda: talk.books.publishing is None, "WeightsPublished")
    return talk.books.version


def new_version(talk: Dialogue) -> PolicyVersion:
    """Generate, train, publish."""
    train(talk, fill(talk, talk.backend.config.batch_size))
    return publish(talk)


def busy(talk: Dialogue, rollouts: int = 2, replica: int = 0) -> list[int]:
    """Start rollouts on a replica and let a moment pass; all are still there, with tokens or without."""
    started = [talk.generate(talk.backend.replicas[replica]) for _ in range(rollouts)]
    talk.moment()
    if not set(started) <= set(talk.flying):
        talk.fail(
            f"rollouts still run after a moment of {talk.backend.moment_s:g} s",
            f"of {started} only {sorted(set(started) & set(talk.flying))} do",
            "the set-up: make responses longer or `moment_s` shorter",
        )
    return started


def load(
    talk: Dialogue,
    version: PolicyVersion,
    fate: InFlight | None,
    replica: int = 0,
    exceptions: tuple[tuple[int, InFlight], ...] = (),
) -> None:
    """Load a version, and wait until it is loaded."""
    place = talk.backend.replicas[replica]
    talk.ask(actions.LoadWeights(place, version, fate, exceptions))
    talk.until(lambda: talk.books.replicas[place].loading is None, f"WeightsLoaded of replica {place}")


def versions(talk: Dialogue, rollout: int) -> list[PolicyVersion]:
    """Versions along a finished rollout."""
    return [version for version, _ in talk.finished[rollout].segments]


def only(talk: Dialogue, rollout: int, version: PolicyVersion, why: str) -> None:
    """A finished rollout has tokens of one version alone."""
    seen = versions(talk, rollout)
    if set(seen) != {version}:
        talk.fail(
            f"rollout {rollout} has version {version} alone: {why}",
            f"versions {seen}",
            "the engine: stamps the wrong version, or serves old weights",
        )
