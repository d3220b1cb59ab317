"""One engine for all tests that need a real one."""

import warnings
from collections.abc import Iterator

import pytest
from engine_kit import Bench

from areal_real.engine.replica import VllmReplica


def pytest_configure(config: pytest.Config) -> None:
    """VLLM 0.32 leaves its ZMQ contexts to the garbage collector, which may come after the last test."""
    config.addinivalue_line("filterwarnings", "ignore:Unclosed context <zmq.Context:ResourceWarning")
    warnings.filterwarnings("ignore", "Unclosed context <zmq.Context", ResourceWarning)


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A place to run replicas in."""
    made = Bench(tmp_path_factory.mktemp("bench"))
    yield made
    made.runner.close()


@pytest.fixture(scope="session")
def shared_replica(bench: Bench) -> Iterator[VllmReplica]:
    """Serves until the end of the session; what version it is at depends on the tests before."""
    made = bench.replica()
    bench.run(made.start(0))
    yield made
    bench.run(made.stop())


@pytest.fixture
def replica(bench: Bench, shared_replica: VllmReplica) -> Iterator[VllmReplica]:
    """The shared engine, idle, under a version that no test before has seen; nothing may be left behind."""
    version = bench.next_version()
    bench.run(bench.load(shared_replica, version, None))
    yield shared_replica
    assert not bench.errors
    assert not shared_replica.busy
