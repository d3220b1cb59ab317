"""One replica against a reference that steps token by token, and each of its mechanisms alone."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import AMPLE, HandMadeCost

from areal_sim.replica import Replica
from areal_sim.schedule import MECHANICS, call_later
from areal_sim.sequence import Outcome, Sequence
from areal_sim.usage import RolloutUsage
from areal_sim.workload import TurnDraw
from interfaces.actions import InFlight, LoadWeights
from interfaces.events import Event, RolloutAborted, WeightsLoaded
from interfaces.rollout import Segment

STEP = HandMadeCost(base=lambda _: 1.0)
"""One second a decode step, whatever the batch; prefill for nothing."""


@dataclass(frozen=True)
class Job:
    at: float
    tokens: int
    prompt_tokens: int = 0
    prompt: int = -1
    """-1: a prompt of its own."""


@dataclass
class Bench:
    """A replica alone on a clock."""

    cost: HandMadeCost = field(default_factory=lambda: STEP)
    kv: int = AMPLE
    seats: int = 256
    prefix_caching: bool = True
    load_s: float = 0.0

    def __post_init__(self) -> None:
        self.env = simpy.Environment()
        self.usage = RolloutUsage()
        self.usage.counts["idle"] = 1
        self.finished: dict[int, float] = {}
        self.segments: dict[int, tuple[Segment, ...]] = {}
        self.reports: list[Event] = []
        self.replica = Replica(
            self.env, 0, self.cost,
            kv_capacity_tokens=self.kv, max_num_seqs=self.seats, prefix_caching=self.prefix_caching,
            usage=self.usage, load_s=lambda: self.load_s, report=self.reports.append,
            on_finished=self._done, span=None,
        )  # fmt: skip

    def _done(self, _: Replica, sequence: Sequence) -> None:
        assert sequence.rollout not in self.finished, "finished twice"
        self.finished[sequence.rollout] = self.env.now
        self.segments[sequence.rollout] = sequence.segments

    def at(self, when: float, do: Callable[[], Any]) -> None:
        def call(_: object) -> None:
            do()
            self.replica.settle()

        call_later(self.env, when, MECHANICS, call)

    def sequence(self, rollout: int, job: Job, *, done: int = 0) -> Sequence:
        return Sequence(
            rollout, rollout + 1000 if job.prompt < 0 else job.prompt,
            prompt_tokens=job.prompt_tokens, total=job.tokens, done=done, outcome=Outcome(1.0, 0.0, False),
        )  # fmt: skip

    def submit(self, rollout: int, job: Job, *, done: int = 0, turns: TurnDraw | None = None) -> None:
        sequence = self.sequence(rollout, job, done=done)
        if turns is not None:
            sequence.plan_turns(turns)
        self.at(job.at, lambda: self.replica.submit(sequence))

    def load(
        self, when: float, version: int, action: InFlight | None, *exceptions: tuple[int, InFlight]
    ) -> None:
        self.at(when, lambda: self.replica.load(LoadWeights(0, version, action, exceptions)))

    def run(self, jobs: list[Job] | None = None) -> dict[int, float]:
        for number, job in enumerate(jobs or ()):
            self.submit(number, job)
        self.env.run()
        return self.finished


class Reference:
    """The same engine, one decode step after another."""

    def __init__(self, bench: Bench, jobs: list[Job]) -> None:
        self.bench, self.jobs = bench, jobs
        self.now = 0.0
        self.coming = deque(sorted(range(len(jobs)), key=lambda i: (jobs[i].at, i)))
        self.waiting: deque[int] = deque()
        self.running: list[int] = []
        self.done = [0] * len(jobs)
        self.finished: dict[int, float] = {}
        self.preemptions = 0
        self.most_kv = 0

    def prompt(self, i: int) -> int:
        return self.jobs[i].prompt if self.jobs[i].prompt >= 0 else 1000 + i

    def kv(self) -> int:
        """In use: all responses, and every prompt once (or once a sequence)."""
        total = sum(self.done[i] for i in self.running)
        if not self.bench.prefix_caching:
            return total + sum(self.jobs[i].prompt_tokens for i in self.running)
        prompts = {self.prompt(i): self.jobs[i].prompt_tokens for i in self.running}
        return total + sum(prompts.values())

    def join(self) -> bool:
        """Let in what has arrived, in order; whether a prefill let time pass."""
        while self.coming and self.jobs[self.coming[0]].at <= self.now:
            self.waiting.append(self.coming.popleft())
        before = self.now
        while self.waiting and len(self.running) < self.bench.seats:
            i = self.waiting[0]
            cached = self.bench.prefix_caching and self.prompt(i) in {self.prompt(j) for j in self.running}
            needed = self.done[i] + (0 if cached else self.jobs[i].prompt_tokens)
            if self.running and self.kv() + needed + len(self.running) + 1 > self.bench.kv:
                break
            self.running.append(self.waiting.popleft())
            if needed:
                self.now += self.bench.cost.prefill_s(needed, 0.0)
        return self.now > before

    def step(self) -> None:
        context = sum(self.jobs[i].prompt_tokens + self.done[i] for i in self.running)
        cost = self.bench.cost
        self.now += cost.base(len(self.running)) + cost.decode_per_context_token_s * context
        for i in self.running:
            self.done[i] += 1
        self.most_kv = max(self.most_kv, self.kv())
        for i in [i for i in self.running if self.done[i] == self.jobs[i].tokens]:
            self.running.remove(i)
            self.finished[i] = self.now
        while len(self.running) > 1 and self.kv() + len(self.running) > self.bench.kv:
            self.waiting.appendleft(self.running.pop())
            self.preemptions += 1

    def run(self) -> dict[int, float]:
        while self.coming or self.waiting or self.running:
            while self.join():
                pass
            if self.running:
                self.step()
            else:
                self.now = max(self.now, self.jobs[self.coming[0]].at)
        return self.finished


def job_lists(most_tokens: int) -> st.SearchStrategy[list[Job]]:
    """Arrivals at odd fractions of a second, so that none falls exactly on the end of a step."""
    job = st.builds(
        Job,
        at=st.integers(0, 60).map(lambda n: n * 0.7310585 + 0.0137 if n else 0.0),
        tokens=st.integers(1, most_tokens),
        prompt_tokens=st.just(0),
        prompt=st.sampled_from([-1, -1, 0, 1]),
    )
    return st.lists(job, min_size=1, max_size=14)


def with_prompts(jobs: list[Job], own: list[int]) -> list[Job]:
    """Prompt lengths belong to the prompt."""
    return [
        Job(job.at, job.tokens, own[job.prompt if job.prompt >= 0 else 2 + i], job.prompt)
        for i, job in enumerate(jobs)
    ]


@given(
    jobs=job_lists(40),
    prompts=st.lists(st.integers(0, 20), min_size=16, max_size=16),
    seats=st.integers(1, 8),
    room=st.integers(0, 150),
    caching=st.booleans(),
    prefill=st.sampled_from([0.0, 0.0213]),
    per_context=st.sampled_from([0.0, 0.00317]),
)
@settings(max_examples=300, deadline=None)
def test_finish_times_agree_with_a_token_by_token_reference(  # noqa: PLR0917
    jobs: list[Job],
    prompts: list[int],
    seats: int,
    room: int,
    caching: bool,
    prefill: float,
    per_context: float,
) -> None:
    """Batching limit, KV capacity with queueing and preemption, shared prompts, prefill, KV reads."""
    jobs = with_prompts(jobs, prompts)
    cost = HandMadeCost(
        base=lambda n: 0.31 + 0.0131 * n, decode_per_context_token_s=per_context, prefill_token_s=prefill
    )
    longest = max(job.tokens + job.prompt_tokens for job in jobs)
    bench = Bench(cost, kv=longest + room, seats=seats, prefix_caching=caching)
    reference = Reference(bench, jobs)
    expected = reference.run()
    found = bench.run(jobs)
    assert found == pytest.approx(expected, rel=1e-9)
    assert bench.usage.preemptions == reference.preemptions
    assert bench.replica.batch.generated_tokens == sum(job.tokens for job in jobs)
    assert reference.most_kv <= bench.kv


def test_no_more_sequences_run_than_seats() -> None:
    finished = Bench(seats=2).run([Job(0, 10), Job(0, 4), Job(0, 3), Job(0, 8)])
    assert finished == {0: 10.0, 1: 4.0, 2: 7.0, 3: 15.0}


def test_an_arrival_joins_at_the_end_of_the_running_step() -> None:
    finished = Bench().run([Job(0, 10), Job(2.4, 3)])
    assert finished == {0: 10.0, 1: pytest.approx(6.0)}


def test_a_full_cache_preempts_who_joined_last_and_computes_it_again() -> None:
    """10 tokens of KV: both fit until each has 5; then the second waits for the first and starts over."""
    bench = Bench(HandMadeCost(base=lambda _: 1.0, prefill_token_s=0.1), kv=10)
    finished = bench.run([Job(0, 8), Job(0, 8)])
    assert finished[0] == pytest.approx(8.0)
    assert finished[1] == pytest.approx(8.0 + 5 * 0.1 + 3)
    assert bench.usage.preemptions == 1
    assert bench.usage.recomputed_tokens == 5


def test_a_rollout_longer_than_the_cache_does_not_hang_the_simulation() -> None:
    """Lengths without an upper end may exceed any cache: alone on the replica, it runs on."""
    bench = Bench(kv=10)
    for number, job in enumerate([Job(0, 50), Job(0, 3)]):
        bench.submit(number, job)
    for _ in range(1000):
        if bench.env.peek() == float("inf"):
            break
        bench.env.step()
    assert bench.finished.keys() == {0, 1}
    assert bench.finished[0] == pytest.approx(50.0)


@pytest.mark.parametrize(("caching", "prefilled"), [(True, 100), (False, 400)])
def test_a_shared_prompt_is_computed_and_held_once(caching: bool, prefilled: int) -> None:
    bench = Bench(HandMadeCost(base=lambda _: 1.0, prefill_token_s=0.01), prefix_caching=caching)
    finished = bench.run([Job(0, 5, 100, prompt=7) for _ in range(4)])
    assert bench.usage.prefilled_tokens == prefilled
    assert bench.usage.recomputed_tokens == 0
    assert finished == {member: pytest.approx(prefilled * 0.01 + 5) for member in range(4)}


def test_a_shared_prompt_leaves_room_for_more_sequences() -> None:
    """130 tokens of KV hold one prompt of 100 with five responses of 5, but only one without sharing."""
    jobs = [Job(0, 5, 100, prompt=7) for _ in range(5)]
    assert set(Bench(kv=130).run(jobs).values()) == {5.0}
    assert sorted(Bench(kv=130, prefix_caching=False).run(jobs).values()) == [5.0, 10.0, 15.0, 20.0, 25.0]


def test_a_slow_replica_takes_twice_as_long() -> None:
    cost = HandMadeCost(base=lambda n: 0.2 + 0.01 * n, decode_per_context_token_s=1e-3, prefill_token_s=0.01)
    jobs = [Job(0, 30 + 7 * i, 10 * i) for i in range(6)]
    normal = Bench(cost).run(jobs)
    slow = Bench(cost)
    slow.replica.set_slowdown(2.0)
    assert slow.run(jobs) == pytest.approx({i: 2 * t for i, t in normal.items()}, rel=1e-12)


def test_a_slowdown_begins_at_the_end_of_the_running_step() -> None:
    bench = Bench()
    bench.at(4.5, lambda: bench.replica.set_slowdown(3.0))
    assert bench.run([Job(0, 10)]) == {0: pytest.approx(5 + 5 * 3)}


# ---- weights --------------------------------------------------------------------------------------------


def interrupted(action: InFlight | None, *exceptions: tuple[int, InFlight]) -> Bench:
    """Two rollouts of 10 tokens with prompts of 20 and 30; at 3.5 s a load of 2 s; prefill 0.1 s a token."""
    bench = Bench(HandMadeCost(base=lambda _: 1.0, prefill_token_s=0.1), load_s=2.0)
    bench.submit(0, Job(0, 10, 20))
    bench.submit(1, Job(0, 10, 30))
    bench.load(8.5, 1, action, *exceptions)
    bench.env.run()
    return bench


def test_those_that_join_at_one_moment_are_prefilled_in_one_call() -> None:
    bench = Bench(HandMadeCost(base=lambda _: 1.0, prefill_token_s=0.1, prefill_call_s=3.0))
    three = [bench.sequence(number, Job(0, 5, prompt_tokens=10 * number)) for number in (1, 2, 3)]
    bench.at(0.0, lambda: [bench.replica.submit(sequence) for sequence in three])
    bench.env.run()
    assert list(bench.finished.values()) == [pytest.approx(3 + 60 * 0.1 + 5)] * 3
    assert bench.usage.prefilled_tokens == 60


def test_keep_recompute_prefills_exactly_the_kv_in_use() -> None:
    """Prefill ends at 5 s; interrupted at the end of the 4th step, at 9 s, with 28 + 34 tokens of context."""
    bench = interrupted(InFlight.KEEP_RECOMPUTE)
    assert bench.usage.recomputed_tokens == 24 + 34
    assert bench.finished == {i: pytest.approx(9 + 2 + 5.8 + 6) for i in (0, 1)}
    assert bench.segments == {i: (Segment(0, 4), Segment(1, 6)) for i in (0, 1)}
    assert bench.reports == [WeightsLoaded(pytest.approx(11.0), 0, 1)]
    assert bench.usage.by_kind()["load"] == pytest.approx(2.0), "it begins when the running step is over"


def test_keep_recompute_prefills_a_shared_prompt_once() -> None:
    bench = Bench(load_s=1.0)
    for member in range(4):
        bench.submit(member, Job(0, 10, 100, prompt=3))
    bench.load(2.5, 1, InFlight.KEEP_RECOMPUTE)
    bench.env.run()
    assert bench.usage.recomputed_tokens == 100 + 4 * 3


def test_keep_stale_recomputes_nothing() -> None:
    bench = interrupted(InFlight.KEEP_STALE)
    assert bench.usage.recomputed_tokens == 0
    assert bench.finished == {i: pytest.approx(9 + 2 + 6) for i in (0, 1)}
    assert bench.segments[0] == (Segment(0, 4), Segment(1, 6))


def test_one_rollout_may_keep_its_stale_kv() -> None:
    bench = interrupted(InFlight.KEEP_RECOMPUTE, (0, InFlight.KEEP_STALE))
    assert bench.usage.recomputed_tokens == 34


def test_one_rollout_may_be_recomputed_while_others_keep_stale_kv() -> None:
    bench = interrupted(InFlight.KEEP_STALE, (0, InFlight.KEEP_RECOMPUTE))
    assert bench.usage.recomputed_tokens == 24


@pytest.mark.parametrize("action", [InFlight.ABORT_RESUME, InFlight.ABORT_RESTART, InFlight.ABORT_DROP])
def test_aborts_hand_back_what_was_generated(action: InFlight) -> None:
    bench = interrupted(action)
    aborted = [report for report in bench.reports if type(report) is RolloutAborted]
    assert [(report.rollout, report.segments) for report in aborted] == [
        (0, (Segment(0, 4),)),
        (1, (Segment(0, 4),)),
    ]
    assert not bench.finished
    assert bench.usage.recomputed_tokens == 0
    assert bench.reports[-1] == WeightsLoaded(pytest.approx(9.0 + 2.0), 0, 1)
    assert bench.usage.by_kind()["load"] == pytest.approx(2.0)


def test_a_resumed_rollout_computes_its_context_again_and_generates_only_the_rest() -> None:
    bench = Bench(HandMadeCost(base=lambda _: 1.0, prefill_token_s=0.1))
    bench.submit(0, Job(0, 10, 20), done=7)
    bench.env.run()
    assert bench.finished == {0: pytest.approx(27 * 0.1 + 3)}
    assert bench.replica.batch.generated_tokens == 3
    assert bench.usage.recomputed_tokens == 27


def test_work_that_arrives_during_a_load_starts_under_the_new_weights() -> None:
    bench = Bench(load_s=4.0)
    bench.load(1.0, 5, None)
    bench.submit(0, Job(2.0, 3))
    bench.env.run()
    assert bench.finished == {0: pytest.approx(8.0)}
    assert bench.segments[0] == (Segment(5, 3),)


def test_queued_work_is_aborted_too() -> None:
    """verl#7990: engine of 4 seats, 100 queued."""
    bench = Bench(seats=4)
    for number in range(104):
        bench.submit(number, Job(0, 1000))
    bench.load(5.5, 1, InFlight.ABORT_RESUME)
    bench.env.run(until=20)
    aborted = [report for report in bench.reports if type(report) is RolloutAborted]
    assert len(aborted) == 104
    assert sum(segment.tokens for report in aborted for segment in report.segments) == 4 * 6
    assert not bench.replica.batch.running
    assert not bench.replica.waiting


def test_aborting_twice_or_the_unknown_does_nothing() -> None:
    """prime-rl#2841: abort is idempotent."""
    bench = Bench()
    bench.submit(0, Job(0, 10))
    for when in (3.2, 3.3, 50.0):
        bench.at(when, lambda: bench.replica.abort(0))
    bench.at(4.0, lambda: bench.replica.abort(99))
    bench.env.run()
    assert len(bench.reports) == 1


def test_death_loses_everything_and_the_replica_comes_back_empty() -> None:
    bench = Bench()
    bench.submit(0, Job(0, 10))
    bench.at(4.2, bench.replica.die)
    bench.at(20.0, lambda: bench.replica.revive(3))
    bench.submit(1, Job(21.0, 5))
    bench.env.run()
    assert bench.finished == {1: pytest.approx(26.0)}
    assert bench.segments[1] == (Segment(3, 5),)
    assert bench.usage.by_kind()["down"] == pytest.approx(15.8)


def test_a_load_under_way_at_death_is_never_reported() -> None:
    bench = Bench(load_s=5.0)
    bench.load(1.0, 1, None)
    bench.at(2.0, bench.replica.die)
    bench.env.run()
    assert bench.reports == []


def test_tools_work_between_turns_without_a_seat() -> None:
    """Two turns of 4 tokens with 10 s of tool time that adds 6 tokens of context; another runs meanwhile."""
    bench = Bench(HandMadeCost(base=lambda _: 1.0, prefill_token_s=0.1), seats=1)
    bench.submit(0, Job(0, 8), turns=TurnDraw([4, 4], [10.0], [6]))
    bench.submit(1, Job(0, 5))
    bench.env.run()
    assert bench.finished[1] == pytest.approx(4 + 5)
    assert bench.finished[0] == pytest.approx(4 + 10 + (4 + 6) * 0.1 + 4)
