"""The driver under every order of events that a seeded event loop brings about, with all laws watched."""

import pytest
from fake_components import CONFIG, FakeBuffer, FakeRun, fake_run
from seeded_loop import LoopClock, run_seeded

from areal_real.driver import Components, Driver
from interfaces import errors, events
from interfaces.loop import TrainingLoop
from interfaces.policies.registry import build_policy

POLICIES = [
    {"name": "areal", "max_staleness": 1},
    {"name": "areal", "max_staleness": 2, "interruptible": False},
    {"name": "areal_strict", "max_staleness": 1, "straggler": "drop"},
    {"name": "areal_strict", "max_staleness": 1, "straggler": "requeue"},
    {"name": "sync"},
    {"name": "one_step_off"},
    {"name": "sync_colocated"},
    {"name": "pipeline_rl"},
    {"name": "slime_partial"},
    {"name": "kimi_partial"},
    {"name": "laminar"},
    {"name": "roll_flash"},
]
each_policy = pytest.mark.parametrize(
    "policy", POLICIES, ids=lambda policy: "-".join(map(str, policy.values()))
)


@each_policy
def test_runs_end_with_every_law_kept(policy: dict[str, object]) -> None:
    for seed in range(12):
        run: FakeRun = run_seeded(seed, fake_run(seed, policy))
        assert run.ended == "steps", f"seed {seed}"
        assert run.loop.view.steps_finished == CONFIG.steps


@each_policy
def test_a_stop_at_any_moment_ends_the_run_and_leaves_nothing(policy: dict[str, object]) -> None:
    for seed in range(24):
        run: FakeRun = run_seeded(seed, fake_run(seed, policy, stop_at=seed * 0.037))
        assert run.ended in ("stopped", "steps"), f"seed {seed}"
        assert not run.loop.view.running_rollouts


@each_policy
def test_killed_at_any_moment_and_resumed_each_prompt_trains_once(policy: dict[str, object]) -> None:
    for seed in range(16):
        buffer: FakeBuffer | None = None
        for part in range(4):
            kill_at = None if part == 3 else 0.1 + 0.13 * ((seed * 7 + part * 5) % 11)
            run: FakeRun = run_seeded(
                seed * 10 + part, fake_run(seed * 10 + part, policy, kill_at=kill_at, resume=buffer)
            )
            if run.buffer.committed is not None:
                buffer = run.buffer
            if run.ended is not None:
                break
        assert run.ended == "steps", f"seed {seed}"
        trained = run.loop.ledger.trained_prompts
        assert trained is not None
        assert set(trained.values()) == {1}
        assert trained.total() == run.loop.view.trained_groups >= CONFIG.steps
        assert run.loop.view.version == CONFIG.steps


def test_the_same_seed_is_the_same_schedule() -> None:
    def times(seed: int) -> list[tuple[int, ...]]:
        run: FakeRun = run_seeded(seed, fake_run(seed, POLICIES[0]))
        return [train.rollouts for train in run.worker.trained]

    assert times(3) == times(3)
    assert any(times(3) != times(seed) for seed in range(4, 8))


def test_silence_is_a_stall_that_names_what_is_missing() -> None:
    async def silent() -> None:
        loop = TrainingLoop(build_policy("areal", {}, CONFIG, "test"), CONFIG)
        driver = Driver(loop, LoopClock(), deadline_s=7.0, where="quiet.toml")
        deaf = Mute()
        await driver.run(Components({0: deaf}, deaf, deaf, FakeBuffer(), deaf))

    with pytest.raises(
        errors.StallError, match=r"quiet\.toml: .*nothing was reported for 7 s .*2 groups, 0 are ready"
    ):
        run_seeded(0, silent())


class Mute:
    """Takes every order and never answers."""

    def blame(self, cause: str) -> None:
        pass

    def generate(self, action: object) -> None:
        pass

    abort = load = train = publish = checkpoint = evaluate = switch = score = generate


def test_a_component_that_fails_ends_the_run_with_its_error() -> None:
    class Broken(errors.TestbedError):
        pass

    async def broken() -> None:
        loop = TrainingLoop(build_policy("areal", {}, CONFIG, "test"), CONFIG)
        driver = Driver(loop, LoopClock(), deadline_s=7.0, where="test")
        deaf = Mute()
        driver.fail(Broken("the trainer died"))
        driver.fail(Broken("and so did the rest"))
        await driver.run(Components({0: deaf}, deaf, deaf, FakeBuffer(), deaf))

    with pytest.raises(Broken, match="the trainer died"):
        run_seeded(0, broken())


def test_nothing_is_given_to_a_replica_whose_death_is_still_to_be_fed() -> None:
    async def race() -> list[object]:
        loop = TrainingLoop(build_policy("areal", {}, CONFIG, "test"), CONFIG)
        driver = Driver(loop, LoopClock(), deadline_s=7.0, where="test")
        given: list[object] = []

        class Counting(Mute):
            def generate(self, action: object) -> None:
                given.append(action)

        engine, deaf = Counting(), Mute()
        driver.report(events.ReplicaDown(0.0, 0, "before anything was asked of it"))
        with pytest.raises(errors.StallError, match="no replica is alive"):
            await driver.run(Components({0: engine}, deaf, deaf, FakeBuffer(), deaf))
        return given

    assert run_seeded(0, race()) == []
