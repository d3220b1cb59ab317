"""`check_backend`: does a backend, simulated or real, keep the contracts that the core relies on?"""

import multiprocessing
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import interfaces.conformance.contracts_engine
import interfaces.conformance.contracts_runs
import interfaces.conformance.contracts_training  # noqa: F401 (all three register themselves)
from interfaces.backend import Backend, Capabilities
from interfaces.conformance.contracts import CONTRACTS, Contract
from interfaces.conformance.dialogue import BackendViolation, Dialogue
from interfaces.errors import ScenarioError

Factory = Callable[[], Backend]
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class BackendCheck:
    """One contract, checked on a fresh backend: call it. Its name is the pytest id."""

    contract: Contract
    factory: Factory
    capabilities: Capabilities
    timeout_s: float = TIMEOUT_S
    expected_failure: str | None = None
    """Why this check is known to fail; if it passes, that is an error (strict)."""

    @property
    def name(self) -> str:
        """Name of the contract."""
        return self.contract.name

    def __str__(self) -> str:
        return self.name

    def __call__(self) -> None:
        """Run the check.

        Raises:
            BackendViolation: the contract is broken.
            AssertionError: an expected failure passed.
        """
        try:
            self._talk()
        except BackendViolation as violation:
            violation.name, violation.sentence = self.contract.name, self.contract.sentence
            if self.expected_failure is None:
                raise
        else:
            if self.expected_failure is not None:
                raise AssertionError(
                    f"contract {self.name!r} was expected to be broken ({self.expected_failure}) and holds: "
                    f"remove it from expected_failures"
                )

    def _talk(self) -> None:
        threads = frozenset(thread.ident for thread in threading.enumerate())
        children = frozenset(child.pid for child in multiprocessing.active_children())
        backend = self.factory()
        try:
            talk = Dialogue(backend, self.capabilities, self.timeout_s)
            talk.threads_before, talk.children_before = threads, children
            try:
                self.contract.check(talk)
            except (BackendViolation, ScenarioError):
                raise
            except Exception as error:
                talk.crashed(error)
        finally:
            backend.close()


def check_backend(factory: Factory, capabilities: Capabilities, *, timeout_s: float = TIMEOUT_S) -> list[str]:
    """Hold a backend to every contract that its capabilities name, each on a fresh one.

    Args:
        factory: gives a `Backend`, ready and idle; called once a contract. It may hand out one engine
            again and again, if nothing of an earlier use is left in it.
        capabilities: what the backend can do; contracts beyond them are skipped, by nothing else.
        timeout_s: longest wait for an answer, on the backend's clock.

    Returns:
        Names of the contracts that hold.

    Raises:
        BackendViolation: with all that was asked and reported.
    """
    checks = backend_checks(factory, capabilities, timeout_s=timeout_s)
    for check in checks:
        check()
    return [check.name for check in checks]


def backend_checks(
    factory: Factory,
    capabilities: Capabilities,
    *,
    timeout_s: float = TIMEOUT_S,
    expected_failures: Mapping[str, str] | None = None,
) -> list[BackendCheck]:
    """Named callables, one a contract: give them to `pytest.mark.parametrize("check", ..., ids=str)`.

    Args:
        factory: as in `check_backend`.
        capabilities: as in `check_backend`.
        timeout_s: as in `check_backend`.
        expected_failures: contract name -> reason; such a check passes only while the contract is broken.

    Raises:
        ValueError: an expected failure names no contract.
    """
    expected = dict(expected_failures or {})
    unknown = sorted(set(expected) - set(CONTRACTS))
    if unknown:
        raise ValueError(f"expected_failures names no contract: {', '.join(unknown)}")
    return [
        BackendCheck(contract, factory, capabilities, timeout_s, expected.get(name))
        for name, contract in CONTRACTS.items()
        if contract.able(capabilities)
    ]
