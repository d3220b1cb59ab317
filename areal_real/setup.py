"""From a scenario to the components of a real run: what each is started with, and whether it can be."""

from dataclasses import dataclass
from pathlib import Path

from areal_real.engine.config import EngineConfig
from areal_real.tasks.registry import default_model_dir, find_task
from areal_real.tasks.task import Task
from interfaces.actions import InFlight
from interfaces.backend import Capabilities
from interfaces.errors import ScenarioError
from interfaces.scenario import Resolved

CAPABILITIES = Capabilities(
    in_flight=frozenset(InFlight), multi_turn=False, moves_keep_kv=False, engine_load=False
)
SAMPLED_PROMPTS = 4096
"""Prompts looked at for the longest one when the data have no end."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What a run stands on: task and model."""

    task: Task
    model: Path
    """Directory of the Hugging Face causal LM that training starts from."""


def prepare(resolved: Resolved) -> Ground:
    """Find the task and its model; a task that brings its own makes it now (a minute, once).

    Raises:
        ScenarioError: unknown task, no model, or something that only a simulation can do.
    """
    real, where = resolved.scenario.real, resolved.where
    refuse_what_is_only_simulated(resolved)
    given = None if real.model is None else Path(where).parent / real.model
    if given is not None and not (given / "config.json").is_file():
        raise ScenarioError(
            where, "real.model", real.model, f"is no Hugging Face model (there is no {given}/config.json)",
            "give the directory that `save_pretrained` wrote, relative to the scenario file",
        )  # fmt: skip
    task = find_task(real.task, given, where)
    if given is not None:
        return Ground(task, given)
    model = default_model_dir(task)
    task.warm_start(model)
    return Ground(task, model)


def refuse_what_is_only_simulated(resolved: Resolved) -> None:
    """Refuse what a scenario asks of the simulator and this backend would silently leave out.

    Raises:
        ScenarioError: the first such key.
    """
    scenario, where = resolved.scenario, resolved.where
    if scenario.workload.turns is not None:
        raise ScenarioError(
            where, "workload.turns", "given", "is simulated only", "remove it: real tasks have one turn"
        )
    if scenario.faults.replica or scenario.faults.rollout_failure_probability:
        raise ScenarioError(
            where, "faults", "given", "is simulated only", "remove it: real faults come by themselves"
        )
    for name in ("tensor_parallel", "pipeline_parallel"):
        if getattr(scenario.trainer, name) != 1:
            raise ScenarioError(
                where, f"trainer.{name}", getattr(scenario.trainer, name), "is simulated only",
                "use 1: the real trainer runs on one device",
            )  # fmt: skip
    if scenario.cluster.trainer_gpus != 1:
        raise ScenarioError(
            where, "cluster.trainer_gpus", scenario.cluster.trainer_gpus, "is simulated only",
            "use 1: the real trainer runs on one device",
        )  # fmt: skip


def engine_config(resolved: Resolved, ground: Ground, weights: Path, replica: int) -> EngineConfig:
    """What one replica is started with.

    Raises:
        ScenarioError: responses have no longest length, or the engine is not vLLM.
    """
    return EngineConfig.from_scenario(
        resolved, model=ground.model, weights=weights, eos_id=ground.task.eos_id,
        prompt_limit_tokens=longest_prompt(resolved, ground.task), replica=replica,
    )  # fmt: skip


def longest_prompt(resolved: Resolved, task: Task) -> int:
    """Most tokens of a prompt: the cap of the scenario, which the prompts looked at must keep.

    Raises:
        ScenarioError: a prompt is longer.
    """
    work = resolved.scenario.workload
    count = min(work.dataset_size or SAMPLED_PROMPTS, SAMPLED_PROMPTS)
    longest = max(len(task.item(index).prompt_ids) for index in range(count))
    cap = work.prompt_tokens.largest
    if not cap:
        return longest
    if longest > cap:
        raise ScenarioError(
            resolved.where, "workload.prompt_tokens", cap, f"is the cap, but a prompt has {longest} tokens",
            f"raise it to {longest}",
        )  # fmt: skip
    return int(cap)


def replica_count(resolved: Resolved) -> int:
    """Engines of a run."""
    return resolved.scenario.cluster.rollout_gpus // resolved.scenario.engine.tensor_parallel
