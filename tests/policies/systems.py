"""Every named system, with the parameters that change what it decides, and a small run of it."""

from typing import Any

from small_runs import Finished, exponential, lognormal, simulate, small

from interfaces.policies.protocols import Policy
from interfaces.policies.registry import build_policy
from interfaces.policies.registry import presets as registered
from interfaces.view import LoopConfig

Parameters = dict[str, Any]

VARIANTS: list[tuple[str, Parameters]] = [
    ("verl_fully_async", {"partial_rollout": False}),
    ("verl_fully_async", {"partial_rollout": False, "staleness_threshold": 1.5, "require_batches": 1}),
    ("verl_fully_async", {"staleness_threshold": 0, "trigger_parameter_sync_step": 2, "require_batches": 1}),
    ("verl_v1_separate", {"max_span": 1}),
    ("verl_v1_separate", {"max_span": 3, "on_stale": "drop"}),
    ("slime_partial", {"partial_rollout": False}),
    ("slime_partial", {"partial_rollout": False, "colocate": False}),
    ("april", {"alpha": 1.5, "colocate": False}),
    ("prime_rl", {"max_off_policy_steps": 1, "lead": 2}),
    ("prime_rl", {"concurrency": "fixed"}),
    ("prime_rl", {"max_inflight": 40, "oversampling_factor": 1.5}),
    ("prime_rl", {"max_off_policy_steps": 0}),
    ("trl_async", {"max_staleness": 0, "weight_sync_steps": 3, "queue_maxsize": 16}),
    ("trl_async", {"max_staleness": 1, "weight_sync_steps": 2}),
    ("openrlhf_async", {"async_queue_size": 3}),
    ("skyrl_async", {"max_staleness_steps": 0}),
    ("pipeline_rl", {"max_lag": 24, "parts": 8}),
    ("nemo_rl", {"in_flight_weight_updates": True}),
    ("nemo_rl", {"order": "windowed", "window": 11, "max_trajectory_age_steps": 2}),
    ("nemo_rl", {"order": "windowed", "in_flight_weight_updates": True}),
    ("nemo_rl", {"order": "weight_fifo", "max_trajectory_age_steps": 2}),
    ("nemo_rl", {"order": "ready_first", "in_flight_weight_updates": True}),
    ("kimi_partial", {"token_budget": 60}),
    ("roll_flash", {"async_generation_ratio": 0.5, "redundancy": 1}),
    ("roll_flash", {"async_generation_ratio": 0}),
    ("streamrl", {"mode": "sync", "parts": 3}),
    ("streamrl", {"long_pool": 0.4, "long_tokens": 120}),
    ("rollpacker", {"eta": 1.5, "colocate": False}),
    ("seer", {"chunk_tokens": 40, "max_running_per_replica": 4}),
    ("slime_fully_async", {"update_weights_interval": 2}),
    ("staleflow", {"eta": 3}),
    ("tinker_async", {"sampling_steps_ahead": 2, "in_flight_weight_updates": False}),
    ("forge_window", {"queue_batches": 2, "window": 8}),
    ("xtuner", {"max_staleness": 1, "max_token_staleness": 0, "sync_weights_interval": 2}),
    ("xtuner", {"max_staleness": 0, "tail_batch_trigger_size": 3}),
    ("laminar", {"repack_below": 0}),
]
SYSTEMS: list[tuple[str, Parameters]] = [*((name, {}) for name in sorted(registered())), *VARIANTS]


def label(system: tuple[str, Parameters]) -> str:
    name, parameters = system
    return ", ".join([name, *(f"{key}={value}" for key, value in parameters.items())])


def built(name: str, batch_size: int = 8, group_size: int = 2, **parameters: Any) -> Policy:
    return build_policy(name, parameters, LoopConfig(batch_size, group_size, 100), "test")


def run(name: str, parameters: Parameters | None = None, *, seed: int = 0, **sections: Any) -> Finished:
    """30 steps of 8 groups of 2 on 3 replicas: lognormal lengths, a mean of 1 s; T 1 s."""
    resolved = small(
        **{
            "run": {"steps": 30, "seed": seed},
            "cluster": {"rollout_gpus": 3, "trainer_gpus": 3},
            "engine": {"max_num_seqs": 16},
            "workload": {
                "batch_size": 8, "group_size": 2, "response_tokens": lognormal(100.0, 1.0),
                "prompt_tokens": exponential(20.0),
            },
            "cost": {"train_s": 1.0, "publish_s": 0.1, "load_s": 0.2},
            "policy": {"name": name, **(parameters or {})},
            **sections,
        }
    )  # fmt: skip
    return simulate(resolved)


def with_one_straggler(name: str, length: int = 1300, which: int = 0, **parameters: Any) -> Finished:
    """B = 2, one rollout a group, all of 1 s but one; T = 0.4 s."""
    resolved = small(
        run={"steps": 25},
        workload={"batch_size": 2},
        cost={"train_s": 0.4},
        policy={"name": name, **parameters},
    )
    return simulate(resolved, lengths=lambda prompt, _: length if prompt == which else 100)
