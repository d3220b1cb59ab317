"""What must not change: names of replicas, and a run that is split at a checkpoint."""

from collections import Counter

import pytest

from interfaces.conformance.invariants import Monitor
from interfaces.conformance.timed import Durations, Timed
from interfaces.loop import TrainingLoop
from interfaces.policies.registry import build_policy
from interfaces.view import LoopConfig

NAMES = {0: 17, 1: 4, 2: 9}
UNEVEN = Durations(tokens=lambda prompt, member: 1 + (prompt * 7 + member * 3) % 11, train_s=3.0, load_s=0.5)


def backend(name, **changes):
    config = LoopConfig(2, 2, 8, **changes)
    return Timed(Monitor(TrainingLoop(build_policy(name, {}, config, "test"), config)), 3, UNEVEN)


def renamed(item):
    if hasattr(item, "replicas"):
        return item._replace(replicas=tuple(NAMES[replica] for replica in item.replicas))
    return item._replace(replica=NAMES[item.replica]) if hasattr(item, "replica") else item


@pytest.mark.parametrize("name", ["sync", "one_step_off", "areal", "areal_strict"])
def test_permuting_replica_names_changes_nothing(name):
    run = backend(name)
    run.run()
    loop = run.monitor.loop
    again = TrainingLoop(loop.policy, loop.view.config)
    for step in run.monitor.history:
        assert again.feed(renamed(step.event)) == [renamed(action) for action in step.answer]


@pytest.mark.parametrize("name", ["sync", "one_step_off", "areal", "areal_strict"])
@pytest.mark.parametrize("at", [1, 3])
def test_splitting_a_run_at_a_checkpoint_trains_the_same_prompts(name, at):
    def trained(split):
        run = backend(name, dataset_size=16)
        run.monitor.loop.ledger.trained_prompts = Counter()
        if split:
            run.run(until=lambda: run.monitor.loop.view.version >= split)
            run.kill(None)
        while not run.ended:
            run.run()
        return run.monitor.loop.ledger.trained_prompts

    assert trained(at) == trained(None) == Counter(range(16))
