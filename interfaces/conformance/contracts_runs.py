"""Contracts of whole runs: the real core above the backend, with every law of the monitor."""

import multiprocessing
import threading
from functools import partial

from interfaces import actions, events
from interfaces.actions import Action
from interfaces.backend import Capabilities, refuse_unless_able
from interfaces.conformance.contracts import add_contract, busy, contract
from interfaces.conformance.dialogue import Dialogue, Line
from interfaces.conformance.invariants import Monitor
from interfaces.conformance.violation import InvariantViolation
from interfaces.events import Event
from interfaces.loop import TrainingLoop
from interfaces.policies.dispatch import TokenBudget
from interfaces.policies.protocols import Policy
from interfaces.policies.registry import build_policy, presets
from interfaces.policies.streaming import Streaming
from interfaces.view import LoopConfig

STOPPED_AFTER = 9
"""Events of a run before it is stopped."""


class Run:
    """A core that drives a fresh backend to the end of a run."""

    def __init__(self, talk: Dialogue, policy: Policy, config: LoopConfig) -> None:
        self._talk = talk
        self.monitor = Monitor(TrainingLoop(policy, config))
        self._running: set[int] = set()
        talk.lines.clear()
        talk.note(f"a run of policy {policy.name!r}")

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self.monitor.loop.ended is not None

    def feed(self, event: Event) -> None:
        """Give the core an event, carry out its answer."""
        talk = self._talk
        talk.now = max(talk.now, event.at)
        talk.lines.append(Line(event.at, event))
        try:
            answer = self.monitor.feed(event)
        except InvariantViolation as violation:
            expected = f"law {violation.number} ({violation.name}): {violation.expected}"
            talk.fail(expected, violation.seen, violation.likely_cause)
        for action in answer:
            if not isinstance(action, actions.AdmissionBlocked | actions.EndRun):
                talk.lines.append(Line(talk.now, action))
                carry_out(talk, action)

    def go_on(self, events_at_most: int | None = None) -> None:
        """To the end, or so many events further."""
        heard = 0
        while not self.ended and heard != events_at_most:
            event = self._talk.backend.wait(self._talk.timeout_s)
            if event is None:
                seen = (
                    f"nothing in {self._talk.timeout_s:g} s; {self.monitor.books.outstanding} answers are due"
                )
                self._talk.fail(
                    "the run goes on to its end", seen, "the backend forgot what it was asked for"
                )
            self.feed(event)
            heard += 1


def carry_out(talk: Dialogue, action: Action) -> None:
    """Pass an action on without the dialogue's own books: the monitor keeps them."""
    backend = talk.backend
    match action:
        case actions.Generate():
            backend.engine.generate(action)
        case actions.Abort():
            backend.engine.abort(action)
        case actions.LoadWeights():
            backend.engine.load(action)
        case actions.Publish():
            backend.weights.publish(action)
        case actions.Train():
            backend.trainer.train(action)
        case actions.Checkpoint():
            backend.trainer.checkpoint(action)
        case actions.Evaluate():
            backend.trainer.evaluate(action)
        case actions.SwitchRole():
            backend.trainer.switch(action)
        case actions.Discard() | actions.Dismiss():
            backend.buffer.discard(action.rollouts, action.running)
        case _:
            pass


# ---- the contracts ------------------------------------------------------------------------------------

ALWAYS = ("sync", "areal")
"""Policies of whole runs where these are slow."""


def _needs(policy: Policy) -> Capabilities:
    """What a backend must be capable of to carry this policy."""
    return Capabilities(
        in_flight=policy.in_flight,
        colocated=policy.capacity.colocated,
        streaming=isinstance(policy.buffering, Streaming),
        token_masks=policy.guarantees.per_token,
        token_budgets=isinstance(policy.dispatch, TokenBudget),
        last_segment_masks=policy.guarantees.last_segment,
        moves_keep_kv=policy.moves_keep_kv,
        engine_load=policy.reads_engine_load,
    )


def _able(needs: Capabilities, has: Capabilities, *, slow_too: bool) -> bool:
    flags = (
        "colocated", "streaming", "token_masks", "token_budgets", "last_segment_masks", "moves_keep_kv",
        "engine_load",
    )  # fmt: skip
    able = all(getattr(has, flag) for flag in flags if getattr(needs, flag))
    return able and needs.in_flight <= has.in_flight and (slow_too or has.quick_runs)


def _whole_run(name: str, talk: Dialogue) -> None:
    config = talk.backend.config
    policy = build_policy(name, {}, config, "check_backend")
    refuse_unless_able(policy, talk.capabilities, config, "check_backend")
    run = Run(talk, policy, config)
    run.feed(events.RunStarted(0.0, talk.backend.replicas, 0))
    run.go_on()


for _name in presets():
    _policy = build_policy(_name, {}, LoopConfig(4, 2, 4), "check_backend")
    add_contract(
        f"run_{_name}",
        f"a whole run under {_name!r} keeps every law",
        partial(_whole_run, _name),
        partial(_able, _needs(_policy), slow_too=_name in ALWAYS),
    )


@contract("a run that is stopped ends: everything under way is answered", lambda c: c.abort)
def stop_ends_the_run(talk: Dialogue) -> None:
    """Ctrl-C after a few events."""
    config = talk.backend.config
    run = Run(talk, build_policy("areal", {}, config, "check_backend"), config)
    run.feed(events.RunStarted(0.0, talk.backend.replicas, 0))
    run.go_on(STOPPED_AFTER)
    if not run.ended:
        run.feed(events.StopRequested(talk.now))
        run.go_on()


@contract("close stops what is under way and leaves no thread or process; closing twice is once")
def close_leaves_nothing(talk: Dialogue) -> None:
    """Close with work in flight."""
    busy(talk)
    talk.backend.close()
    talk.backend.close()
    left = [thread.name for thread in threading.enumerate() if thread.ident not in talk.threads_before]
    children = [
        child.name for child in multiprocessing.active_children() if child.pid not in talk.children_before
    ]
    if left or children:
        talk.fail(
            "nothing is left", f"threads {left}, processes {children}", "the backend: close() does not wait"
        )
