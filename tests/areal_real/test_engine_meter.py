"""Books of a replica's time, from steps made up by hand."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from areal_real.engine.meter import Meter, Step
from areal_real.engine.statistics import step_of
from interfaces.telemetry import Span

DECODE = Step(
    new_tokens=2, decoding=2, first_prefill_tokens=0, again_tokens=0, running=2, waiting=0, preempted=0
)


class Desk:
    """A meter whose clock the test winds; two sequences of 10 and 20 tokens are decoding."""

    def __init__(self) -> None:
        self.now = 0.0
        self.spans: list[Span] = []
        self.meter = Meter(lambda: self.now, "replica 3", 4, self.spans.append)
        self.now = 1.0
        self.meter.serving()
        self.now = 3.0
        self.meter.submitted(10, resumed=False)
        self.meter.submitted(20, resumed=False)
        self.step(0.5, replace(DECODE, decoding=0, first_prefill_tokens=30))

    def step(self, seconds: float, step: Step) -> None:
        """A step that ends so much later."""
        self.now += seconds
        self.meter.step(step)


def test_decode_and_the_first_prefill() -> None:
    desk = Desk()
    desk.step(0.25, DECODE)
    desk.step(0.25, DECODE)
    usage = desk.meter.usage()
    assert usage.seconds == {
        "idle:starting": 3.0,
        "prefill": 0.5,
        "decode": 0.5,
        "recompute": 0.0,
    }
    assert (usage.generated_tokens, usage.prefilled_tokens, usage.recomputed_tokens) == (6, 30, 0)
    assert usage.decode_steps == 2
    assert usage.context_token_steps == 34 + 36


def test_prefill_beside_decoding_is_what_the_step_took_longer() -> None:
    desk = Desk()
    desk.step(0.25, DECODE)
    desk.meter.submitted(8, resumed=False)
    desk.step(0.75, replace(DECODE, first_prefill_tokens=8))
    seconds = desk.meter.usage().seconds
    assert seconds["prefill"] == 0.5 + 0.5
    assert seconds["decode"] == 0.5


def test_a_resumed_rollout_is_recomputed() -> None:
    desk = Desk()
    desk.meter.submitted(12, resumed=True)
    desk.meter.submitted(6, resumed=False)
    desk.step(0.75, replace(DECODE, decoding=0, first_prefill_tokens=18))
    usage = desk.meter.usage()
    assert (usage.prefilled_tokens, usage.recomputed_tokens) == (36, 12)
    assert usage.seconds["recompute"] == pytest.approx(0.5)
    assert usage.seconds["prefill"] == pytest.approx(0.5 + 0.25)


def test_a_load_that_drops_the_cache_causes_recomputation_and_no_preemptions() -> None:
    desk = Desk()
    desk.step(0.25, DECODE)
    desk.meter.loading(7, recompute=True)
    desk.now += 2.0
    desk.meter.serving()
    desk.step(1.25, replace(DECODE, again_tokens=34, preempted=3))
    usage = desk.meter.usage()
    assert usage.seconds["load"] == 2.0
    assert usage.seconds["recompute"] == 1.0
    assert usage.recomputed_tokens == 34
    assert usage.preemptions == 1  # two were those of the load
    assert Span(3.75, 5.75, "replica 3", "load", "version 7") in desk.spans


def test_a_load_that_keeps_the_cache_excuses_no_preemption() -> None:
    desk = Desk()
    desk.meter.loading(7, recompute=False)
    desk.meter.serving()
    desk.step(0.25, replace(DECODE, preempted=1))
    assert desk.meter.usage().preemptions == 1


def test_waiting_for_want_of_cache() -> None:
    desk = Desk()
    desk.step(0.25, replace(DECODE, waiting=1))
    desk.step(0.25, replace(DECODE, waiting=1, running=4))  # all places taken: not for want of cache
    assert desk.meter.usage().kv_blocked_s == 0.25


def test_idle_time_has_the_cause_of_its_time() -> None:
    desk = Desk()
    desk.meter.ended(11)
    desk.meter.ended(21)
    desk.now += 1.0
    desk.meter.blame("staleness")
    desk.now += 2.0
    desk.meter.blame("staleness")
    desk.meter.down()
    seconds = desk.meter.usage().seconds
    assert (seconds["idle:starting"], seconds["idle:staleness"]) == (4.0, 2.0)
    assert [(span.start, span.end, span.kind, span.detail) for span in desk.spans] == [
        (0.0, 1.0, "idle", "starting"),
        (1.0, 3.0, "idle", "starting"),
        (3.0, 3.5, "prefill", ""),
        (3.5, 4.5, "idle", "starting"),
        (4.5, 6.5, "idle", "staleness"),
    ]


def test_a_step_reported_late_counts_its_tokens_but_no_time() -> None:
    desk = Desk()
    desk.meter.loading(1, recompute=True)
    desk.step(0.5, DECODE)
    usage = desk.meter.usage()
    assert usage.generated_tokens == 4
    assert usage.seconds["load"] == 0.5
    assert sum(usage.seconds.values()) == desk.now


def test_steps_as_vllm_tells_them() -> None:
    details = SimpleNamespace(num_generation_requests=3, num_generation_tokens=103, num_ctx_tokens=7)
    scheduler = SimpleNamespace(iteration_details=details, num_running_reqs=4, num_waiting_reqs=1)
    iteration = SimpleNamespace(num_generation_tokens=4, num_preempted_reqs=2)
    assert step_of(scheduler, iteration) == Step(4, 3, 7, 100, 4, 1, 2)
    assert step_of(scheduler, None) == Step(0, 3, 7, 100, 4, 1, 0)
    assert step_of(SimpleNamespace(iteration_details=None), iteration) is None
    assert step_of(None, None) is None
