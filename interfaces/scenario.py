"""Schema of a scenario file: everything that a run depends on, validated before anything starts.

Units live in the names (`_s` seconds, `_tokens`, `_gib`, `_bytes_per_s`). Reading files, `--set` and error
messages are in `scenario_file.py`; this page is only what a scenario *is*.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt

from interfaces.distributions import Constant, Distribution
from interfaces.hardware import Hardware, Model, NonNegative, Share


class Section(BaseModel):
    """A table of a scenario file: unknown keys are refused, values never coerced, nothing changes later."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Run(Section):
    """How long, from which seed, and what interrupts the loop."""

    steps: PositiveInt
    seed: NonNegativeInt = 0
    warmup_steps: NonNegativeInt = 0
    """First steps, left out of the metrics."""
    last_batch: Literal["drop", "train"] = "drop"
    """What becomes of a batch that the data no longer fill."""
    checkpoint_every_steps: NonNegativeInt = 0
    checkpoint_s: NonNegative = 0.0
    evaluation_every_steps: NonNegativeInt = 0
    evaluation_s: NonNegative = 0.0
    evaluation_on: Literal["trainer", "rollout"] = "trainer"
    """Which pool stands still during an evaluation."""


class Cluster(Section):
    """Which GPUs, and how they are split. Under a colocated policy both pools are the same GPUs."""

    hardware: str
    """Name of a file in `scenarios/hardware/`, or a path to one."""
    rollout_gpus: PositiveInt
    trainer_gpus: PositiveInt


class ModelChoice(Section):
    """Which model."""

    name: str
    """Name of a file in `scenarios/models/`, or a path to one."""


class Engine(Section):
    """The inference engine of every replica."""

    name: Literal["sglang", "vllm"] = "vllm"
    tensor_parallel: PositiveInt = 1
    max_num_seqs: PositiveInt = 256
    decode_slowdown: PositiveFloat = 1.0
    """Measured decode step over what the cost model says: a calibration of hardware and engine together."""
    max_num_batched_tokens: PositiveInt = 8192
    """Tokens of one prefill step; a longer prefill takes several."""
    gpu_memory_utilization: Share = 0.9
    prefix_caching: bool = True
    """Members of a group on one replica share the prompt's KV."""


class Trainer(Section):
    """The trainer: parallelism, micro-batches and what it recomputes."""

    tensor_parallel: PositiveInt = 1
    pipeline_parallel: PositiveInt = 1
    minibatches: PositiveInt = 4
    """Optimizer steps within one training step (one policy version)."""
    microbatching: Literal["dynamic", "fixed"] = "dynamic"
    """Algorithm 1 of the AReaL paper, or the same number of micro-batches whatever the lengths."""
    max_tokens_per_microbatch: PositiveInt = 32768
    fixed_microbatches: PositiveInt = 32
    """Per optimizer step and data-parallel rank; read only when `microbatching = "fixed"`."""
    recompute_proximal: bool = True
    """One forward pass over the whole batch before the first optimizer step (decoupled PPO)."""
    activation_checkpointing: bool = True
    distributed_optimizer: bool = True
    """Optimizer state is sharded over the data-parallel ranks (ZeRO-1)."""


class WeightSyncChoice(Section):
    """How new weights travel from the trainer to the replicas."""

    method: Literal["disk", "broadcast"] = "broadcast"
    overhead_s: NonNegative = 0.0
    """Fixed time of one load on a replica: pause, control messages, resume."""


class Drift(Section):
    """From this training step on, lengths are multiplied by `scale` (linear between two entries)."""

    step: NonNegativeInt
    scale: PositiveFloat


class Turns(Section):
    """Multi-turn rollouts: the response is cut into turns, a tool or environment works between them."""

    number: Distribution
    tool_time_s: Distribution
    tool_tokens: Distribution = Constant(type="constant", value=0.0)
    """Tokens the environment adds to the context after each turn but the last."""


class Workload(Section):
    """What is generated: prompts, lengths and how they vary."""

    batch_size: PositiveInt
    """Prompt groups of one training step."""
    group_size: PositiveInt
    """Rollouts of one prompt."""
    dataset_size: PositiveInt | None = None
    """Prompts of one epoch; None: they never end."""
    epochs: PositiveInt = 1
    prompt_tokens: Distribution = Constant(type="constant", value=0.0)
    response_tokens: Distribution
    group_correlation: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Correlation of the (normal score of the) lengths of two members of one group."""
    drift: tuple[Drift, ...] = ()
    turns: Turns | None = None


class Reward(Section):
    """The reward service: latency, parallel workers and the rewards themselves."""

    latency_s: Distribution = Constant(type="constant", value=0.0)
    workers: PositiveInt | None = None
    """Rewards computed at once; None: as many as ask."""
    success_rate: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Mean of a reward that is 0 or 1."""
    difficulty_spread: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Intra-group correlation of rewards (beta-binomial): 0 all prompts alike, near 1 all-or-nothing."""


class PolicyChoice(BaseModel):
    """Which scheduling policy; all keys but `name` are its own parameters, which its preset validates."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    name: str

    @property
    def parameters(self) -> dict[str, Any]:
        """The keys beside `name`."""
        return dict(self.model_extra or {})


class ReplicaFault(Section):
    """A replica dies at `at_s` and is back `down_s` later, or is `slowdown` times slower until `until_s`."""

    replica: NonNegativeInt
    at_s: NonNegative
    down_s: PositiveFloat | None = None
    """Time until it is back; required for a death (`slowdown` absent)."""
    slowdown: Annotated[float, Field(gt=1)] | None = None
    until_s: PositiveFloat | None = None


class Faults(Section):
    """What goes wrong."""

    replica: tuple[ReplicaFault, ...] = ()
    rollout_failure_probability: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """A rollout fails at its end instead of finishing."""
    max_retries: NonNegativeInt = 3
    """Failures of one rollout before its whole group is given up."""


class Cost(Section):
    """Which cost model answers how long things take."""

    model: Literal["roofline", "fitted", "constant"] = "fitted"
    """`fitted`: measured decode coefficients where they exist for this pair, roofline otherwise."""
    file: str | None = None
    """Calibrated coefficients (`areal-sim calibrate`), path relative to the scenario file."""
    decode_step_s: PositiveFloat | None = None
    """`constant` only: every decode step, whatever the batch."""
    prefill_s: NonNegative = 0.0
    """`constant` only: prefill of one prompt."""
    train_s: NonNegative | None = None
    """`constant` only: one training step."""
    publish_s: NonNegative = 0.0
    """`constant` only."""
    load_s: NonNegative = 0.0
    """`constant` only."""


class Loss(Section):
    """Objective of the real trainer; equations in `areal_real/trainer/losses.py`."""

    objective: Literal["decoupled_ppo", "ppo", "unweighted_proximal"] = "decoupled_ppo"
    """AReaL eq. (5); PPO clipped around the behaviour policy; eq. (5) without its weight (an ablation)."""
    advantage: Literal["grpo", "dr_grpo", "rloo"] = "grpo"
    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    clip_high: PositiveFloat = 0.2
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    """Lower bound `dual_clip * advantage` for negative advantages; None: none."""
    behaviour_weight_cap: PositiveFloat | None = None
    """Upper bound of `pi_prox / pi_behav`; None: none. How often it binds is reported."""


class Optimizer(Section):
    """AdamW of the real trainer."""

    learning_rate: PositiveFloat = 2e-4
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.95
    epsilon: PositiveFloat = 1e-8
    weight_decay: NonNegative = 0.0
    gradient_clip: PositiveFloat = 1.0


class Real(Section):
    """What only a real run needs; the simulator reads nothing of it.

    The longest response of a real run is the cap (`max`) of `workload.response_tokens`.
    """

    task: str = "letter_chain"
    """Name of a built-in task, or `module:object`."""
    model: str | None = None
    """Directory of a Hugging Face causal LM to start from; None: the warm start of the task."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    temperature: PositiveFloat = 1.0
    kv_cache_gib: PositiveFloat = 0.0625
    """KV cache of one replica on a CPU; on GPUs `engine.gpu_memory_utilization` decides."""
    loss: Loss = Loss()
    optimizer: Optimizer = Optimizer()
    evaluation_prompts: PositiveInt = 64
    reward_workers: PositiveInt = 1
    reward_timeout_s: PositiveFloat = 10.0
    engine_cores: tuple[NonNegativeInt, ...] = ()
    """Cores of the replicas, taken in turn; empty: the first half of those there are. CPU only."""
    trainer_cores: tuple[NonNegativeInt, ...] = ()
    """Cores of the trainer; empty: those the replicas leave. CPU only."""
    deadline_s: PositiveFloat = 300.0
    """Longest time in which nothing may happen; then the run ends with what it waited for."""


class Scenario(Section):
    """One experiment: what `areal-sim run` and `areal-real run` take."""

    run: Run
    cluster: Cluster
    model: ModelChoice
    engine: Engine = Engine()
    trainer: Trainer = Trainer()
    weight_sync: WeightSyncChoice = WeightSyncChoice()
    workload: Workload
    reward: Reward = Reward()
    policy: PolicyChoice
    faults: Faults = Faults()
    cost: Cost = Cost()
    real: Real = Real()


class Resolved(Section):
    """A scenario with the hardware and model files it names: all that a backend needs, nothing to look up."""

    where: str
    """Path of the scenario file, for messages."""
    scenario: Scenario
    hardware: Hardware
    model: Model
