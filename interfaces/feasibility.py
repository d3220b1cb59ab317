"""Can this scenario run at all? Rules between sections, which no single field can see.

Each check is one function that raises on the first violation; `check` calls them in the order in which a user
would fix things: counts first, then memory.
"""

import math
from collections.abc import Sequence

from interfaces import memory
from interfaces.distributions import Constant, Distribution, Empirical, Exponential, Gamma, Mixture
from interfaces.errors import ScenarioError
from interfaces.hardware import Model
from interfaces.scenario import Resolved, Scenario
from interfaces.scenario_errors import MISSING

_GIB = 2**30


def check(resolved: Resolved, colocated: bool = False) -> None:
    """Refuse a scenario that cannot run.

    `colocated` says that rollout and training share the same GPUs, which then hold both.

    Raises:
        ScenarioError: the first rule that is broken, with the values that would satisfy it.
    """
    _check_gpus(resolved, colocated)
    _check_heads(resolved)
    _check_batch(resolved)
    _check_run(resolved)
    _check_cost(resolved)
    _check_faults(resolved)
    _check_replica_memory(resolved, colocated)
    _check_kv_cache(resolved, colocated)
    _check_trainer_memory(resolved)


def check_pool(resolved: Resolved, pool: str, colocated: bool = False) -> None:
    """The rules for one side only: `pool` is "engine", "trainer" or "both"; for a search over many sides.

    Raises:
        ScenarioError: the first rule that is broken.
    """
    if pool != "trainer":
        _check_replica_memory(resolved, colocated)
        _check_kv_cache(resolved, colocated)
    if pool != "engine":
        _check_batch(resolved)
        _check_trainer_memory(resolved)
    if pool == "both":
        _check_gpus(resolved, colocated)
    _check_heads(resolved, ("engine", "trainer") if pool == "both" else (pool,))


def replicas(scenario: Scenario) -> int:
    """Number of engine replicas."""
    return scenario.cluster.rollout_gpus // scenario.engine.tensor_parallel


def data_parallel(scenario: Scenario) -> int:
    """Number of data-parallel ranks of the trainer."""
    trainer = scenario.trainer
    return scenario.cluster.trainer_gpus // (trainer.tensor_parallel * trainer.pipeline_parallel)


def longest_rollout_tokens(scenario: Scenario) -> float:
    """Context of the longest rollout: prompt, response and what tools add, in tokens.

    A distribution without an upper end counts with its median or mean, so that the result is a lower bound.
    """
    workload = scenario.workload
    tokens = _largest(workload.prompt_tokens) + _largest(workload.response_tokens)
    if workload.turns is not None:
        turns = max(0.0, _largest(workload.turns.number) - 1)
        tokens += turns * _largest(workload.turns.tool_tokens)
    return tokens


def _largest(distribution: Distribution) -> float:
    if distribution.largest is not None:
        return distribution.largest
    if isinstance(distribution, Constant):
        return distribution.value
    if isinstance(distribution, Exponential | Gamma):
        return distribution.mean
    if isinstance(distribution, Mixture):
        return max(part.median for part in distribution.parts)
    return 0.0 if isinstance(distribution, Empirical) else distribution.median


def _multiples(number: int, unit: int) -> str:
    """The multiples of `unit` around `number`, for a remedy."""
    below = number // unit * unit
    return f"use {below} or {below + unit}" if below else f"use {unit}"


def _check_gpus(resolved: Resolved, colocated: bool) -> None:
    where, scenario, cluster = resolved.where, resolved.scenario, resolved.scenario.cluster
    engine, trainer = scenario.engine, scenario.trainer
    if engine.tensor_parallel > resolved.hardware.gpus_per_node:
        limit = resolved.hardware.gpus_per_node
        rule = f"is more than the {limit} GPUs of a node of {resolved.hardware.name}"
        raise ScenarioError(
            where, "engine.tensor_parallel", engine.tensor_parallel, rule, f"use {limit} or less"
        )
    if cluster.rollout_gpus % engine.tensor_parallel:
        rule = f"is not a multiple of engine.tensor_parallel = {engine.tensor_parallel}"
        remedy = _multiples(cluster.rollout_gpus, engine.tensor_parallel)
        raise ScenarioError(where, "cluster.rollout_gpus", cluster.rollout_gpus, rule, remedy)
    ranks = trainer.tensor_parallel * trainer.pipeline_parallel
    if cluster.trainer_gpus % ranks:
        rule = f"is not a multiple of trainer.tensor_parallel * trainer.pipeline_parallel = {ranks}"
        remedy = _multiples(cluster.trainer_gpus, ranks)
        raise ScenarioError(where, "cluster.trainer_gpus", cluster.trainer_gpus, rule, remedy)
    if colocated and cluster.rollout_gpus != cluster.trainer_gpus:
        rule = f"differs from cluster.rollout_gpus = {cluster.rollout_gpus} under a colocated policy"
        remedy = f"use {cluster.rollout_gpus}: both pools are the same GPUs"
        raise ScenarioError(where, "cluster.trainer_gpus", cluster.trainer_gpus, rule, remedy)


def _splits(model: Model, ranks: int) -> bool:
    """Whether attention can be split over tensor-parallel ranks (KV heads may be copied, not cut)."""
    return model.heads % ranks == 0 and (model.kv_heads % ranks == 0 or ranks % model.kv_heads == 0)


def _check_heads(resolved: Resolved, sections: Sequence[str] = ("engine", "trainer")) -> None:
    model, scenario = resolved.model, resolved.scenario
    for section in sections:
        ranks = (scenario.engine if section == "engine" else scenario.trainer).tensor_parallel
        if not _splits(model, ranks):
            good = [str(n) for n in range(1, resolved.hardware.gpus_per_node + 1) if _splits(model, n)]
            rule = f"does not divide the {model.heads} heads ({model.kv_heads} KV heads) of {model.name}"
            remedy = f"use {' or '.join(good)}"
            raise ScenarioError(resolved.where, f"{section}.tensor_parallel", ranks, rule, remedy)
    stages = scenario.trainer.pipeline_parallel
    if stages > model.layers:
        rule = f"is more than the {model.layers} layers of {model.name}"
        raise ScenarioError(
            resolved.where, "trainer.pipeline_parallel", stages, rule, f"use {model.layers} or less"
        )


def _check_batch(resolved: Resolved) -> None:
    workload, trainer = resolved.scenario.workload, resolved.scenario.trainer
    if workload.dataset_size is not None:
        prompts = workload.dataset_size * workload.epochs
        if workload.batch_size > prompts:
            rule = f"is more than the {prompts} prompts of workload.dataset_size * workload.epochs"
            remedy = f"use {prompts} or less, or more epochs"
            raise ScenarioError(resolved.where, "workload.batch_size", workload.batch_size, rule, remedy)
    ranks = data_parallel(resolved.scenario)
    sequences, slots = workload.batch_size * workload.group_size, trainer.minibatches * ranks
    if sequences < slots:
        rule = (
            f"gives {sequences} sequences a step for trainer.minibatches * data-parallel ranks = "
            f"{trainer.minibatches} * {ranks}, at least one each is needed"
        )
        remedy = f"use {math.ceil(slots / workload.group_size)} or more, or fewer minibatches or trainer GPUs"
        raise ScenarioError(resolved.where, "workload.batch_size", workload.batch_size, rule, remedy)


def _check_run(resolved: Resolved) -> None:
    run = resolved.scenario.run
    if run.warmup_steps >= run.steps:
        rule = f"leaves none of run.steps = {run.steps} to measure"
        raise ScenarioError(
            resolved.where, "run.warmup_steps", run.warmup_steps, rule, f"use {run.steps - 1} or less"
        )


def _check_cost(resolved: Resolved) -> None:
    cost = resolved.scenario.cost
    if cost.model != "constant":
        return
    for key in ("decode_step_s", "train_s"):
        if getattr(cost, key) is None:
            rule, remedy = 'is required by cost.model = "constant"', f"add {key} = ... to [cost]"
            raise ScenarioError(resolved.where, f"cost.{key}", MISSING, rule, remedy)


def _check_faults(resolved: Resolved) -> None:
    number = replicas(resolved.scenario)
    for index, fault in enumerate(resolved.scenario.faults.replica):
        key = f"faults.replica.{index}"
        if fault.replica >= number:
            rule = f"does not exist, there are {number} replicas"
            remedy = f"use 0 to {number - 1}"
            raise ScenarioError(resolved.where, f"{key}.replica", fault.replica, rule, remedy)
        if (fault.down_s is None) == (fault.slowdown is None):
            value = MISSING if fault.down_s is None else fault.down_s
            rule = "needs exactly one of down_s (it dies) and slowdown (it is slow)"
            raise ScenarioError(
                resolved.where, f"{key}.down_s", value, rule, "write one replica fault for each"
            )
        if fault.until_s is not None and (fault.slowdown is None or fault.until_s <= fault.at_s):
            rule = "must be the end of a slowdown, after at_s"
            remedy = f"use a value above {fault.at_s:g} together with slowdown"
            raise ScenarioError(resolved.where, f"{key}.until_s", fault.until_s, rule, remedy)


def _check_replica_memory(resolved: Resolved, colocated: bool) -> None:
    hardware, model, engine = resolved.hardware, resolved.model, resolved.scenario.engine
    if memory.kv_room_bytes_per_gpu(hardware, model, engine, colocated) > 0:
        return
    weights = memory.replica_weight_bytes(model) / engine.tensor_parallel / _GIB
    usable = engine.gpu_memory_utilization * hardware.hbm_bytes / _GIB
    rule = (
        f"does not fit: {model.name} needs {weights:.1f} GiB of weights on each GPU"
        f"{' twice (colocated)' if colocated else ''} besides the workspace of one step, "
        f"and {usable:.1f} GiB of {hardware.name} are usable"
    )
    remedy = _larger_tensor_parallel(resolved, colocated, 0)
    raise ScenarioError(resolved.where, "engine.tensor_parallel", engine.tensor_parallel, rule, remedy)


def _check_kv_cache(resolved: Resolved, colocated: bool) -> None:
    engine = resolved.scenario.engine
    capacity = memory.kv_capacity_tokens(resolved.hardware, resolved.model, engine, colocated)
    longest = longest_rollout_tokens(resolved.scenario)
    if longest > capacity:
        response = resolved.scenario.workload.response_tokens
        value = MISSING if response.largest is None else response.largest
        rule = (
            f"makes rollouts of up to {longest:.0f} tokens with prompt and tools, "
            f"more than the {capacity} tokens of KV cache of a replica"
        )
        remedy = f"lower it, or {_larger_tensor_parallel(resolved, colocated, longest)}"
        key = f"workload.response_tokens.{'value' if isinstance(response, Constant) else 'max'}"
        raise ScenarioError(resolved.where, key, value, rule, remedy)


def _larger_tensor_parallel(resolved: Resolved, colocated: bool, tokens: float) -> str:
    """Remedy: the smallest tensor parallelism under which a replica holds `tokens` (and the model)."""
    engine = resolved.scenario.engine
    for ranks in range(engine.tensor_parallel + 1, resolved.hardware.gpus_per_node + 1):
        larger = engine.model_copy(update={"tensor_parallel": ranks})
        if _splits(resolved.model, ranks) and (
            memory.kv_capacity_tokens(resolved.hardware, resolved.model, larger, colocated) > tokens
        ):
            return f"use engine.tensor_parallel = {ranks}"
    return "use a GPU with more memory or a smaller model"


def microbatch_tokens(scenario: Scenario) -> int:
    """Tokens of the largest micro-batch that the trainer must hold.

    The limit of dynamic micro-batching, or one longest rollout where that is more (a sequence is never cut).
    With a fixed number of micro-batches nothing bounds them: one longest rollout is the least.
    """
    longest = math.ceil(longest_rollout_tokens(scenario))
    if scenario.trainer.microbatching == "fixed":
        return longest
    return max(longest, scenario.trainer.max_tokens_per_microbatch)


def _check_trainer_memory(resolved: Resolved) -> None:
    scenario, trainer = resolved.scenario, resolved.scenario.trainer
    tokens = microbatch_tokens(scenario)
    gpus = scenario.cluster.trainer_gpus
    usable = memory.TRAINER_USABLE_SHARE * resolved.hardware.hbm_bytes
    if (needed := memory.trainer_bytes_per_gpu(resolved.model, trainer, gpus, tokens)) <= usable:
        return
    state = memory.trainer_bytes_per_gpu(resolved.model, trainer, gpus, 0)
    rule = (
        f"makes training need {needed / _GIB:.1f} GiB on each GPU (weights, gradients and optimizer "
        f"{state / _GIB:.1f}, micro-batch of {tokens} tokens {(needed - state) / _GIB:.1f}), "
        f"and {usable / _GIB:.1f} GiB of {resolved.hardware.name} are usable"
    )
    if state > usable:
        key, value = "trainer.pipeline_parallel", trainer.pipeline_parallel
        remedy = "raise it or trainer.tensor_parallel (with more trainer GPUs)"
    elif not trainer.activation_checkpointing:
        key, value = "trainer.activation_checkpointing", False
        remedy = "set it to true, or raise trainer.tensor_parallel"
    else:
        key, value = "trainer.max_tokens_per_microbatch", trainer.max_tokens_per_microbatch
        room = int((usable - state) / ((needed - state) / tokens))
        remedy = f"use {room // 1024 * 1024} or less (one rollout must fit), or raise trainer.tensor_parallel"
    raise ScenarioError(resolved.where, key, value, rule, remedy)
