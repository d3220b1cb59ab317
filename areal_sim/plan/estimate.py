"""A configuration in closed form: a bound that no simulation of it beats, and an estimate to rank by.

Both from the same cost model as the simulation, on lengths drawn from the same workload. The bound leaves
out everything that costs throughput: waiting, tails, interruptions, loads. The estimate adds them roughly.
"""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from areal_sim.cost import build_cost
from areal_sim.cost.protocol import CostModel
from areal_sim.cost.training import TrainerCost
from areal_sim.cost.transfer import TransferCost
from areal_sim.plan.space import Choice, Schedule, policy_of_schedule
from areal_sim.workload import Workload
from interfaces.actions import InFlight
from interfaces.memory import kv_capacity_tokens
from interfaces.policies.protocols import Policy
from interfaces.scenario import Resolved

Floats = NDArray[np.float64]

SLACK = 1.05
"""The bound is on means of a sample; a run draws other lengths and may train the shorter ones first."""
_GROUPS = 256
_PREEMPTED = 1.06
"""Time of decoding where more sequences ask for KV cache than there is, against just as many as fit."""


class Estimate(NamedTuple):
    """Effective throughput in trained tokens (prompt and response) per second."""

    bound: float
    """No more than this: both pools always at work."""
    throughput: float
    rollout: float
    """What generation alone would sustain, with interruptions and loads."""
    trainer: float
    """What training alone would sustain."""


class _Lengths(NamedTuple):
    """Means over the workload, in tokens."""

    prompt: float
    response: float
    longest_of_group: float
    longest_of_batch: float
    running_context: float
    """Of a sequence that is decoding, seen at a random moment: long ones are seen more often."""
    latency_s: float
    """Between the end of the last member and its reward."""
    sorted_down: Floats
    """A sample of responses, longest first."""
    trained: NDArray[np.int64]
    """Prompt plus response of a sample of whole groups."""


class Estimator:
    """Estimates for the configurations of one scenario."""

    def __init__(self, base: Resolved) -> None:
        self._base = base
        self._work = base.scenario.workload
        self._rollouts = self._work.batch_size * self._work.group_size
        self._costs: dict[tuple[int, bool], tuple[CostModel, int]] = {}
        self._train_s: dict[tuple[int, ...], tuple[float, float, float]] = {}
        self._policies: dict[Schedule, Policy] = {}

    @cached_property
    def lengths(self) -> _Lengths:
        """Of a sample of whole groups."""
        return _sample(self._base)

    @property
    def step_tokens(self) -> float:
        """Trained tokens of a step."""
        return self._rollouts * (self.lengths.prompt + self.lengths.response)

    def __call__(self, choice: Choice) -> Estimate:
        """Bound and estimate of one configuration."""
        train_s, publish_s, switch_s = self._training(choice)
        per_step, resolved = self.step_tokens, choice
        cost, capacity = self._engine(choice)
        policy = self._policy(choice.schedule)
        replicas = resolved.rollout_gpus // choice.engine_tensor_parallel
        most = self._most_running(capacity)
        fastest_s = self._rollouts * self.lengths.response / (replicas * self._rate(cost, most))
        if choice.colocated:
            bound_s = fastest_s + train_s
        else:
            bound_s = max(fastest_s, train_s)
        generate_s = self._generation_s(choice, policy, cost, replicas, most)
        load_s = cost.load_s(replicas)
        if choice.colocated:
            step_s = self._batch_s(cost, replicas, most) + train_s + 2 * switch_s
        elif choice.schedule.staleness == 0:
            step_s = self._batch_s(cost, replicas, most) + train_s + publish_s + load_s
        else:
            step_s = max(generate_s + load_s, train_s + publish_s)
        return Estimate(
            bound=SLACK * per_step / bound_s,
            throughput=per_step / step_s,
            rollout=per_step / (generate_s + load_s),
            trainer=per_step / (train_s + publish_s),
        )

    # ---- training -------------------------------------------------------------------------------------

    def _training(self, choice: Choice) -> tuple[float, float, float]:
        """Seconds of a step, of a publish, of a role switch."""
        key = (choice.trainer_gpus, choice.trainer_tensor_parallel, choice.trainer_pipeline_parallel)
        if key not in self._train_s:
            resolved = choice.apply(self._base)
            sample = self.lengths.trained
            share = self._rollouts / len(sample)
            time = TrainerCost(resolved).training_step_s(sample)
            updates = len(time.minibatch_s) * time.update_s
            transfer = TransferCost(resolved)
            whole = share * (time.total_s - updates) + updates
            self._train_s[key] = whole, transfer.publish_s(), transfer.switch_s()
        return self._train_s[key]

    # ---- generation -----------------------------------------------------------------------------------

    def _engine(self, choice: Choice) -> tuple[CostModel, int]:
        """Cost model and tokens of KV cache of one replica."""
        key = choice.engine_tensor_parallel, choice.colocated
        if key not in self._costs:
            resolved = choice.apply(self._base)
            engine = resolved.scenario.engine
            capacity = kv_capacity_tokens(resolved.hardware, resolved.model, engine, choice.colocated)
            self._costs[key] = build_cost(resolved), capacity
        return self._costs[key]

    def _policy(self, schedule: Schedule) -> Policy:
        if schedule not in self._policies:
            self._policies[schedule] = policy_of_schedule(self._base, schedule)
        return self._policies[schedule]

    def _most_running(self, capacity: int) -> float:
        """Sequences that a replica holds, by its limit and its KV cache."""
        fits = capacity / max(1.0, self.lengths.running_context)
        return max(1.0, min(float(self._base.scenario.engine.max_num_seqs), fits))

    def _rate(self, cost: CostModel, running: float) -> float:
        """Tokens per second of one replica with so many sequences."""
        return running / self._decode_s(cost, running)

    def _decode_s(self, cost: CostModel, running: float) -> float:
        context = running * self.lengths.running_context
        return cost.decode_base_s(max(1, round(running))) + cost.decode_per_context_token_s * context

    def _generation_s(
        self, choice: Choice, policy: Policy, cost: CostModel, replicas: int, most: float
    ) -> float:
        """Seconds in which a batch is generated when generation never waits for the trainer."""
        lengths, work = self.lengths, self._work
        eta = choice.schedule.staleness
        groups = float(choice.schedule.concurrency or work.batch_size)
        if eta is not None:  # while a batch trains, the gate holds no more than eta batches
            groups = min(groups, max(1.0, eta) * work.batch_size)
        # a group keeps its slot until its last member is done: its other slots run empty meanwhile
        running = groups * work.group_size * lengths.response / lengths.longest_of_group / replicas
        crowded = running > most
        running = min(most, max(1.0, running))
        decode_s = self._decode_s(cost, running)
        work_s = self._rollouts * lengths.response * decode_s / (replicas * running)
        work_s *= _PREEMPTED if crowded else 1.0
        if InFlight.KEEP_RECOMPUTE in policy.in_flight:
            tokens = running * lengths.running_context
            work_s += cost.prefill_s(int(tokens), tokens * lengths.running_context, round(running))
        elif InFlight.DRAIN in policy.in_flight:
            return max(work_s, self._batch_s(cost, replicas, most))
        # each of the eta batches in flight must be through in eta steps
        life_s = lengths.longest_of_group * decode_s + lengths.latency_s
        return max(work_s, life_s / eta) if eta else work_s

    def _batch_s(self, cost: CostModel, replicas: int, most: float) -> float:
        """Seconds of one batch alone: `sum_j tau(j) (L_j - L_j+1)` on the fullest replica, with its tail."""
        lengths = self.lengths
        count = max(1, round(self._rollouts / replicas))
        places = (np.arange(count) + 0.5) / count * (len(lengths.sorted_down) - 1)
        longest = np.interp(places, np.arange(len(lengths.sorted_down)), lengths.sorted_down)
        longest[0] = lengths.longest_of_batch
        at_once = min(count, max(1, int(most)))
        together = longest[:at_once]
        running = np.arange(1, at_once + 1)
        base = np.array([cost.decode_base_s(int(n)) for n in running])
        step = -np.diff(np.append(together, 0.0))
        middle = together - step / 2 + lengths.prompt
        alone = float(((base + cost.decode_per_context_token_s * running * middle) * step).sum())
        waiting = longest[at_once:].sum() / self._rate(cost, at_once) if count > at_once else 0.0
        return alone + float(waiting) + lengths.latency_s


def _sample(base: Resolved) -> _Lengths:
    workload, work = Workload(base.scenario, base.where), base.scenario.workload
    groups = [workload.group(prompt) for prompt in range(min(_GROUPS, max(work.batch_size, 64)))]
    responses = np.array([group.response_tokens for group in groups], dtype=np.float64)
    prompts = np.array([group.prompt_tokens for group in groups], dtype=np.float64)
    flat: Floats = np.sort(responses.ravel())[::-1]
    latency = [max(group.reward_latency_s or (0.0,)) for group in groups]
    mean = float(responses.mean())
    whole: Any = (responses + prompts[:, None]).ravel().astype(np.int64)
    return _Lengths(
        prompt=float(prompts.mean()),
        response=mean,
        longest_of_group=float(responses.max(axis=1).mean()),
        longest_of_batch=float(flat[: max(1, len(groups) // work.batch_size)].mean()),
        running_context=float(prompts.mean()) + float((responses**2).mean()) / (2 * mean),
        latency_s=float(np.mean(latency)),
        sorted_down=flat,
        trained=whole,
    )
