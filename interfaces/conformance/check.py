"""`check_policy`: does a scheduling policy keep its promises under every order of events?"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from interfaces.conformance.laws import directed_checks
from interfaces.conformance.machine import LoadTellingMachine, PolicyMachine
from interfaces.conformance.shrink import Shrinker, size
from interfaces.conformance.story import snippet
from interfaces.conformance.target import Buildable, Target, target_of
from interfaces.conformance.violation import LAWS, NAMES, InvariantViolation
from interfaces.loop import TrainingLoop
from interfaces.view import LoopConfig


class Profile(NamedTuple):
    """How hard to look."""

    runs: int
    """Runs that are tried."""
    moves: int
    """Most adversarial moves in one."""


PROFILES: dict[str, Profile] = {
    "dev": Profile(150, 40),
    "ci": Profile(1000, 50),
    "nightly": Profile(5000, 80),
}
SHORT = 9
"""Moves of the runs that are tried first."""
LONG = 12
"""Events of a story that is worth a second search."""
ENVIRONMENT = "AREAL_CONFORMANCE_PROFILE"


def default_profile() -> str:
    """The profile named by the environment, else "dev"."""
    return os.environ.get(ENVIRONMENT, "dev")


def check_policy(
    policy: Buildable, *, profile: str | None = None, loop_class: type[TrainingLoop] = TrainingLoop
) -> None:
    """Look for an order of events under which a policy breaks a law or its own guarantees.

    Args:
        policy: a registry name, `module:object`, a preset, a `Policy`, or a function of `LoopConfig`.
        profile: "dev" (seconds), "ci" or "nightly"; default: `$AREAL_CONFORMANCE_PROFILE`, else "dev".
        loop_class: the core to drive, for those who change it.

    Raises:
        InvariantViolation: the shortest story found.
    """
    target = target_of(policy)
    violation = explore(target, profile or default_profile(), frozenset(), loop_class)
    if violation is not None:
        raise violation
    for _, check in directed_checks(target, loop_class):
        check()


def explore(
    target: Target,
    profile: str,
    ignore: frozenset[int],
    loop_class: type[TrainingLoop] = TrainingLoop,
    *,
    shrink: bool = True,
) -> InvariantViolation | None:
    """Search with Hypothesis; the (shrunk) violation, or None. Deterministic for a policy and profile."""
    runs, moves = PROFILES[profile]
    for share, length in ((2, SHORT), (1, moves)):  # a fault that shows early makes a short story
        look = partial(_search, target, ignore, loop_class, runs // share, length)
        violation = look(shrink=False)
        if violation is not None:
            if shrink and violation.origin is not None:
                violation = _shortest(violation, look, partial(Shrinker, target, ignore, loop_class))
            return _cleaned(violation, target, loop_class, ignore)
    return None


def _shortest(
    violation: InvariantViolation,
    look: Callable[..., InvariantViolation | None],
    shrinker: Callable[..., Shrinker],
) -> InvariantViolation:
    """Shortened by moves; a stubborn one is found again, first shortened by Hypothesis."""
    best = shrinker(violation).run()
    if len(best.history) > LONG:
        other = look(shrink=True)
        if other is not None and other.number == best.number and other.origin is not None:
            best = min(best, shrinker(other).run(), key=size)
    return best


def _search(
    target: Target,
    ignore: frozenset[int],
    loop_class: type[TrainingLoop],
    runs: int,
    moves: int,
    *,
    shrink: bool,
) -> InvariantViolation | None:
    """One search with runs of so many moves at most."""
    attributes = {"target": target, "ignore": ignore, "loop_class": loop_class}
    policy = target.policy(LoopConfig(target.fixed_batch or 1, group_size=1, steps=1))
    base = LoadTellingMachine if policy.reads_engine_load else PolicyMachine
    machine = type("Run", (base,), attributes)
    config = settings(
        max_examples=runs,
        stateful_step_count=moves,
        derandomize=True,
        database=None,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(machine, settings=config)
    except InvariantViolation as violation:
        return violation
    except Flaky:
        return InvariantViolation(
            7, "the same answer to the same events", "a run that failed once did not fail again",
            "the policy keeps state, or uses chance or a clock",
        )  # fmt: skip
    return None


def _cleaned(
    violation: InvariantViolation, target: Target, loop_class: type[TrainingLoop], ignore: frozenset[int]
) -> InvariantViolation:
    """Without Hypothesis's own notes; with the snippet."""
    violation.__notes__ = []
    violation.__traceback__ = None
    if violation.config is not None and not violation.excerpt:
        violation.snippet = snippet(violation, target, violation.config, loop_class, ignore)
    return violation


class Findings:
    """Every law that a policy breaks, found once and shared by the named checks."""

    def __init__(self, target: Target, profile: str, loop_class: type[TrainingLoop] = TrainingLoop) -> None:
        self._target, self._profile, self._loop_class = target, profile, loop_class

    @cached_property
    def broken(self) -> dict[str, InvariantViolation]:
        """Violations by the name of the law: after one is found the search goes on without that law."""
        found: dict[int, InvariantViolation] = {}
        while True:
            violation = explore(self._target, self._profile, frozenset(found), self._loop_class)
            if violation is None or violation.number in found:
                break
            found[violation.number] = violation
        for _, check in directed_checks(self._target, self._loop_class):
            try:
                check()
            except InvariantViolation as violation:
                found.setdefault(violation.number, violation)
        return {LAWS[number].name: violation for number, violation in sorted(found.items())}


@dataclass(frozen=True)
class PolicyCheck:
    """One law, checked for one policy: call it. Its name is the pytest id."""

    name: str
    policy: str
    findings: Findings
    expected_failure: str | None = None
    """Why this check is known to fail; if it passes, that is an error (strict)."""

    def __str__(self) -> str:
        return self.name

    def __call__(self) -> None:
        """Run the check.

        Raises:
            InvariantViolation: the law is broken.
            AssertionError: an expected failure passed.
        """
        violation = self.findings.broken.get(self.name)
        if self.expected_failure is None:
            if violation is not None:
                raise violation
        elif violation is None:
            raise AssertionError(
                f"check {self.name!r} of {self.policy} was expected to fail ({self.expected_failure}) "
                f"and passed: remove it from expected_failures"
            )


def policy_checks(
    policy: Buildable,
    *,
    expected_failures: Mapping[str, str] | None = None,
    profile: str | None = None,
    loop_class: type[TrainingLoop] = TrainingLoop,
) -> list[PolicyCheck]:
    """Named callables, one a law: give them to `pytest.mark.parametrize("check", ..., ids=str)`.

    Args:
        policy: as in `check_policy`.
        expected_failures: law name -> reason; such a check passes only while the law is broken.
        profile: as in `check_policy`.
        loop_class: as in `check_policy`.

    Raises:
        ValueError: an expected failure names no check.
    """
    expected = dict(expected_failures or {})
    unknown = sorted(set(expected) - set(NAMES))
    if unknown:
        raise ValueError(
            f"expected_failures names no check: {', '.join(unknown)}; there are {', '.join(NAMES)}"
        )
    target = target_of(policy)
    findings = Findings(target, profile or default_profile(), loop_class)
    return [PolicyCheck(name, target.name, findings, expected.get(name)) for name in NAMES]
