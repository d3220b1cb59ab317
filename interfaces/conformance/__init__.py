"""Property tests of scheduling policies, traces and backends, for users.

`check_policy` and the strategies need Hypothesis (`pip install areal-testbed[conformance]`); `Monitor` and
`check_trace` need nothing beyond this package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from interfaces.conformance.invariants import Monitor
from interfaces.conformance.violation import LAWS, InvariantViolation

if TYPE_CHECKING:
    from interfaces.conformance.backend_check import BackendCheck, backend_checks, check_backend
    from interfaces.conformance.check import PROFILES, PolicyCheck, check_policy, policy_checks
    from interfaces.conformance.dialogue import BackendViolation
    from interfaces.conformance.trace_check import TraceSummary, check_trace

_LATE = {
    "BackendCheck": "backend_check",
    "BackendViolation": "dialogue",
    "PROFILES": "check",
    "TraceSummary": "trace_check",
    "PolicyCheck": "check",
    "backend_checks": "backend_check",
    "check_backend": "backend_check",
    "check_policy": "check",
    "check_trace": "trace_check",
    "policy_checks": "check",
}

__all__ = [
    "LAWS",
    "PROFILES",
    "BackendCheck",
    "BackendViolation",
    "InvariantViolation",
    "Monitor",
    "PolicyCheck",
    "TraceSummary",
    "backend_checks",
    "check_backend",
    "check_policy",
    "check_trace",
    "policy_checks",
]


def __getattr__(name: str) -> Any:
    """Import what needs Hypothesis only when it is used."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
