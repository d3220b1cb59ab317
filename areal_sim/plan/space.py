"""What may be chosen: every configuration of so many GPUs that fits in memory and keeps the bound."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from math import inf
from typing import Any, NamedTuple

from interfaces import feasibility
from interfaces.errors import ScenarioError
from interfaces.policies.protocols import Policy
from interfaces.policies.registry import build_policy, presets
from interfaces.scenario import PolicyChoice, Resolved
from interfaces.setup import loop_config

STALENESS_KNOBS = (
    "max_staleness", "max_off_policy_steps", "max_staleness_steps", "max_lag", "max_trajectory_age_steps",
    "eta", "sampling_steps_ahead",
)  # fmt: skip
"""What policies call their bound; the first that a policy has is varied."""
CONCURRENCY_KNOBS = ("max_concurrent_groups", "num_parallel_generation_workers")
STALENESS = (1, 2, 4, 8, 16)
CONCURRENCY = (0.5, 1.0, 2.0)
"""In batches."""
SPLITS = 16
"""The GPUs are split in steps of a sixteenth, the paper's 75/25 among them."""
_POWERS = (1, 2, 4, 8, 16)


class Schedule(NamedTuple):
    """A policy with its parameters."""

    name: str
    parameters: tuple[tuple[str, Any], ...]
    staleness: float | None
    """Its bound in versions, as varied or as promised; None: it names none."""
    concurrency: int | None
    """Groups in flight at most; None: the policy's own."""


class Choice(NamedTuple):
    """One configuration."""

    rollout_gpus: int
    trainer_gpus: int
    engine_tensor_parallel: int
    trainer_tensor_parallel: int
    trainer_pipeline_parallel: int
    schedule: Schedule
    colocated: bool = False

    @property
    def gpus(self) -> int:
        """All of them; colocated pools are the same GPUs."""
        return self.rollout_gpus + (0 if self.colocated else self.trainer_gpus)

    def apply(self, base: Resolved) -> Resolved:
        """The scenario with this configuration in place of its own."""
        scenario = base.scenario
        update = {
            "cluster": {"rollout_gpus": self.rollout_gpus, "trainer_gpus": self.trainer_gpus},
            "engine": {"tensor_parallel": self.engine_tensor_parallel},
            "trainer": {
                "tensor_parallel": self.trainer_tensor_parallel,
                "pipeline_parallel": self.trainer_pipeline_parallel,
            },
        }
        sections: dict[str, Any] = {
            name: getattr(scenario, name).model_copy(update=values) for name, values in update.items()
        }
        sections["policy"] = PolicyChoice(name=self.schedule.name, **dict(self.schedule.parameters))
        return base.model_copy(update={"scenario": scenario.model_copy(update=sections)})

    def values(self) -> dict[str, str]:
        """As columns of a table, named as in a scenario."""
        return {
            "policy.max_staleness": _plain(self.schedule.staleness),
            "cluster.rollout_gpus": f"{self.rollout_gpus} of {self.gpus}",
            "engine.tensor_parallel": str(self.engine_tensor_parallel),
            "trainer.tensor x pipeline": f"{self.trainer_tensor_parallel} x {self.trainer_pipeline_parallel}",
            "policy.max_concurrent_groups": _plain(self.schedule.concurrency),
            "policy.name": self.schedule.name,
        }


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def schedules(base: Resolved, names: Sequence[str], max_staleness: float) -> list[Schedule]:
    """All settings of these policies whose bound is `max_staleness` or less.

    Raises:
        ScenarioError: an unknown policy.
    """
    found = [one for name in names for one in _settings(base, name, max_staleness)]
    return list(dict.fromkeys(found))


def policy_of_schedule(base: Resolved, schedule: Schedule) -> Policy:
    """The five decisions behind it.

    Raises:
        ScenarioError: a parameter that the policy refuses.
    """
    return build_policy(schedule.name, dict(schedule.parameters), loop_config(base.scenario), base.where)


def _settings(base: Resolved, name: str, most: float) -> Iterator[Schedule]:
    own = base.scenario.policy.parameters if base.scenario.policy.name == name else {}
    known = presets()
    if name not in known:
        build_policy(name, {}, loop_config(base.scenario), base.where)  # raises, with the known names
    knobs = [field.name for field in fields(known[name])]
    bound = next((knob for knob in STALENESS_KNOBS if knob in knobs), None)
    slots = next((knob for knob in CONCURRENCY_KNOBS if knob in knobs), None)
    etas = (
        sorted({eta for eta in (*STALENESS, own.get(bound, 1)) if eta <= most} or {most}) if bound else [None]
    )
    batch = base.scenario.workload.batch_size
    sizes = {max(1, round(batch * share)) for share in CONCURRENCY} | {own.get(slots or "") or batch}
    for eta in etas:
        for size in sorted(sizes) if slots else [None]:
            parameters = {**own, **({bound: eta} if bound else {}), **({slots: size} if slots else {})}
            schedule = Schedule(name, tuple(sorted(parameters.items())), eta, size)
            try:
                promised = policy_of_schedule(base, schedule).guarantees.max_staleness
            except ScenarioError:
                continue  # a setting that this policy refuses is not one of the choices
            if promised is None or promised <= most:
                yield schedule._replace(staleness=promised if eta is None else eta)


def space(base: Resolved, totals: Sequence[int], found: Sequence[Schedule]) -> list[Choice]:
    """Every feasible configuration, in a fixed order."""
    apart = [one for one in found if not _colocated(base, one)]
    shared = [one for one in found if _colocated(base, one)]
    choices: list[Choice] = []
    for total in totals:
        pools = [(rollout, total - rollout, False) for rollout in splits(base, total)] if apart else []
        pools += [(total, total, True)] if shared else []
        for rollout, trainer, colocated in pools:
            for layout in _layouts(base, rollout, trainer, (shared if colocated else apart)[0], colocated):
                choices += [
                    Choice(rollout, trainer, *layout, one, colocated)
                    for one in (shared if colocated else apart)
                ]
    return choices


def _colocated(base: Resolved, schedule: Schedule) -> bool:
    return policy_of_schedule(base, schedule).capacity.colocated


def splits(base: Resolved, total: int) -> list[int]:
    """Rollout GPUs: multiples of a sixteenth of the total, and the scenario's own share."""
    cluster = base.scenario.cluster
    own = round(total * cluster.rollout_gpus / (cluster.rollout_gpus + cluster.trainer_gpus))
    step = step_of(total)
    return sorted({*range(step, total, step), min(max(1, own), total - 1)})


def step_of(total: int) -> int:
    """GPUs between two neighbouring splits."""
    return max(1, total // SPLITS)


def _layouts(
    base: Resolved, rollout: int, trainer: int, schedule: Schedule, colocated: bool
) -> Iterator[tuple[int, int, int]]:
    """Tensor parallelism of the engine, tensor and pipeline parallelism of the trainer."""
    node, layers = base.hardware.gpus_per_node, base.model.layers
    engines = [ranks for ranks in _POWERS if ranks <= node and rollout % ranks == 0]
    trainers = [
        (tensor, pipeline)
        for tensor in _POWERS for pipeline in _POWERS
        if tensor <= node and pipeline <= layers and trainer % (tensor * pipeline) == 0
    ]  # fmt: skip
    if not engines or not trainers:
        return
    fits_engine = [
        e
        for e in engines
        if _fits(base, Choice(rollout, trainer, e, *trainers[-1], schedule, colocated), "engine")
    ]
    fits_trainer = [
        t
        for t in trainers
        if _fits(base, Choice(rollout, trainer, engines[0], *t, schedule, colocated), "trainer")
    ]
    for engine in fits_engine:
        for tensor, pipeline in fits_trainer:
            yield engine, tensor, pipeline


def _fits(base: Resolved, choice: Choice, pool: str) -> bool:
    """Whether this pool can run so; what is wrong with the other one does not matter."""
    try:
        feasibility.check_pool(choice.apply(base), pool, choice.colocated)
    except ScenarioError:
        return False
    return True


def own_choice(base: Resolved, total: int) -> Choice | None:
    """The scenario's own configuration, its split kept as a share of `total`; None where that cannot run."""
    scenario = base.scenario
    policy = scenario.policy
    knobs = policy.parameters
    bound = next((knobs[knob] for knob in STALENESS_KNOBS if knob in knobs), None)
    slots = next((knobs[knob] for knob in CONCURRENCY_KNOBS if knob in knobs), None)
    schedule = Schedule(policy.name, tuple(sorted(knobs.items())), bound, slots)
    if bound is None:
        promised = policy_of_schedule(base, schedule).guarantees.max_staleness
        schedule = schedule._replace(staleness=promised if promised != inf else None)
    colocated = _colocated(base, schedule)
    cluster, engine, trainer = scenario.cluster, scenario.engine, scenario.trainer
    layout = (engine.tensor_parallel, trainer.tensor_parallel, trainer.pipeline_parallel)
    if colocated:
        choice = Choice(total, total, *layout, schedule, True)
    else:
        share = cluster.rollout_gpus / (cluster.rollout_gpus + cluster.trainer_gpus)
        unit = trainer.tensor_parallel * trainer.pipeline_parallel
        train = min(max(unit, round(total * (1 - share) / unit) * unit), total - 1)
        choice = Choice(total - train, train, *layout, schedule)
    return choice if _fits(base, choice, "both") else None
