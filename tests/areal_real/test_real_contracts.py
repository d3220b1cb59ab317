"""The conformance suite for backends, on the real engine and the real trainer."""

from collections.abc import Iterator
from itertools import count

import pytest
from real_parts import CAPABILITIES, RealBackend, Rig

from interfaces.conformance import backend_checks

_numbers = count()
_rigs: list[Rig] = []


@pytest.fixture(scope="module")
def rigs() -> Iterator[None]:
    yield
    while _rigs:
        _rigs.pop().close()


@pytest.fixture
def rig(rigs: None, tmp_path_factory: pytest.TempPathFactory) -> None:  # noqa: ARG001
    """One rig serves all contracts; after one that left it in disorder the next gets a new one."""
    if _rigs and not _rigs[0].at_rest:
        _rigs.pop().close()
    if not _rigs:
        _rigs.append(Rig(tmp_path_factory.mktemp("rig")))


def fresh() -> RealBackend:
    """Idle, at version 0."""
    return RealBackend(_rigs[0], next(_numbers))


@pytest.mark.usefixtures("rig")
@pytest.mark.parametrize("check", backend_checks(fresh, CAPABILITIES, timeout_s=60.0), ids=str)
def test_real_backend_keeps(check):
    check()
