"""Small simulated runs made in code: constant costs unless a test brings its own, policies from decisions."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import exp
from typing import Any
from unittest.mock import patch

from areal_sim.cost.protocol import CostModel, Ints, TrainingTime
from areal_sim.simulation import Simulation
from areal_sim.workload import GroupDraw, Workload
from interfaces.actions import Action, InFlight, Train
from interfaces.events import Event, RolloutFinished
from interfaces.loop import TrainingLoop
from interfaces.policies.admission import All
from interfaces.policies.buffering import OldestFirst
from interfaces.policies.capacity import FixedPools
from interfaces.policies.dispatch import LeastLoaded
from interfaces.policies.protocols import Admission, Batch, Expiry, Policy
from interfaces.policies.sync import EveryStep
from interfaces.rollout import Group, staleness
from interfaces.scenario import Resolved, Scenario
from interfaces.scenario_file import load_hardware, load_model, validate
from interfaces.setup import loop_config, policy_of
from interfaces.telemetry import Span, Telemetry, Usage
from interfaces.view import View

AMPLE = 10**12
"""KV tokens that never run out."""

Watch = Callable[[TrainingLoop, Event], None]


def small(**sections: dict[str, Any]) -> Resolved:
    """A scenario with constant costs: one replica, groups of one, a step of 8, decode step 0.01 s, T 1 s."""
    base: dict[str, dict[str, Any]] = {
        "run": {"steps": 10},
        "cluster": {"hardware": "h800", "rollout_gpus": 1, "trainer_gpus": 1},
        "model": {"name": "qwen2.5-1.5b"},
        "engine": {"max_num_seqs": 4096},
        "trainer": {"minibatches": 1},
        "workload": {
            "batch_size": 8, "group_size": 1, "response_tokens": {"type": "constant", "value": 100.0},
        },
        "policy": {"name": "areal"},
        "cost": {"model": "constant", "decode_step_s": 0.01, "train_s": 1.0},
    }  # fmt: skip
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values}
    if "policy" in sections:
        base["policy"] = dict(sections["policy"])
    return Resolved(
        where="small.toml",
        scenario=validate(Scenario, "small.toml", base),
        hardware=load_hardware("h800"),
        model=load_model("qwen2.5-1.5b"),
    )


def exponential(mean: float) -> dict[str, Any]:
    return {"type": "exponential", "mean": mean}


def lognormal(mean: float, sigma: float) -> dict[str, Any]:
    return {"type": "lognormal", "median": mean / exp(sigma**2 / 2), "sigma": sigma}


@dataclass
class HandMadeCost:
    """Decode `base(n) + g * context`; everything else constant (prefill per token and call)."""

    base: Callable[[int], float] = lambda n: 0.01
    decode_per_context_token_s: float = 0.0
    prefill_token_s: float = 0.0
    prefill_call_s: float = 0.0
    train: Callable[[Ints], float] = lambda lengths: 1.0
    publish: float = 0.0
    load: Callable[[int], float] = lambda replicas: 0.0
    switch: float = 0.0
    provenance: str = "the test"
    floor: None = None

    def decode_base_s(self, n: int) -> float:
        return self.base(n)

    def prefill_s(self, tokens: int, squared_tokens: float, sequences: int = 1) -> float:  # noqa: ARG002
        return self.prefill_call_s + self.prefill_token_s * tokens

    def training_step_s(
        self,
        lengths: Ints,
        *,
        minibatches: int | None = None,  # noqa: ARG002
        update: bool = True,  # noqa: ARG002
    ) -> TrainingTime:
        total = self.train(lengths)
        return TrainingTime(total, 0.0, (total,), 0.0, 1.0, 1, 1.0)

    def publish_s(self) -> float:
        return self.publish

    def load_s(self, replicas_loading: int) -> float:
        return self.load(replicas_loading)

    def switch_s(self) -> float:
        return self.switch


@dataclass(frozen=True, slots=True)
class Fifo:
    """Full batches in the order of finishing; `max_ready` bounds the buffer: the first ones are dropped."""

    max_ready: int | None = None

    def accept(self, view: View, group: Group) -> bool:  # noqa: ARG002
        return True

    def select(self, view: View) -> Batch | None:
        size = view.config.batch_size
        return Batch(list(view.ready.values())[:size]) if len(view.ready) >= size else None

    def expired(self, view: View) -> Iterable[Expiry]:
        surplus = 0 if self.max_ready is None else max(0, len(view.ready) - self.max_ready)
        return [Expiry(group, "buffer_full", False) for group in list(view.ready.values())[:surplus]]


def policy(*limits: Admission, **decisions: Any) -> Policy:
    """A policy of these decisions; LeastLoaded, KEEP_RECOMPUTE every step and OldestFirst where not given."""
    in_flight = decisions.pop("in_flight", InFlight.KEEP_RECOMPUTE)
    return Policy(
        name="test",
        admission=All(limits),
        dispatch=decisions.pop("dispatch", LeastLoaded()),
        sync=decisions.pop("sync", EveryStep(in_flight)),
        buffering=decisions.pop("buffering", OldestFirst()),
        capacity=decisions.pop("capacity", FixedPools()),
        **decisions,
    )


class Lengths(Workload):
    """The workload of the scenario with response lengths by (prompt, member)."""

    def __init__(self, law: Callable[[int, int], int], scenario: Scenario, *rest: Any) -> None:
        super().__init__(scenario, *rest)
        self._law = law

    def group(self, prompt: int, attempt: int = 0) -> GroupDraw:
        draw = super().group(prompt, attempt)
        members = range(len(draw.response_tokens))
        return draw._replace(response_tokens=[self._law(prompt, member) for member in members])


@dataclass
class Trace:
    """A trace writer that keeps everything in memory."""

    fed_: list[tuple[Event, list[Action]]] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    def fed(self, event: Event, actions: list[Action]) -> None:
        self.fed_.append((event, list(actions)))

    def telemetry(self, record: Telemetry) -> None:
        if isinstance(record, Usage):
            self.usages.append(record)
        else:
            self.spans.append(record)

    def flush(self) -> None:
        pass

    def events(self, kind: type) -> list[Any]:
        return [event for event, _ in self.fed_ if type(event) is kind]

    def actions(self, kind: type) -> list[Any]:
        return [action for _, answer in self.fed_ for action in answer if type(action) is kind]


class WatchedLoop(TrainingLoop):
    """Calls a test's function before every event."""

    watch: Watch | None = None

    def feed(self, event: Event) -> list[Action]:
        if self.watch is not None:
            self.watch(self, event)
        return super().feed(event)


@dataclass
class Finished:
    report: dict[str, Any]
    trace: Trace
    simulation: Simulation


def prepare(
    resolved: Resolved,
    *,
    policy: Policy | None = None,
    cost: CostModel | HandMadeCost | None = None,
    kv: int | None = AMPLE,
    lengths: Callable[[int, int], int] | None = None,
    watch: Watch | None = None,
    trace: Trace | None = None,
) -> Simulation:
    """A simulation with parts replaced; `kv` None: what the hardware has."""
    loop = WatchedLoop(policy or policy_of(resolved), loop_config(resolved.scenario))
    loop.watch = watch
    with ExitStack() as stack:

        def replace(name: str, value: object) -> None:
            stack.enter_context(patch(f"areal_sim.simulation.{name}", value))

        replace("build_loop", lambda *_: loop)
        if cost is not None:
            replace("build_cost", lambda _: cost)
        if kv is not None:
            replace("kv_capacity_tokens", lambda *_: kv)
        if lengths is not None:
            replace("Workload", lambda scenario, *rest: Lengths(lengths, scenario, *rest))
        return Simulation(resolved, trace)  # type: ignore[arg-type]


def simulate(resolved: Resolved, *, traced: bool = True, **parts: Any) -> Finished:
    """Run to the end; see `prepare`."""
    trace = Trace()
    simulation = prepare(resolved, trace=trace if traced else None, **parts)
    return Finished(simulation.run(), trace, simulation)


def trained_staleness(trace: Trace, first_step: int = 0) -> list[int]:
    """Of every rollout trained from this step on, in versions, from the trace alone."""
    heads: dict[int, int] = {}
    ages = []
    for event, answer in trace.fed_:
        if type(event) is RolloutFinished:
            heads.setdefault(event.rollout, event.segments[0].version)
        for action in answer:
            if type(action) is Train and action.step >= first_step:
                ages += [staleness(action.version, heads[rollout]) for rollout in action.rollouts]
    return ages
