"""Contracts of RolloutEngine: generate, abort, load."""

from functools import partial

from interfaces import actions
from interfaces.actions import ABORTS, KEEPS, InFlight
from interfaces.backend import Capabilities
from interfaces.conformance.contracts import (
    add_contract,
    busy,
    contract,
    fill,
    load,
    new_version,
    only,
    versions,
)
from interfaces.conformance.dialogue import Dialogue

BUDGET = 2
PATIENCE = 5
UNKNOWN = 10**6
"""A rollout that never was."""
LOADS = (*sorted(KEEPS, key=str), *sorted(ABORTS, key=str))


@contract("every rollout ends once, on its replica, under the version that is loaded there")
def rollout_finishes(talk: Dialogue) -> None:
    """Two rollouts on every replica."""
    rollouts = [talk.generate(replica) for replica in talk.backend.replicas for _ in range(2)]
    talk.settle()
    for rollout in rollouts:
        only(talk, rollout, 0, "nothing was loaded")


@contract("an abort is answered once and soon, or by the finish that came first", lambda c: c.abort)
def abort_is_answered(talk: Dialogue) -> None:
    """Abort right after the start, in the middle, twice, and what is unknown."""
    place = talk.backend.replicas[0]
    early = talk.generate(place)
    talk.ask(actions.Abort(early, place))
    in_the_middle = busy(talk)
    for rollout in in_the_middle:
        talk.ask(actions.Abort(rollout, place))
        talk.ask(actions.Abort(rollout, place))
    talk.ask(actions.Abort(UNKNOWN, place))
    talk.settle()
    if all(rollout in talk.finished for rollout in in_the_middle):
        cause = "the engine: does not abort what runs, or what waits in its queue"
        talk.fail("rollouts aborted in the middle come back", "all of them ran to their end", cause)


@contract("a rollout that was aborted goes on from its tokens, within its original limit", lambda c: c.abort)
def resumed_within_its_limit(talk: Dialogue) -> None:
    """Abort and resume every moment until it ends: forgotten tokens would add up."""
    place = talk.backend.replicas[0]
    rollout = busy(talk, 1)[0]
    member = talk.books.members[rollout]
    idle = made = 0
    while rollout not in talk.finished and idle < PATIENCE:
        talk.ask(actions.Abort(rollout, place))
        talk.until(lambda: not talk.flying, "RolloutAborted")
        if rollout in talk.finished:
            break
        idle, made = (0 if member.tokens > made else idle + 1), member.tokens
        talk.again(rollout, place, resume=True)
        talk.moment()
    if idle == PATIENCE:
        seen = f"rollout {rollout} has {made} tokens still after {PATIENCE} moments"
        talk.fail("a resumed rollout makes tokens", seen, "the engine: loses what it made when it is aborted")
    talk.settle()


@contract("a rollout with a token budget comes back when that is used up", lambda c: c.token_budgets)
def token_budget_is_kept(talk: Dialogue) -> None:
    """A few tokens at a time, then to the end."""
    place = talk.backend.replicas[0]
    rollout = talk.generate(place, budget=BUDGET)
    talk.until(lambda: not talk.flying, "the rollout comes back")
    member = talk.books.members[rollout]
    if member.state == "waiting" and member.tokens != BUDGET:
        talk.fail(f"it comes back with {BUDGET} tokens", f"{member.tokens}", "the engine: stops too early")
    if member.state == "waiting":
        talk.again(rollout, place, resume=True)
    talk.settle()


@contract("an idle replica loads, and what it starts then has the new version alone")
def idle_load(talk: Dialogue) -> None:
    """No work in flight."""
    version = new_version(talk)
    load(talk, version, None)
    rollout = talk.generate(talk.backend.replicas[0])
    talk.settle()
    only(talk, rollout, version, "it started after the load")


def _busy_load(fate: InFlight, talk: Dialogue) -> None:
    version = new_version(talk)
    flying = busy(talk)
    load(talk, version, fate)
    after = talk.generate(talk.backend.replicas[0])
    kept = [rollout for rollout in flying if rollout not in talk.finished]
    if fate in ABORTS:
        for rollout in kept:
            if fate is not InFlight.ABORT_DROP:
                talk.again(rollout, talk.backend.replicas[0], resume=fate is InFlight.ABORT_RESUME)
    talk.settle()
    only(talk, after, version, "it started after the load")
    if fate is InFlight.ABORT_RESTART:
        for rollout in kept:
            only(talk, rollout, version, "it began again after the load")
    elif fate in KEEPS:
        _went_on(talk, kept)


def _went_on(talk: Dialogue, kept: list[int]) -> None:
    """Rollouts that outlived a load have tokens of both versions."""
    for rollout in kept:
        if versions(talk, rollout) != [0, 1]:
            seen = f"versions {versions(talk, rollout)}"
            cause = "the engine: stamps the version of the end (or start) on every token"
            talk.fail(
                f"tokens of rollout {rollout} before the load are of version 0, those after of 1", seen, cause
            )


def _declares(fate: InFlight, capabilities: Capabilities) -> bool:
    return fate in capabilities.in_flight


for _fate in LOADS:
    _what = "stays and goes on under the new version" if _fate in KEEPS else "comes back before WeightsLoaded"
    add_contract(
        f"load_{_fate.value}",
        f"at a load with {_fate.value} every rollout in flight {_what}",
        partial(_busy_load, _fate),
        partial(_declares, _fate),
    )


@contract(
    "a load treats the rollouts it lists as exceptions otherwise than the rest",
    lambda c: InFlight.ABORT_RESUME in c.in_flight and bool(KEEPS & c.in_flight),
)
def load_exceptions(talk: Dialogue) -> None:
    """One is kept, the other comes back."""
    keep = min(KEEPS & talk.capabilities.in_flight, key=str)
    version = new_version(talk)
    stays, leaves = busy(talk)
    load(talk, version, keep, exceptions=((leaves, InFlight.ABORT_RESUME),))
    if stays not in talk.flying and stays not in talk.finished:
        talk.fail(f"rollout {stays} stays", "it came back", "the engine: exceptions are taken for the rule")
    if leaves not in talk.finished:
        talk.again(leaves, talk.backend.replicas[0], resume=True)
    talk.settle()


@contract("a load on one replica changes no other", lambda c: c.several_replicas)
def load_is_per_replica(talk: Dialogue) -> None:
    """The second replica goes on with the old version."""
    if len(talk.backend.replicas) < 2:
        talk.fail(
            "two replicas, as declared", f"{talk.backend.replicas}", "the set-up: start more, or declare less"
        )
    version = new_version(talk)
    bystander = busy(talk, 1, replica=1)[0]
    load(talk, version, None)
    old = talk.generate(talk.backend.replicas[1])
    new = talk.generate(talk.backend.replicas[0])
    talk.settle()
    only(talk, bystander, 0, "its replica loaded nothing")
    only(talk, old, 0, "its replica loaded nothing")
    only(talk, new, version, "its replica loaded it")


@contract(
    "a replica that died says so, and comes back with a version that was published",
    lambda c: c.recovers_replicas,
)
def replica_recovers(talk: Dialogue) -> None:
    """Kill it with work on it; afterwards it works again."""
    place = talk.backend.replicas[0]
    busy(talk)
    talk.break_replica(place)
    talk.until(lambda: not talk.books.replicas[place].alive, f"ReplicaDown of replica {place}")
    talk.until(lambda: talk.books.replicas[place].alive, f"ReplicaUp of replica {place}")
    fill(talk, 1)
    talk.settle()
