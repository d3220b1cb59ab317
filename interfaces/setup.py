"""From a resolved scenario to the core: the loop's configuration and its policy."""

from interfaces.backend import Capabilities, refuse_unless_able
from interfaces.errors import ScenarioError
from interfaces.loop import TrainingLoop
from interfaces.policies.protocols import Policy
from interfaces.policies.registry import build_policy
from interfaces.scenario import Resolved, Scenario
from interfaces.view import LoopConfig


def loop_config(scenario: Scenario) -> LoopConfig:
    """What the core needs to know of a scenario."""
    run, work = scenario.run, scenario.workload
    return LoopConfig(
        batch_size=work.batch_size,
        group_size=work.group_size,
        steps=run.steps,
        dataset_size=work.dataset_size,
        epochs=work.epochs,
        last_batch=run.last_batch,
        checkpoint_every_steps=run.checkpoint_every_steps,
        evaluation_every_steps=run.evaluation_every_steps,
        max_retries=scenario.faults.max_retries,
    )


def policy_of(resolved: Resolved) -> Policy:
    """The policy that a scenario names.

    Raises:
        ScenarioError: unknown name or parameter, a value it refuses, or GPUs that do not fit its roles.
    """
    scenario = resolved.scenario
    choice = scenario.policy
    policy = build_policy(choice.name, choice.parameters, loop_config(scenario), resolved.where)
    cluster = scenario.cluster
    if policy.capacity.colocated and cluster.rollout_gpus != cluster.trainer_gpus:
        raise ScenarioError(
            resolved.where, "cluster.trainer_gpus", cluster.trainer_gpus,
            f"differs from cluster.rollout_gpus = {cluster.rollout_gpus}, but {policy.name!r} uses one set "
            "of GPUs for both", "give both the number of GPUs there are",
        )  # fmt: skip
    return policy


def build_loop(resolved: Resolved, capabilities: Capabilities) -> TrainingLoop:
    """The core for a run of this scenario on a backend with these capabilities.

    Raises:
        ScenarioError: the policy cannot be built, or needs what the backend or the run does not have.
    """
    policy, config = policy_of(resolved), loop_config(resolved.scenario)
    refuse_unless_able(policy, capabilities, config, resolved.where)
    return TrainingLoop(policy, config)
