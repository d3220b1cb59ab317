"""Pytest plug-in: the marker `conformance` and the option `--conformance-profile`."""

import os

import pytest

ENVIRONMENT = "AREAL_CONFORMANCE_PROFILE"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("areal-testbed").addoption(
        "--conformance-profile",
        choices=("dev", "ci", "nightly"),
        default=None,
        help="how hard check_policy and policy_checks look (default: $AREAL_CONFORMANCE_PROFILE, else dev)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker; hand the profile to the checks (and to worker processes) by the environment."""
    config.addinivalue_line("markers", "conformance: property tests of a scheduling policy or a backend")
    profile = config.getoption("--conformance-profile")
    if profile:
        os.environ[ENVIRONMENT] = profile
