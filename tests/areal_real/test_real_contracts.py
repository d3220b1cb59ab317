"""The conformance suite for backends, on the real engine and the real trainer."""

from collections.abc import Iterator
from itertools import count

import pytest
from real_parts import CAPABILITIES, RealBackend, Rig

from interfaces.conformance import backend_checks

_numbers = count()
_rigs: list[Rig] = []


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("rig"))
    _rigs.append(made)
    yield made
    _rigs.clear()
    made.close()


def fresh() -> RealBackend:
    """Idle, at version 0."""
    return RealBackend(_rigs[0], next(_numbers))


@pytest.mark.usefixtures("rig")
@pytest.mark.parametrize("check", backend_checks(fresh, CAPABILITIES, timeout_s=60.0), ids=str)
def test_real_backend_keeps(check):
    check()
